//! What a simulated run is made of. Everything that varies is a field here; everything random
//! follows from the seed.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tradewind_common::compress::Compression;
use tradewind_common::schedule::{Decay, Schedule};
use tradewind_common::spec::{ConsistencySpec, OptimizerSpec, RunSpec};
use tradewind_common::{TensorKind, TensorSpec};

use super::random_stream;

/// One simulated run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// All randomness follows from it.
    pub seed: u64,
    /// Parameter servers.
    pub servers: u32,
    /// The groups, in the order of their numbers.
    pub groups: Vec<GroupPlan>,
    /// When a gradient is applied.
    pub consistency: ConsistencySpec,
    /// Whether exchanges run behind the next step.
    pub overlap: bool,
    /// How answers travel.
    pub down: Compression,
    /// The budget, in samples.
    pub samples: u64,
    /// What the network does to messages.
    pub network: NetworkPlan,
    /// Which groups die, when, and for how long.
    pub crashes: Vec<Crash>,
    /// Every so many clocks of a group have no finite gradient, on average; 0 is never.
    pub skip_one_in: u64,
    /// Mean time between malformed frames, microseconds; 0 is never.
    pub malformed_every_us: u64,
    /// How long clock 0 waits for configured groups.
    pub start_grace_ms: u64,
    /// Which rule is broken on purpose.
    pub sabotage: Option<Sabotage>,
}

/// One group.
#[derive(Clone, Copy, Debug)]
pub struct GroupPlan {
    /// Ranks.
    pub size: u32,
    /// Median time of a step, microseconds.
    pub step_us: u64,
    /// When its ranks start.
    pub start_us: u64,
}

/// What the network does to messages. Each draws its own delay, so they overtake each other.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    /// Median one-way delay, microseconds.
    pub delay_us: u64,
    /// σ of the logarithm of the delay.
    pub spread: f64,
    /// Chance that a message is held up for long.
    pub hold: f64,
    /// How long it is then held up at most, microseconds.
    pub hold_us: u64,
    /// Chance that a message is lost. Its stream is broken then; the sender notices after
    /// [`notice_us`](Self::notice_us) and sends what is unanswered again on a new stream.
    pub drop: f64,
    /// Chance that a message arrives twice.
    pub duplicate: f64,
    /// Time until a lost message is noticed, microseconds.
    pub notice_us: u64,
    /// Whether ranks still read answers on a stream that they have given up.
    pub late_answers: bool,
    /// Servers that nobody reaches for a while.
    pub cuts: Vec<Cut>,
    /// Groups whose messages are stuck for a while.
    pub stalls: Vec<Stall>,
}

/// What a group sends in an interval arrives much later, as if a switch had kept it.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// The group.
    pub group: u32,
    /// From when.
    pub from_us: u64,
    /// Until when.
    pub until_us: u64,
    /// By how much later.
    pub held_us: u64,
}

/// A server that is cut off from everybody, the coordinator included.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Its number.
    pub server: u32,
    /// From when.
    pub from_us: u64,
    /// Until when.
    pub until_us: u64,
}

/// The death of a group, all ranks at once. What they had sent still arrives.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// The group.
    pub group: u32,
    /// When.
    pub at_us: u64,
    /// Until it is started again; `None` for never.
    pub down_us: Option<u64>,
}

/// A rule broken on purpose, to show that the checkers find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Blocks apply while c − m ≤ s + 1.
    AdmitsOneTooMany,
    /// A block under `sync` applies without the group that comes last.
    SyncDoesNotWait,
    /// A repeat of what was decided is applied again, and answered as if it were not.
    ForgetsDecided,
    /// Frames of a former incarnation are taken for frames of the present one.
    FenceBroken,
    /// An answer is a difference to the last answer, whatever the frame says that its sender holds.
    IgnoresHeld,
}

/// Length of a rank's lease.
pub const LEASE_MS: u64 = 400;

/// Samples per rank and step.
pub const BATCH: u32 = 2;

impl Scenario {
    /// Two to four groups of one to three ranks on one to three servers, one of them much slower,
    /// under a network that does everything that it may.
    pub fn random(seed: u64, consistency: ConsistencySpec) -> Self {
        let mut rng = random_stream(seed, 0);
        let count = rng.random_range(2..=4);
        let slow = rng.random_range(0..count);
        let groups: Vec<_> = (0..count)
            .map(|group| GroupPlan {
                size: rng.random_range(1..=3),
                step_us: rng.random_range(5_000..20_000) * if group == slow { 8 } else { 1 },
                start_us: rng.random_range(0..60_000),
            })
            .collect();
        let ranks: u32 = groups.iter().map(|g| g.size).sum();
        let clocks = rng.random_range(6..16);
        Self {
            seed,
            servers: rng.random_range(1..=3),
            samples: u64::from(ranks * BATCH) * clocks,
            groups,
            consistency,
            overlap: false,
            down: Compression::None,
            network: NetworkPlan::random(&mut rng),
            crashes: Vec::new(),
            skip_one_in: 12,
            malformed_every_us: 40_000,
            start_grace_ms: 2_000,
            sabotage: None,
        }
    }

