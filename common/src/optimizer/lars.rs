use super::Ask;
use super::fields::{MOMENTUM, TRUST, WEIGHT_DECAY};

use crate::choice;
use crate::choice::{Unfit, fit};

choice! {
    /// Layer-wise adaptive rate scaling (You et al. 2017, algorithm 1).
    "lars" ("a rate for each tensor, for large batches") is Lars {
        /// m, in `0..1`.
        momentum: f64 = MOMENTUM,
        /// β, of the L2 penalty.
        weight_decay: f64 = WEIGHT_DECAY,
        /// η: length of a layer's step over the length of its values, at rate 1; more than 0.
        trust: f64 = TRUST,
    }
}

impl Ask for Lars {
    fn check(&self) -> Result<(), Unfit> {
        trust_fits(self.trust)
    }

    fn layerwise(&self) -> bool {
        true
    }

    fn momentum(&self) -> Option<f64> {
        (self.momentum > 0.0).then_some(self.momentum)
    }
}

pub(super) fn trust_fits(trust: f64) -> Result<(), Unfit> {
    let problem = "is 0, so no tensor would ever move; 0.001 is usual";
    fit(trust > 0.0, TRUST.key, problem)
}
