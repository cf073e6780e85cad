use super::Ask;
use crate::choice;
use crate::choice::{Field, Kind};

choice! {
    /// It follows from the total momentum as measured, so that that becomes the optimizer's (Zhang and
    /// Mitliagkas 2017, "YellowFin and the Art of Momentum Tuning", section 4 and
    /// algorithm 5).
    "closed-loop" ("servers measure the total momentum and correct towards that value") is ClosedLoop {
        /// γ, in `0..=1`: the part of the difference that an update corrects.
        gain: f64 = GAIN,
    }
}

const GAIN: Field = Field {
    key: "momentum.gain",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: "0.01",
    meaning: "Fraction of the difference between measured and configured momentum that is corrected at an update.",
};

impl Ask for ClosedLoop {
    fn measures(&self) -> bool {
        true
    }
}
