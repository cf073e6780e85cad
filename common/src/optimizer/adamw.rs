use super::Ask;
use super::fields::{BETA1, BETA2, EPSILON, WEIGHT_DECAY, epsilon_fits};
use crate::choice;
use crate::choice::Unfit;

choice! {
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as `torch.optim.AdamW`.
    "adamw" ("as `torch.optim.AdamW`") is AdamW {
        /// β₁, in `0..1`.
        beta1: f64 = BETA1,
        /// β₂, in `0..1`.
        beta2: f64 = BETA2,
        /// ε, added to the root.
        epsilon: f64 = EPSILON,
        /// λ: each update takes this part of the values, times the rate, away.
        weight_decay: f64 = WEIGHT_DECAY,
    }
}

impl Ask for AdamW {
    fn check(&self) -> Result<(), Unfit> {
        epsilon_fits(self.epsilon, EPSILON.key)
    }
}
