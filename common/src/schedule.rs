//! The learning rate as a function of what has been applied.
//!
//! Of samples, unless updates are asked for, so that settings with different numbers of groups can
//! be compared: eight asynchronous groups make eight times the updates of one synchronous group
//! from the same data.

mod decay;

pub use decay::{Decay, MILESTONES_MAX};
use serde::{Deserialize, Serialize};

use crate::choice::{Choices, Field, Kind, MANY, Unfit, fit};
use crate::choices;

/// A learning-rate schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The rate at the end of the warm-up, of an update of the reference batch.
    pub learning_rate: f64,
    /// What the warm-up and the decay count.
    pub unit: Unit,
    /// Samples or updates over which the rate grows linearly from 0 (Goyal et al. 2017, section
    /// 2.2).
    pub warmup: u64,
    /// What follows.
    pub decay: Decay,
    /// What the samples of an update make of its rate, or of its weight.
    pub scaling: Scaling,
}

choices! {
    /// What a schedule counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    "unit of a schedule" is Unit {
        /// Applied samples; the decay ends with the budget.
        #[default]
        "samples" ("samples that have been applied, so that runs with different numbers of groups can be compared") is Samples,
        /// Updates: the largest version of a block.
        "updates" ("updates that servers have made") is Updates {
            /// Where the decay ends.
            end: u64 = END,
        },
    }
}

choices! {
    /// How the rate, or what counts as much, follows the samples of an update. Never the number of ranks
    /// or groups: eight asynchronous groups must not get eight times the rate, because their updates are
    /// no larger.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    "scaling of the rate" is Scaling {
        /// Not at all.
        #[default]
        "none" ("1") is None,
        /// In proportion to the samples (Goyal et al. 2017, section 2.1).
        "linear" ("n / r") is Linear {
            /// Samples of an update at the configured rate, more than 0.
            reference: u64 = REFERENCE,
        },
        /// With their square root (Krizhevsky 2014, section 5; Malladi et al. 2022 for adaptive
        /// optimizers).
        "sqrt" ("√(n / r)") is Sqrt {
            /// Samples of an update at the configured rate, more than 0.
            reference: u64 = REFERENCE,
        },
    }
}

/// A whole number that may be 0, the default.
const fn count(key: &'static str, meaning: &'static str) -> Field {
    Field {
        key,
        kind: Kind::Count { min: 0, max: MANY },
        default: "0",
        meaning,
    }
}

/// [`Schedule::warmup`], where samples are counted.
pub const WARMUP_SAMPLES: Field = count(
    "schedule.warmup_samples",
    "Length of the warm-up, in applied samples, over which the learning rate grows linearly from 0. 0 is no warm-up.",
);

/// [`Schedule::warmup`], where updates are counted.
pub const WARMUP_UPDATES: Field = count(
    "schedule.warmup_updates",
    "Length of the warm-up, in updates, over which the learning rate grows linearly from 0. 0 is no warm-up.",
);

const END: Field = count(
    "schedule.end_updates",
    "Number of updates after which the decays `cosine` and `polynomial` have come to their end, more than `schedule.warmup_updates`. Where samples are counted, decays end with `train.samples`.",
);

const REFERENCE: Field = count(
    "schedule.reference_batch",
    "Number of samples in an update at which the learning rate holds as it is configured; more than 0.",
);

impl Unit {
    /// The key of [`Schedule::warmup`].
    pub fn warmup(self) -> Field {
        match self {
            Self::Samples => WARMUP_SAMPLES,
            Self::Updates { .. } => WARMUP_UPDATES,
        }
    }
}

/// What has been applied in a run as a group knows it: a schedule's argument, the same for all
/// blocks of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The most samples applied to a block.
    pub samples: u64,
    /// The largest version of a block.
    pub updates: u64,
}

impl Seen {
    /// The most that either knows of.
    pub fn latest(self, other: Self) -> Self {
        Self {
            samples: self.samples.max(other.samples),
            updates: self.updates.max(other.updates),
        }
    }
}

impl Schedule {
    /// One rate throughout.
    pub fn constant(learning_rate: f64) -> Self {
        Self {
            learning_rate,
            unit: Unit::Samples,
            warmup: 0,
            decay: Decay::Constant,
            scaling: Scaling::None,
        }
    }

    /// The rate of an update of `samples` samples, by groups that had `seen` so much applied, under
    /// a budget of `total` samples. Past the end of the decay the rate stays where it ended.
    pub fn rate(&self, seen: Seen, samples: u64, total: u64) -> f64 {
        self.unscaled(seen, samples, total) * self.scaling.factor(samples)
    }

    /// The same without what the samples of the update make of it.
    pub fn unscaled(&self, seen: Seen, samples: u64, total: u64) -> f64 {
        let (at, added, end) = match self.unit {
            Unit::Samples => (seen.samples, samples, total),
            Unit::Updates { end } => (seen.updates, 1, end),
        };
        self.learning_rate * self.phase(at, added, end)
    }

    /// The part of the rate that is due at `at`, for an update that adds `added` to that.
    fn phase(&self, at: u64, added: u64, end: u64) -> f64 {
        if at < self.warmup {
            let reached = at.saturating_add(added).min(self.warmup);
            return reached as f64 / self.warmup as f64;
        }
        let length = end.saturating_sub(self.warmup).max(1) as f64;
        let done = ((at - self.warmup) as f64 / length).min(1.0);
        self.decay.factor(at, done)
    }

    /// What cannot be followed, all of it.
    pub fn problems(&self) -> Vec<Unfit> {
        let rate = self.learning_rate;
        let sound = rate.is_finite() && rate >= 0.0;
        let problem = format!("is {rate}, which is not a finite number of at least 0");
        let ends_late = match self.unit {
            Unit::Updates { end } => end > self.warmup || !self.decay.ends(),
            Unit::Samples => true,
        };
        let reference = match self.scaling {
            Scaling::None => 1,
            Scaling::Linear { reference } | Scaling::Sqrt { reference } => reference,
        };
        let checks = [
            fit(sound, "optimizer.learning_rate", &problem),
            self.unit.in_range(),
            self.scaling.in_range(),
            self.decay.in_range(),
            self.decay.check(),
            fit(
                ends_late,
                END.key,
                "is not more than schedule.warmup_updates, and this schedule.decay has to end",
            ),
            fit(
                reference > 0,
                REFERENCE.key,
                "is 0; schedule.scaling needs the samples of an update at which optimizer.learning_rate holds",
            ),
        ];
        checks.into_iter().filter_map(Result::err).collect()
    }
}

impl Scaling {
    /// What an update of so many samples counts, against one of the reference batch.
    pub fn factor(self, samples: u64) -> f64 {
        match self {
            Self::None => 1.0,
            Self::Linear { reference } => samples as f64 / reference as f64,
            Self::Sqrt { reference } => (samples as f64 / reference as f64).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests;
