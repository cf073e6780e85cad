//! What happens to the rate after the warm-up.

use serde::{Deserialize, Serialize};

use crate::range::{RangeError, ranged};

/// What happens to the rate after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Decay {
    /// Nothing.
    Constant,
    /// It is multiplied by a number at each milestone (He et al. 2016, section 3.4), as
    /// `torch.optim.lr_scheduler.MultiStepLR`.
    Step {
        /// Counted from the beginning of the run; at most [`MILESTONES_MAX`], increasing.
        milestones: Vec<u64>,
        /// γ, in `0..=1`.
        gamma: f64,
    },
    /// Half a cosine from the end of the warm-up to the end of the decay (Loshchilov and Hutter
    /// 2017, "SGDR", equation 5, without restarts).
    Cosine {
        /// Where it ends, as a fraction of the rate, in `0..=1`.
        floor: f64,
    },
    /// floor + (1 − floor)(1 − x)^power, x going from 0 at the end of the warm-up to 1 at the end of
    /// the decay (You et al. 2017, section 5, with power 2 and floor 0).
    Polynomial {
        /// In `(0, 100]`; 1 is a straight line.
        power: f64,
        /// Where it ends, as a fraction of the rate, in `0..=1`.
        floor: f64,
    },
}

/// Most milestones that a schedule may have.
pub const MILESTONES_MAX: usize = 1000;

impl Decay {
    /// The part of the rate that is left at `at`, when `done` of the decay's length, in `0..=1`, is
    /// passed.
    pub(super) fn factor(&self, at: u64, done: f64) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Step { milestones, gamma } => {
                let passed = milestones.partition_point(|milestone| *milestone <= at);
                gamma.powi(passed as i32)
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
        matches!(self, Self::Cosine { .. } | Self::Polynomial { .. })
    }

    pub(super) fn check(&self) -> Result<(), RangeError> {
        let part = |x: f64, field| ranged((0.0..=1.0).contains(&x), field, x, "in 0..=1");
        match self {
            Self::Constant => Ok(()),
            Self::Step { milestones, gamma } => {
                part(*gamma, "schedule.gamma")?;
                let count = milestones.len();
                let few = (1..=MILESTONES_MAX).contains(&count);
                ranged(few, "number of schedule.milestones", count, "1 to 1000")?;
                let increasing = milestones.is_sorted_by(|a, b| a < b);
                let text = || format!("{milestones:?}");
                if increasing {
                    return Ok(());
                }
                ranged(false, "schedule.milestones", text(), "increasing")
            }
            Self::Cosine { floor } => part(*floor, "schedule.floor"),
            Self::Polynomial { power, floor } => {
                let good = *power > 0.0 && *power <= 100.0;
                ranged(good, "schedule.power", power, "in (0, 100]")?;
                part(*floor, "schedule.floor")
            }
        }
    }
}
