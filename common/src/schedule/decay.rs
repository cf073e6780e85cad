//! What happens to the rate after the warm-up.

use serde::{Deserialize, Serialize};

use crate::choice::{Field, Kind, MANY, Unfit, fit};
use crate::choices;

choices! {
    /// What happens to the rate after the warm-up.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase", tag = "kind")]
    "decay of the rate" is Decay {
        /// Nothing.
        "constant" ("it stays") is Constant,
        /// It is multiplied by a number at each milestone (He et al. 2016, section 3.4), as
        /// `torch.optim.lr_scheduler.MultiStepLR`; by another one at each if there are such.
        "step" ("it is multiplied by `schedule.gamma`, or by its own one of `schedule.factors`, at each of `schedule.milestones`") is Step {
            /// Counted from the beginning of the run; at most [`MILESTONES_MAX`], increasing.
            milestones: Vec<u64> = MILESTONES,
            /// γ, in `0..=1`.
            gamma: f64 = GAMMA,
            /// Of each milestone in the place of γ, in `0..=1`; none, or as many.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            factors: Vec<f64> = FACTORS,
        },
        /// floor + (1 − floor)(1 − x)^power, x going from 0 at the end of the warm-up to 1 at the end
        /// of the decay (You et al. 2017, section 5, with power 2 and floor 0).
        "polynomial" ("it falls to `schedule.floor` as a power of the remaining time, `schedule.power`") is Polynomial {
            /// In `(0, 100]`; 1 is a straight line.
            power: f64 = POWER,
            /// Where it ends, as a fraction of the rate, in `0..=1`.
            floor: f64 = FLOOR,
        },
        /// Half a cosine from the end of the warm-up to the end of the decay (Loshchilov and Hutter
        /// 2017, "SGDR", equation 5, without restarts).
        "cosine" ("it falls along half a cosine to `schedule.floor`") is Cosine {
            /// Where it ends, as a fraction of the rate, in `0..=1`.
            floor: f64 = FLOOR,
        },
    }
}

const MILESTONES: Field = Field {
    key: "schedule.milestones",
    kind: Kind::Counts { min: 1, max: MANY },
    default: "[]",
    meaning: "Points at which the learning rate is multiplied by `schedule.gamma`, in applied samples or updates (`schedule.unit`) since the beginning of the run; at least one, in increasing order.",
};

const GAMMA: Field = Field {
    key: "schedule.gamma",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: "0.1",
    meaning: "Factor that the learning rate is multiplied by at each milestone, unless `schedule.factors` has one for each.",
};

const FACTORS: Field = Field {
    key: "schedule.factors",
    kind: Kind::Numbers { min: 0.0, max: 1.0 },
    default: "[]",
    meaning: "Factors that the learning rate is multiplied by, one for each of `schedule.milestones`: with `[0.25, 0.5]` it is a quarter after the first and an eighth after the second. Empty: `schedule.gamma` at each.",
};

const POWER: Field = Field {
    key: "schedule.power",
    kind: Kind::Number {
        min: 0.0,
        max: 100.0,
    },
    default: "1.0",
    meaning: "Exponent of the decay `polynomial`, more than 0. 1 is a straight line.",
};

const FLOOR: Field = Field {
    key: "schedule.floor",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: "0.0",
    meaning: "Learning rate at the end of the decay, as a fraction of the rate at the end of the warm-up.",
};

/// Most milestones that a schedule may have.
pub const MILESTONES_MAX: usize = 1000;

impl Decay {
    /// The part of the rate that is left at `at`, when `done` of the decay's length, in `0..=1`, is
    /// passed.
    pub(super) fn factor(&self, at: u64, done: f64) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Step {
                milestones,
                gamma,
                factors,
            } => {
                let passed = milestones.partition_point(|milestone| *milestone <= at);
                match factors.get(..passed) {
                    Some(factors) if !factors.is_empty() => factors.iter().product(),
                    _ => gamma.powi(passed as i32),
                }
            }
            Self::Cosine { floor } => {
                let cosine = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
                floor + (1.0 - floor) * cosine
            }
            Self::Polynomial { power, floor } => floor + (1.0 - floor) * (1.0 - done).powf(*power),
        }
    }

    /// Whether it goes on to an end that has to be known.
    pub fn ends(&self) -> bool {
        match self {
            Self::Constant | Self::Step { .. } => false,
            Self::Cosine { .. } | Self::Polynomial { .. } => true,
        }
    }

    /// What its fields have to be besides their ranges.
    pub(super) fn check(&self) -> Result<(), Unfit> {
        match self {
            Self::Constant | Self::Cosine { .. } => Ok(()),
            Self::Step {
                milestones,
                factors,
                ..
            } => {
                fit(
                    !milestones.is_empty(),
                    MILESTONES.key,
                    "is empty, and schedule.decay = \"step\" needs one",
                )?;
                let few = milestones.len() <= MILESTONES_MAX;
                fit(few, MILESTONES.key, "are more than 1000")?;
                let increasing = milestones.is_sorted_by(|a, b| a < b);
                fit(increasing, MILESTONES.key, "do not increase")?;
                let problem = format!(
                    "has {} numbers, and schedule.milestones has {}",
                    factors.len(),
                    milestones.len()
                );
                let one_each = factors.is_empty() || factors.len() == milestones.len();
                fit(one_each, FACTORS.key, &problem)
            }
            Self::Polynomial { power, .. } => {
                let problem =
                    "is no power of a decay; take schedule.decay = \"constant\", or more than 0";
                fit(*power > 0.0, POWER.key, problem)
            }
        }
    }
}
