//! Stragglers that are dialled: how many times as long a rank's step takes, as a function of the
//! run's seed, the rank and the step alone.
//!
//! Ranks are counted over all groups of the configuration, so the same ranks are slow in the same
//! steps however they are grouped, and runs can be compared in pairs.

use std::f64::consts::TAU;

use crate::choice::{Field, Kind, MANY};
use crate::ids::{GroupId, Rank};
use crate::mix::mixed;
use crate::{choices, settings};

/// What makes ranks slow. The factors of what applies are multiplied.
#[derive(Clone, Debug, PartialEq)]
pub struct Stragglers {
    /// All randomness follows from it.
    pub seed: u64,
    /// Ranks of each group, as configured.
    pub group_sizes: Vec<u32>,
    /// Constant factors.
    pub slow: Vec<(Who, f64)>,
    /// To whom jitter, pauses and spells happen; empty for everyone.
    pub among: Vec<Who>,
    /// What happens to them.
    pub dials: Dials,
    /// A group that stops for good.
    pub dying: Option<Dying>,
}

/// A whole group, or one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every rank of it.
    Group(GroupId),
    /// Counted over all groups.
    Rank(u32),
}

settings! {
    /// What makes the steps of a rank slow now and then.
    Dials {
        /// σ: a step takes exp(σ·z) times as long, z standard normal; its median is 1.
        jitter: f64 = Field {
            key: "stragglers.jitter",
            kind: Kind::Number { min: 0.0, max: 3.0 },
            default: "0.0",
            meaning: "Standard deviation σ of the logarithm of the factor that the time of each step is multiplied by. 0 leaves it to `stragglers.profile`.",
        },
        /// Part of a rank's steps that pause.
        pause_rate: f64 = Field {
            key: "stragglers.pause_rate",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            default: "0.0",
            meaning: "Fraction of the steps of a rank that take `stragglers.pause_factor` times as long. 0 leaves it to `stragglers.profile`.",
        },
        /// How many times as long such a step takes.
        pause_factor: f64 = Field {
            key: "stragglers.pause_factor",
            kind: Kind::Number { min: 1.0, max: 1e3 },
            default: "10.0",
            meaning: "Factor by which a step with a pause takes longer. Used only if `stragglers.pause_rate` is above 0 or `stragglers.profile` is `pauses`.",
        },
        /// Of each so many steps some in a row are slow, and when they begin differs from rank to rank; 0
        /// for none.
        spell_every: u64 = Field {
            key: "stragglers.spell_every",
            kind: Kind::Count { min: 0, max: MANY },
            default: "0",
            meaning: "Number of steps of a rank from the beginning of one slow spell to the beginning of the next. 0 is no slow spells.",
        },
        /// Steps that such a spell lasts.
        spell_steps: u64 = Field {
            key: "stragglers.spell_steps",
            kind: Kind::Count { min: 0, max: MANY },
            default: "0",
            meaning: "Number of steps in a row that a slow spell lasts, at most `stragglers.spell_every`.",
        },
        /// How many times as long they take.
        spell_factor: f64 = Field {
            key: "stragglers.spell_factor",
            kind: Kind::Number { min: 1.0, max: 1e3 },
            default: "2.0",
            meaning: "Factor by which a step in a slow spell takes longer.",
        },
    }
}

impl Dials {
    /// Whether any step is slow.
    pub fn act(&self) -> bool {
        let spells = self.spell_every > 0 && self.spell_steps > 0;
        self.jitter > 0.0 || self.pause_rate > 0.0 || spells
    }
}

/// A group that stops for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dying {
    /// Which.
    pub group: GroupId,
    /// When so many samples have been applied to the run.
    pub at_samples: u64,
}

choices! {
    /// Names for what is compared most.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    "profile of stragglers" is Profile {
        /// Nobody is slow.
        "none" ("no rank is slow") is None,
        /// Every rank's steps are log-normal, σ = 0.1.
        "jitter" ("the time of every step varies (log-normal, σ = 0.1)") is Jitter,
        /// 1% of a rank's steps take ten times as long.
        "pauses" ("1 % of the steps of a rank take ten times as long") is Pauses,
        /// The last rank is at half speed throughout.
        "one-slow" ("the last rank has half the speed") is OneSlow,
        /// The last group stops for good when half of the budget is applied.
        "dying" ("the last group ends for good when half of `train.samples` is applied; not under Slurm") is Dying,
    }
}

