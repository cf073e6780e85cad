use super::Ask;
use super::fields::{MOMENTUM, TRUST, WEIGHT_DECAY};
use super::lars::trust_fits;
use crate::choice;
use crate::choice::Unfit;

choice! {
    /// LARS whose scale only ever shortens a step of SGD with momentum (Kurth et al. 2018, section V-B2).
    "larc" ("as `lars`, but steps are only ever shortened") is Larc {
        /// μ, in `0..1`.
        momentum: f64 = MOMENTUM,
        /// L2 penalty, added to the gradient.
        weight_decay: f64 = WEIGHT_DECAY,
        /// Length of a layer's step over the length of its values, at most; more than 0.
        trust: f64 = TRUST,
    }
}

impl Ask for Larc {
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
