//! What a simulated run is made of. Everything that varies is a field here; everything random
//! follows from the seed.

mod clocks;
mod combined;
mod faults;
mod mix;
mod network;
mod optimizers;
mod spec;

use rand::Rng;
use tradewind_common::batch::BatchStep;
use tradewind_common::compress::Compression;
use tradewind_common::optimizer::Elastic;
use tradewind_common::policy::{MergeSpec, Policies, StalenessSpec, Weights};
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{ConsistencySpec, DecayExempt, OptimizerSpec};
use tradewind_common::straggler::{Profile, Stragglers};

pub use self::clocks::CLOCKS;
pub use self::combined::{COMBINATIONS, Combination};
pub use self::faults::{Fault, Planned};
pub use self::mix::{MIXES, ends_groups};
pub use self::network::{NetworkPlan, Stall};
pub use self::optimizers::{ALPHA, MOMENTUM, MOMENTUM_TOTAL, OPTIMIZERS};
use crate::random_stream;

/// One simulated run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// All randomness follows from it.
    pub seed: u64,
    /// Parameter servers.
    pub servers: u32,
    /// Servers that hold each shard.
    pub replication: u32,
    /// The groups, in the order of their numbers.
    pub groups: Vec<GroupPlan>,
    /// When a gradient is applied.
    pub consistency: ConsistencySpec,
    /// What else there is between a gradient's arrival and its application.
    pub policies: Policies,
    /// Whether exchanges run behind the next step.
    pub overlap: bool,
    /// How a gradient is applied.
    pub optimizer: OptimizerSpec,
    /// The learning rate.
    pub rate: f64,
    /// What becomes of it; its own rate is 1.
    pub schedule: Schedule,
    /// Which tensors weight decay spares.
    pub decay_exempt: DecayExempt,
    /// How batches grow from [`BATCH`] on.
    pub batch_ramp: Vec<BatchStep>,
    /// Most steps of a group between two exchanges; how many it takes differs.
    pub local_steps: u32,
    /// How answers travel.
    pub down: Compression,
    /// The budget, in samples.
    pub samples: u64,
    /// Which ranks are slow, and when, on top of the paces of their groups.
    pub stragglers: Stragglers,
    /// What the network does to messages.
    pub network: NetworkPlan,
    /// What fails, and when.
    pub faults: Vec<Planned>,
    /// Whether there is a folder: for snapshots, and for what the coordinator must not forget.
    pub folder: bool,
    /// How long a holder that is silent is waited for.
    pub patience_ms: u64,
    /// Whether the run ends rather than go on without what was acknowledged.
    pub stops_on_loss: bool,
    /// Pause between snapshots; 0 takes only the first and the last.
    pub snapshot_ms: u64,
    /// Every so many clocks of a group have no finite gradient, on average; 0 is never.
    pub skip_one_in: u64,
    /// Whether values are vector clocks, and what groups are answered is recorded and judged.
    pub clocks: bool,
    /// Mean time between malformed frames, microseconds; 0 is never.
    pub malformed_every_us: u64,
    /// How long clock 0 waits for configured groups.
    pub start_grace_ms: u64,
    /// How long a group waits for ranks that it has lost.
    pub reform_grace_ms: u64,
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

/// A rule broken on purpose, to show that the checkers find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A gradient is dropped one delay too late.
    DropsTooLate,
    /// A stale gradient counts 1/(τ + 1).
    ScalesTooMuch,
    /// Gradients are applied as they are, though they should be compensated.
    CompensatesNothing,
    /// Momentum is lowered as for one group more.
    LowersTooMuch,
    /// Momentum is measured as if gradients had been computed on the next version.
    MeasuresTooLate,
    /// Copies are not told the momentum of an update.
    KeepsMomentumToItself,
    /// Copies are not told what the gradient of an update counts.
    KeepsWeightsToItself,
    /// Copies are not told what the norms of tensors make of a step.
    KeepsScalesToItself,
    /// The norm of a block's part of a gradient is taken for that of the whole tensor.
    TakesPartsForTensors,
    /// A copy that takes over does not know what the optimizer keeps beside the values.
    ForgetsMoments,
    /// A block does not wait for one group more than there are backups.
    OneBackupTooMany,
    /// With backup groups, a skip is taken for a gradient.
    CountsSkips,
    /// What comes too late for its clock is applied.
    AppliesLate,
    /// Blocks apply what has come without waiting for more.
    MergesTooSoon,
    /// Blocks wait for enough groups without end.
    WaitsForEver,
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
    /// Answers leave before copies have confirmed what they tell.
    AcksBeforeReplication,
    /// A copy that takes over, and a shard that is restored, do not know what was decided.
    ForgetsOnTakingOver,
    /// A group is formed again before the servers know that its former life is over.
    FormsWithoutFencing,
    /// A primary answers pulls and repeats without asking its copies.
    ServesWithoutAsking,
    /// A shard that was lost is created anew instead of restored.
    CreatesOverTrained,
    /// Who had everything of a shard whose primary is missed is told to forget it, but for the heir,
    /// before that one has said that it takes over.
    ForgetsCandidates,
    /// What a restored shard lacks is not told.
    TellsNoLoss,
    /// A copy follows the log of whatever record comes.
    FollowsAnyLog,
    /// What a restored shard lacks is told as twice as much.
    TellsLossTwice,
    /// An heir answers before it is written down that it is primary.
    AnswersAsHeir,
    /// A coordinator acts on what it has decided before that is written down.
    ActsBeforeWriting,
    /// A coordinator waits for a silent holder hardly longer than a lease.
    Impatient,
    /// Copies that confirm nothing are not reported.
    KeepsMuteCopies,
    /// What was answered last is not recorded.
    MarksTooLate,
    /// What was lost is counted when a shard is restored, and never again.
    CountsOnce,
    /// A shard is restored from what a listing shows, though it may be old.
    ReadsByListing,
    /// An order that says what has changed leaves out who has gone.
    ForgetsDepartures,
    /// An order that says what has changed leaves out groups that have formed again.
    ForgetsLives,
    /// A server follows what has changed, whatever view it goes on from.
    FollowsAnyBase,
}

