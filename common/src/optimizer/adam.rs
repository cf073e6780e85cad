use super::Ask;
use super::fields::{BETA1, BETA2, EPSILON, WEIGHT_DECAY, epsilon_fits};
use crate::choice;
use crate::choice::Unfit;

choice! {
    /// Adam (Kingma and Ba 2015, algorithm 1), as `torch.optim.Adam`.
    "adam" ("as `torch.optim.Adam`") is Adam {
        /// β₁, in `0..1`.
        beta1: f64 = BETA1,
        /// β₂, in `0..1`.
        beta2: f64 = BETA2,
        /// ε, added to the root.
        epsilon: f64 = EPSILON,
        /// L2 penalty, added to the gradient.
        weight_decay: f64 = WEIGHT_DECAY,
    }
}

impl Ask for Adam {
    fn check(&self) -> Result<(), Unfit> {
        epsilon_fits(self.epsilon, EPSILON.key)
    }
}
