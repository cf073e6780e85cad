use super::Ask;
use crate::choice;
use crate::choice::{Field, Kind};

choice! {
    /// A term of first order brings a gradient to the present values (Zheng et al. 2017, "Asynchronous
    /// Stochastic Gradient Descent with Delay Compensation", equation 10).
    "compensate" ("corrects it to first order for what the parameters have changed since (DC-ASGD)") is Compensate {
        /// λ; at least 0.
        lambda: f64 = LAMBDA,
    }
}

pub(super) const LAMBDA: Field = Field {
    key: "staleness.lambda",
    kind: Kind::Number { min: 0.0, max: 1e6 },
    default: "0.04",
    meaning: "Strength of the correction: λ of `compensate`, or λ₀ of `compensate-adaptive`, where 2 is usual.",
};

impl Ask for Compensate {
    fn compensates(&self) -> bool {
        true
    }
}
