use super::Ask;
use super::fields::MOMENTUM;
use crate::choice;
use crate::choice::{Field, Kind, Unfit, fit};

choice! {
    /// Nesterov's momentum on pseudo-gradients that come one by one (Liu et al. 2024, algorithm 3).
    "delayed-nesterov" ("the outer optimizer of `local.algorithm = \"diloco\"` under `async`") is DelayedNesterov {
        /// β, in `0..1`.
        momentum: f64 = MOMENTUM,
        /// N: updates between two of the momentum, at least 1.
        every: u32 = EVERY,
        /// c, in `0..=1/N`: the part of the momentum that each update between them applies.
        activation: f64 = ACTIVATION,
    }
}

const EVERY: Field = Field {
    key: "optimizer.momentum_updates",
    kind: Kind::Count {
        min: 1,
        max: 1_000_000,
    },
    default: "1",
    meaning: "Number N of updates from one change of the momentum to the next. The authors of the algorithm take the number of groups.",
};

const ACTIVATION: Field = Field {
    key: "optimizer.activation",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: "0.0",
    meaning: "Fraction c of the momentum that is applied at each update at which the momentum does not change; at most 1 / `optimizer.momentum_updates`.",
};

impl Ask for DelayedNesterov {
    fn check(&self) -> Result<(), Unfit> {
        let most = 1.0 / f64::from(self.every);
        let problem = "is more than 1 / optimizer.momentum_updates";
        fit(self.activation <= most, ACTIVATION.key, problem)
    }

    fn takes_pseudo_gradients(&self) -> bool {
        true
    }
}
