//! Stragglers that are dialled: how many times as long a rank's step takes, as a function of the
//! run's seed, the rank and the step alone.
//!
//! Ranks are counted over all groups of the configuration, so the same ranks are slow in the same
//! steps however they are grouped, and runs can be compared in pairs.

use std::f64::consts::TAU;

use crate::ids::{GroupId, Rank};

/// What makes ranks slow. The factors of what applies are multiplied.
#[derive(Clone, Debug, PartialEq)]
pub struct Stragglers {
    /// All randomness follows from it.
    pub seed: u64,
    /// Ranks of each group, as configured.
    pub group_sizes: Vec<u32>,
    /// Constant factors of whole groups.
    pub slow_groups: Vec<(GroupId, f64)>,
    /// Constant factors of ranks, counted over all groups.
    pub slow_ranks: Vec<(u32, f64)>,
    /// Groups and ranks, counted over all groups, to whom jitter, pauses and spells happen; both
    /// empty for everyone.
    pub among: (Vec<GroupId>, Vec<u32>),
    /// σ: a step takes exp(σ·z) times as long, z standard normal; its median is 1.
    pub jitter: f64,
    /// Part of a rank's steps that pause.
    pub pause_rate: f64,
    /// How many times as long such a step takes.
    pub pause_factor: f64,
    /// A slow-down that comes and goes.
    pub spell: Spell,
    /// A group that stops for good.
    pub dying: Option<Dying>,
}

/// A slow-down that comes and goes: of each `every` steps, `steps` in a row take `factor` times as
/// long. When they begin differs from rank to rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spell {
    /// Steps from one beginning to the next; 0 for none.
    pub every: u64,
    /// Steps that it lasts.
    pub steps: u64,
    /// How many times as long they take.
    pub factor: f64,
}

/// A group that stops for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dying {
    /// Which.
    pub group: GroupId,
    /// When so many samples have been applied to the run.
    pub at_samples: u64,
}