impl Profile {
    /// What it stands for in a run of these groups with a budget of so many samples.
    pub fn stragglers(self, seed: u64, group_sizes: Vec<u32>, samples: u64) -> Stragglers {
        let ranks = group_sizes
            .iter()
            .fold(0u32, |sum, size| sum.saturating_add(*size));
        let last = GroupId((group_sizes.len() as u32).saturating_sub(1));
        let mut found = Stragglers::none(seed, group_sizes);
        match self {
            Self::None => {}
            Self::Jitter => found.dials.jitter = 0.1,
            Self::Pauses => found.dials.pause_rate = 0.01,
            Self::OneSlow => found.slow = vec![(Who::Rank(ranks.saturating_sub(1)), 2.0)],
            Self::Dying => {
                found.dying = Some(Dying {
                    group: last,
                    at_samples: samples / 2,
                });
            }
        }
        found
    }
}

/// What a random number is for: numbers of different streams have nothing to do with each other.
#[derive(Clone, Copy)]
enum Stream {
    Radius = 1,
    Angle = 2,
    Pause = 3,
    Phase = 4,
}

impl Stragglers {
    /// Nobody is slow.
    pub fn none(seed: u64, group_sizes: Vec<u32>) -> Self {
        Self {
            seed,
            group_sizes,
            slow: Vec::new(),
            among: Vec::new(),
            dials: Dials::default(),
            dying: None,
        }
    }

    /// The number of a rank, counted over all groups.
    pub fn rank(&self, group: GroupId, rank: Rank) -> u32 {
        let before = self.group_sizes.iter().take(group.0 as usize);
        before.sum::<u32>() + rank.0
    }

    /// How many times as long the step of a rank takes at a clock of its group.
    pub fn factor(&self, group: GroupId, rank: Rank, step: u64) -> f64 {
        let number = self.rank(group, rank);
        let named = |who: &Who| match who {
            Who::Group(slow) => *slow == group,
            Who::Rank(slow) => *slow == number,
        };
        let slow = self.slow.iter().filter(|(who, _)| named(who));
        let constant: f64 = slow.map(|(_, factor)| factor).product();
        if !self.among.is_empty() && !self.among.iter().any(named) {
            return constant;
        }
        constant
            * self.jittered(number, step)
            * self.paused(number, step)
            * self.spelled(number, step)
    }

    /// Whether a group has stopped for good, once so many samples have been applied.
    pub fn dead(&self, group: GroupId, samples_applied: u64) -> bool {
        self.dying
            .is_some_and(|dying| dying.group == group && samples_applied >= dying.at_samples)
    }

    fn jittered(&self, rank: u32, step: u64) -> f64 {
        if self.dials.jitter == 0.0 {
            return 1.0;
        }
        // Box and Muller 1958; the radius is never infinite, for 1 − u is never 0.
        let radius = (-2.0 * (1.0 - self.uniform(rank, step, Stream::Radius)).ln()).sqrt();
        let normal = radius * (TAU * self.uniform(rank, step, Stream::Angle)).cos();
        (self.dials.jitter * normal).exp()
    }

    fn paused(&self, rank: u32, step: u64) -> f64 {
        if self.uniform(rank, step, Stream::Pause) < self.dials.pause_rate {
            self.dials.pause_factor
        } else {
            1.0
        }
    }

    fn spelled(&self, rank: u32, step: u64) -> f64 {
        let Dials {
            spell_every: every,
            spell_steps: steps,
            spell_factor: factor,
            ..
        } = self.dials;
        if every == 0 {
            return 1.0;
        }
        let phase = (self.uniform(rank, 0, Stream::Phase) * every as f64) as u64;
        if (step + phase) % every < steps {
            factor
        } else {
            1.0
        }
    }

    /// In 0..1, the same for the same arguments.
    fn uniform(&self, rank: u32, step: u64, stream: Stream) -> f64 {
        let bits = mixed(self.seed, [u64::from(rank), step, stream as u64]);
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