    /// The same with one to three crashes, most of which are followed by a new life, and now and
    /// then a server that is cut off or a group that comes late. One group, at least, never dies.
    pub fn with_crashes(mut self) -> Self {
        let mut rng = random_stream(self.seed, 1);
        let mortal = self.groups.len() as u32 - 1;
        for _ in 0..rng.random_range(1..=3) {
            let crash = Crash {
                group: rng.random_range(0..mortal),
                at_us: rng.random_range(20_000..700_000),
                down_us: rng
                    .random_bool(0.8)
                    .then(|| rng.random_range(1_000..600_000)),
            };
            self.crashes.push(crash);
            // Its last words arrive when a new life speaks already.
            if rng.random_bool(0.5) {
                self.network.stalls.push(Stall {
                    group: crash.group,
                    from_us: crash.at_us.saturating_sub(30_000),
                    until_us: crash.at_us,
                    held_us: rng.random_range(300_000..1_500_000),
                });
            }
        }
        if rng.random_bool(0.2) {
            let from_us = rng.random_range(0..600_000);
            self.network.cuts.push(Cut {
                server: rng.random_range(0..self.servers),
                from_us,
                until_us: from_us + rng.random_range(10_000..800_000),
            });
        }
        self.start_grace_ms = if rng.random_bool(0.3) { 100 } else { 2_000 };
        if rng.random_bool(0.3) {
            self.groups[0].start_us += 400_000;
        }
        self
    }

    /// The same with exchanges behind the next step.
    pub fn with_overlap(mut self) -> Self {
        self.overlap = true;
        self
    }

    /// The same with answers that are differences, in a form that follows from the seed and leaves
    /// something out even of small whole numbers.
    pub fn with_differences(mut self) -> Self {
        let topk = Compression::TopK { fraction: 0.5 };
        let int8 = random_stream(self.seed, 5).random_bool(0.5);
        self.down = if int8 { Compression::Int8 } else { topk };
        self
    }

    /// The same with a rule broken on purpose.
    pub fn with_sabotage(mut self, sabotage: Sabotage) -> Self {
        self.sabotage = Some(sabotage);
        self
    }

    /// The run's specification: a few tensors cut into small blocks, and plain SGD of rate 1, so
    /// that the values are the initial ones minus the sum of what was applied.
    pub fn spec(&self) -> RunSpec {
        let tensor = |name: &str, elements, kind| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind,
        };
        RunSpec {
            seed: self.seed,
            group_sizes: self.groups.iter().map(|g| g.size).collect(),
            tensors: vec![
                tensor("first", 5, TensorKind::Parameter),
                tensor("mean", 3, TensorKind::Buffer),
                tensor("second", 7, TensorKind::Parameter),
            ],
            bucket_bytes: 64,
            block_bytes: 16,
            consistency: self.consistency,
            optimizer: OptimizerSpec::Sgd {
                momentum: 0.0,
                nesterov: false,
                weight_decay: 0.0,
            },
            schedule: Schedule {
                learning_rate: 1.0,
                warmup_samples: 0,
                decay: Decay::Constant,
            },
            samples: self.samples,
            epoch_samples: 1 << 20,
            batch: BATCH,
            chunk_samples: 64,
            lease_ms: LEASE_MS,
            start_grace_ms: self.start_grace_ms,
            up: Compression::None,
            down: self.down,
        }
    }
}

impl NetworkPlan {
    /// A network that delivers everything once.
    pub fn faultless() -> Self {
        Self {
            delay_us: 300,
            spread: 0.3,
            hold: 0.0,
            hold_us: 0,
            drop: 0.0,
            duplicate: 0.0,
            notice_us: 30_000,
            late_answers: false,
            cuts: Vec::new(),
            stalls: Vec::new(),
        }
    }

    fn random(rng: &mut ChaCha8Rng) -> Self {
        Self {
            delay_us: rng.random_range(200..4_000),
            spread: rng.random_range(0.1..1.2),
            hold: rng.random_range(0.0..0.05),
            hold_us: 60_000,
            drop: rng.random_range(0.0..0.02),
            duplicate: rng.random_range(0.0..0.1),
            notice_us: rng.random_range(5_000..40_000),
            late_answers: rng.random_bool(0.5),
            cuts: Vec::new(),
            stalls: Vec::new(),
        }
    }
}