/// Names for what is compared most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Nobody is slow.
    None,
    /// Every rank's steps are log-normal, σ = 0.1.
    Jitter,
    /// 1% of a rank's steps take ten times as long.
    Pauses,
    /// The last rank is at half speed throughout.
    OneSlow,
    /// The last group stops for good when half of the budget is applied.
    Dying,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Jitter,
        Self::Pauses,
        Self::OneSlow,
        Self::Dying,
    ];

    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Jitter => "jitter",
            Self::Pauses => "pauses",
            Self::OneSlow => "one-slow",
            Self::Dying => "dying",
        }
    }

    /// What it stands for in a run of these groups with a budget of so many samples.
    pub fn stragglers(self, seed: u64, group_sizes: Vec<u32>, samples: u64) -> Stragglers {
        let ranks = group_sizes
            .iter()
            .fold(0u32, |sum, size| sum.saturating_add(*size));
        let last = GroupId((group_sizes.len() as u32).saturating_sub(1));
        let mut found = Stragglers::none(seed, group_sizes);
        match self {
            Self::None => {}
            Self::Jitter => found.jitter = 0.1,
            Self::Pauses => (found.pause_rate, found.pause_factor) = (0.01, 10.0),
            Self::OneSlow => found.slow_ranks = vec![(ranks.saturating_sub(1), 2.0)],
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
            slow_groups: Vec::new(),
            slow_ranks: Vec::new(),
            among: (Vec::new(), Vec::new()),
            jitter: 0.0,
            pause_rate: 0.0,
            pause_factor: 1.0,
            spell: Spell {
                every: 0,
                steps: 0,
                factor: 1.0,
            },
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
        let of_group = self.slow_groups.iter().filter(|(slow, _)| *slow == group);
        let of_rank = self.slow_ranks.iter().filter(|(slow, _)| *slow == number);
        let constant: f64 =
            of_group.map(|(_, f)| f).product::<f64>() * of_rank.map(|(_, f)| f).product::<f64>();
        let (groups, ranks) = &self.among;
        let everyone = groups.is_empty() && ranks.is_empty();
        if !everyone && !groups.contains(&group) && !ranks.contains(&number) {
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
        if self.jitter == 0.0 {
            return 1.0;
        }
        // Box and Muller 1958; the radius is never infinite, for 1 − u is never 0.
        let radius = (-2.0 * (1.0 - self.uniform(rank, step, Stream::Radius)).ln()).sqrt();
        let normal = radius * (TAU * self.uniform(rank, step, Stream::Angle)).cos();
        (self.jitter * normal).exp()
    }

    fn paused(&self, rank: u32, step: u64) -> f64 {
        if self.uniform(rank, step, Stream::Pause) < self.pause_rate {
            self.pause_factor
        } else {
            1.0
        }
    }

    fn spelled(&self, rank: u32, step: u64) -> f64 {
        let Spell {
            every,
            steps,
            factor,
        } = self.spell;
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

    /// In 0..1, the same for the same arguments: SplitMix64's mixing (Steele, Lea and Flood 2014) of
    /// each in turn.
    fn uniform(&self, rank: u32, step: u64, stream: Stream) -> f64 {
        let parts = [u64::from(rank), step, stream as u64];
        let bits = parts
            .iter()
            .fold(mixed(self.seed), |state, part| mixed(state ^ part));
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mixed(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: u64 = 20_000;

    fn stragglers(seed: u64) -> Stragglers {
        Stragglers::none(seed, vec![2, 1, 5])
    }

    fn factors(of: &Stragglers, group: u32, rank: u32) -> Vec<f64> {
        let factor = |step| of.factor(GroupId(group), Rank(rank), step);
        (0..STEPS).map(factor).collect()
    }

    #[test]
    fn constant_factors_are_of_groups_and_of_ranks_over_all_groups() {
        let slow = Stragglers {
            slow_groups: vec![(GroupId(2), 1.5)],
            slow_ranks: vec![(2, 2.0), (7, 4.0)],
            ..stragglers(1)
        };
        let cases = [
            ((0, 0), 1.0),
            ((0, 1), 1.0),
            ((1, 0), 2.0),
            ((2, 0), 1.5),
            ((2, 4), 6.0),
        ];
        for ((group, rank), want) in cases {
            assert_eq!(
                slow.factor(GroupId(group), Rank(rank), 17),
                want,
                "{group}/{rank}"
            );
        }
    }

    #[test]
    fn jitter_is_log_normal() {
        let jitter = Stragglers {
            jitter: 0.1,
            ..stragglers(3)
        };
        let logarithms: Vec<f64> = factors(&jitter, 2, 1).iter().map(|f| f.ln()).collect();
        let n = STEPS as f64;
        let moment = |power: i32| {
            logarithms
                .iter()
                .map(|x| (x / 0.1).powi(power))
                .sum::<f64>()
                / n
        };
        // Of a standard normal 0, 1, 0 and 3; the bounds are five standard errors.
        for (power, want, error) in [
            (1, 0.0, 1.0),
            (2, 1.0, 2.0_f64.sqrt()),
            (3, 0.0, 15.0_f64.sqrt()),
            (4, 3.0, 96.0_f64.sqrt()),
        ] {
            let found = moment(power);
            assert!(
                (found - want).abs() < 5.0 * error / n.sqrt(),
                "moment {power}: {found}"
            );
        }
    }

    #[test]
    fn pauses_come_at_their_rate_and_to_each_rank_by_itself() {
        let pauses = Stragglers {
            pause_rate: 0.01,
            pause_factor: 10.0,
            ..stragglers(5)
        };
        let (one, other) = (factors(&pauses, 0, 0), factors(&pauses, 0, 1));
        let paused = |factors: &[f64]| factors.iter().filter(|f| **f == 10.0).count() as f64;
        let (mean, deviation) = (0.01 * STEPS as f64, (0.0099 * STEPS as f64).sqrt());
        for factors in [&one, &other] {
            assert!((paused(factors) - mean).abs() < 5.0 * deviation);
            assert!(factors.iter().all(|f| [1.0, 10.0].contains(f)));
        }
        let both = one
            .iter()
            .zip(&other)
            .filter(|(a, b)| **a == 10.0 && **b == 10.0);
        assert!(both.count() < 15, "of {STEPS} steps 2 are expected");
    }

    #[test]
    fn spells_last_and_come_again() {
        let spells = Stragglers {
            spell: Spell {
                every: 100,
                steps: 30,
                factor: 3.0,
            },
            ..stragglers(7)
        };
        let (one, other) = (factors(&spells, 2, 0), factors(&spells, 2, 3));
        for factors in [&one, &other] {
            assert_eq!(
                factors.iter().filter(|f| **f == 3.0).count() as u64,
                STEPS * 30 / 100
            );
            let begins = factors.windows(2).filter(|pair| pair[0] < pair[1]).count() as u64;
            assert!(begins.abs_diff(STEPS / 100) <= 1);
        }
        assert_ne!(one, other, "they begin at other times");
    }

    #[test]
    fn what_is_random_happens_to_those_that_are_named() {
        let everyone = Stragglers {
            jitter: 0.1,
            pause_rate: 0.2,
            pause_factor: 4.0,
            spell: Spell {
                every: 10,
                steps: 5,
                factor: 3.0,
            },
            slow_ranks: vec![(0, 2.0)],
            ..stragglers(9)
        };
        let named = Stragglers {
            among: (vec![GroupId(2)], vec![1]),
            ..everyone.clone()
        };
        for (group, rank) in [(0, 1), (2, 0), (2, 4)] {
            assert_eq!(
                factors(&named, group, rank),
                factors(&everyone, group, rank),
                "{group}/{rank} is named"
            );
        }
        assert!(factors(&named, 0, 0).iter().all(|factor| *factor == 2.0));
        assert!(factors(&named, 1, 0).iter().all(|factor| *factor == 1.0));
    }

    #[test]
    fn the_seed_decides_and_the_grouping_does_not() {
        let make = |seed, group_sizes: &[u32]| Stragglers {
            jitter: 0.2,
            pause_rate: 0.1,
            pause_factor: 4.0,
            ..Stragglers::none(seed, group_sizes.to_vec())
        };
        let together = factors(&make(1, &[4]), 0, 3);
        assert_eq!(together, factors(&make(1, &[2, 2]), 1, 1));
        assert_ne!(together, factors(&make(2, &[4]), 0, 3));
    }

    #[test]
    fn a_dying_group_stays_dead() {
        let dying = Stragglers {
            dying: Some(Dying {
                group: GroupId(1),
                at_samples: 50,
            }),
            ..stragglers(1)
        };
        let cases = [(1, 49, false), (1, 50, true), (1, 90, true), (0, 90, false)];
        for (group, samples, dead) in cases {
            assert_eq!(
                dying.dead(GroupId(group), samples),
                dead,
                "{group} at {samples}"
            );
        }
    }
}
