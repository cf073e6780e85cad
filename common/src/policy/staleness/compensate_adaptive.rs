use super::Ask;
use super::compensate::LAMBDA;
use crate::choice;
use crate::choice::{Field, Kind};

choice! {
    /// As [`Compensate`](super::Compensate), with a λ that follows the mean square of the gradients
    /// (Zheng et al. 2017, section 6: DC-ASGD-a).
    "compensate-adaptive" ("the same, with a λ that follows the size of the gradients") is CompensateAdaptive recorded as Compensate {
        /// λ₀; at least 0.
        lambda: f64 = LAMBDA,
        /// m, in `0..1`: how slowly the mean square forgets.
        mean_square_decay: f64 = MEAN_SQUARE_DECAY,
    }
}

const MEAN_SQUARE_DECAY: Field = Field {
    key: "staleness.mean_square_decay",
    kind: Kind::Number {
        min: 0.0,
        max: 0.999_999,
    },
    default: "0.95",
    meaning: "Decay m of the running mean of squared gradients: at each update the mean keeps this fraction of its former value.",
};

impl Ask for CompensateAdaptive {
    fn compensates(&self) -> bool {
        true
    }
}
