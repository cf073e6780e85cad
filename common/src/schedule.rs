//! The learning rate as a function of what has been applied.
//!
//! Of samples, unless updates are asked for, so that settings with different numbers of groups can
//! be compared: eight asynchronous groups make eight times the updates of one synchronous group
//! from the same data.

mod decay;

pub use decay::{Decay, MILESTONES_MAX};
use serde::{Deserialize, Serialize};

use crate::range::{RangeError, finite, ranged};

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

/// What a schedule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Applied samples; the decay ends with the budget.
    Samples,
    /// Updates: the largest version of a block.
    Updates {
        /// Where the decay ends.
        end: u64,
    },
}

/// How the rate, or what counts as much, follows the samples of an update. Never the number of ranks or groups: eight
/// asynchronous groups must not get eight times the rate, because their updates are no larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scaling {
    /// Not at all.
    None,
    /// In proportion to the samples (Goyal et al. 2017, section 2.1).
    Linear {
        /// Samples of an update at the configured rate, more than 0.
        reference: u64,
    },
    /// With their square root (Krizhevsky 2014, section 5; Malladi et al. 2022 for adaptive
    /// optimizers).
    Sqrt {
        /// Samples of an update at the configured rate, more than 0.
        reference: u64,
    },
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

    /// Checks every field against its range.
    pub(crate) fn check(&self) -> Result<(), RangeError> {
        finite(self.learning_rate, "learning_rate")?;
        self.decay.check()?;
        if let Unit::Updates { end } = self.unit
            && self.decay.ends()
        {
            let wanted = "more than the warm-up, which a decay that ends needs";
            ranged(end > self.warmup, "schedule.end_updates", end, wanted)?;
        }
        match self.scaling {
            Scaling::None => Ok(()),
            Scaling::Linear { reference } | Scaling::Sqrt { reference } => ranged(
                reference > 0,
                "schedule.reference_batch",
                reference,
                "more than 0",
            ),
        }
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