/// Length of a lease, of ranks and of servers.
pub const LEASE_MS: u64 = 400;

/// How long a silent holder is waited for before its shard may be restored.
pub const PATIENCE_MS: u64 = 3 * LEASE_MS;

/// Samples per rank and step, at first.
pub const BATCH: u32 = 2;

impl Scenario {
    /// Two to four groups of one to three ranks on one to three servers, one of them much slower,
    /// under a network that does everything that it may. Nothing fails.
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
            replication: 1,
            samples: u64::from(ranks * BATCH) * clocks,
            groups,
            consistency,
            policies: Policies::default(),
            overlap: false,
            optimizer: OPTIMIZERS[0].0,
            rate: OPTIMIZERS[0].1,
            schedule: Schedule::constant(1.0),
            decay_exempt: DecayExempt::None,
            batch_ramp: Vec::new(),
            local_steps: 1,
            down: Compression::None,
            stragglers: Stragglers::none(seed, Vec::new()),
            network: NetworkPlan::random(&mut rng),
            faults: Vec::new(),
            folder: false,
            patience_ms: PATIENCE_MS,
            stops_on_loss: false,
            snapshot_ms: 0,
            skip_one_in: 12,
            clocks: false,
            malformed_every_us: 40_000,
            start_grace_ms: 2_000,
            reform_grace_ms: 300,
            sabotage: None,
        }
        .uneven()
        .drawn()
    }

    /// The same, every fourth time with batches that double once or twice, over as many exchanges as
    /// before, and every fourth time with groups that count all the same.
    fn uneven(mut self) -> Self {
        let mut rng = random_stream(self.seed, 11);
        if rng.random_bool(0.25) {
            let steps: u64 = rng.random_range(1..=2);
            let part = self.samples / (steps + 1);
            let (mut samples, mut times) = (part, 1u32);
            for _ in 0..steps {
                times *= 2;
                let batch = BATCH * times;
                self.batch_ramp.push(BatchStep { samples, batch });
                samples += part * u64::from(times);
            }
            self.samples = samples;
        }
        if rng.random_bool(0.25) {
            self.policies.weights = Weights::Groups;
        }
        self
    }

    /// The same with another consistency.
    pub fn with_consistency(mut self, consistency: ConsistencySpec) -> Self {
        self.consistency = consistency;
        self.fitting()
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
        self.fitting()
    }

    /// The same with updates that merge what comes about the same time.
    pub fn with_windows(mut self) -> Self {
        let mut rng = random_stream(self.seed, 6);
        self.policies.merge = Some(MergeSpec {
            min_groups: rng.random_range(1..=self.groups.len() as u32),
            grace_ms_max: rng.random_range(0..=20),
            wait_ms_max: rng.random_range(1..=50),
        });
        self.fitting()
    }

    /// The same with as many backup groups as the seed says, under `sync`.
    pub fn with_backups(mut self) -> Self {
        let most = self.groups.len() as u64 - 1;
        self.consistency = ConsistencySpec::Sync;
        self.policies.backup_groups = (1 + self.seed % most) as u32;
        self.fitting()
    }

    /// The same with a staleness policy. One that compensates knows no compressed answers.
    pub fn with_staleness(mut self, staleness: StalenessSpec) -> Self {
        self.policies.staleness = staleness;
        if staleness.capabilities().compensates() {
            self.down = Compression::None;
        }
        self.fitting()
    }

    /// The same with groups that take up to so many steps between two exchanges, other numbers of
    /// them each time; the budget is as many exchanges as before.
    pub fn with_local_steps(mut self, steps: u32) -> Self {
        self.local_steps = steps;
        self.samples = self.samples * u64::from(steps + 1) / 2;
        self
    }

    /// The same with elastic averaging, which neither `sync` nor compressed answers go with.
    pub fn with_elastic(mut self) -> Self {
        self.consistency = ConsistencySpec::Async;
        self.down = Compression::None;
        (self.optimizer, self.rate) = (OptimizerSpec::Elastic(Elastic {}), ALPHA);
        self.schedule = Schedule::constant(1.0);
        self
    }

    /// The same with stragglers as configurations name them, and nobody slow besides.
    pub fn with_profile(mut self, profile: Profile) -> Self {
        let step_us = self.groups.iter().map(|group| group.step_us).min();
        for group in &mut self.groups {
            group.step_us = step_us.expect("there are groups");
        }
        let sizes = self.groups.iter().map(|group| group.size).collect();
        self.stragglers = profile.stragglers(self.seed, sizes, self.samples);
        self
    }

    /// The same with a rule broken on purpose.
    pub fn with_sabotage(mut self, sabotage: Sabotage) -> Self {
        self.sabotage = Some(sabotage);
        self
    }
}
