use super::Ask;
use super::fields::{BETA1, BETA2, EPSILON, WEIGHT_DECAY, epsilon_fits};
use crate::choice;
use crate::choice::{Field, Unfit};

choice! {
    /// Adam whose steps are as long as the values they move, for large batches (You et al. 2020, "Large Batch
    /// Optimization for Deep Learning", algorithm 2).
    "lamb" ("`adamw` with a rate for each tensor, or each part of one in a block, for large batches") is Lamb {
        /// β₁, in `0..1`.
        beta1: f64 = BETA1,
        /// β₂, in `0..1`.
        beta2: f64 = BETA2,
        /// ε, added to the root.
        epsilon: f64 = EPSILON,
        /// λ: this part of the values is added to the direction of a step.
        weight_decay: f64 = IN_DIRECTION,
    }
}

const IN_DIRECTION: Field = Field {
    meaning: "λ times the values is added to the direction of a step.",
    ..WEIGHT_DECAY
};

impl Ask for Lamb {
    fn check(&self) -> Result<(), Unfit> {
        epsilon_fits(self.epsilon, EPSILON.key)
    }

    fn by_part(&self) -> bool {
        true
    }
}
