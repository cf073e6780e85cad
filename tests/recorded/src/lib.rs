//! Real servers, and groups that speak the wire to them and write down what they asked and what they
//! were answered, as a history that [`tradewind_history::check`] judges.
//!
//! Groups push −1 at their own element of every block, under SGD at rate 1 from zeros: values are
//! vector clocks. They are clients as anybody could write one from the `.proto`; nothing of the
//! worker is in them.

mod group;
mod link;
mod network;
mod recorder;
mod servers;
mod wait;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tradewind_common::spec::{ConsistencySpec, FaultSpec, OnLoss, RunSpec};
use tradewind_common::{TensorKind, TensorSpec};
use tradewind_history::{History, Loss, Policy, Run};
use tradewind_proto::v1;

use network::Network;
use recorder::Recorder;
pub use servers::{Servers, Start};

/// The name of the run.
const RUN: &str = "recorded";

/// Samples of every contribution.
const SAMPLES: u32 = 4;

/// Of ranks and servers: short, but longer than a busy machine lets a beat wait.
const LEASE_MS: u64 = 3_000;

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All that is random here follows from it; what processes make of it does not.
    pub seed: u64,
    /// Groups of one rank.
    pub groups: u32,
    /// Blocks, of one value for each group.
    pub blocks: u32,
    /// Servers.
    pub servers: u32,
    /// Servers that hold each shard.
    pub replication: u32,
    /// `async`, or the staleness bound.
    pub bound: Option<u64>,
    /// Pause between two snapshots.
    pub snapshot_ms: u64,
    /// How long a server that is silent is waited for, milliseconds.
    pub patience_ms: u64,
    /// Descriptors that each server may have; `None`: as many as the system lets it.
    pub descriptors: Option<u64>,
}

/// A run that is under way.
pub struct Recorded {
    runtime: Runtime,
    plan: Plan,
    /// The servers; they may be hurt at any time.
    pub servers: Servers,
    shared: Arc<Shared>,
    groups: Vec<(u64, JoinHandle<()>)>,
    observers: Vec<JoinHandle<()>>,
    rng: ChaCha8Rng,
}

/// What all of it share.
struct Shared {
    spec: v1::RunSpec,
    /// Values of each block.
    lengths: Vec<usize>,
    recorder: Recorder,
    network: Network,
    /// The newest that anybody was told.
    placement: watch::Sender<v1::Placement>,
    stop: AtomicBool,
    /// Exchanges of each group that are complete, over all its lives.
    exchanges: Vec<AtomicU64>,
}

impl Plan {
    /// Plain SGD at rate 1.
    fn spec(self) -> RunSpec {
        let (groups, blocks) = (u64::from(self.groups), u64::from(self.blocks));
        let clocks = TensorSpec {
            name: "clocks".into(),
            shape: vec![groups * blocks],
            kind: TensorKind::Parameter,
        };
        let sizes = vec![1; self.groups as usize];
        RunSpec {
            seed: self.seed,
            consistency: match self.bound {
                None => ConsistencySpec::Async,
                Some(staleness_bound) => ConsistencySpec::Bounded { staleness_bound },
            },
            samples: 1 << 40,
            epoch_samples: 1 << 30,
            batch: SAMPLES,
            chunk_samples: 1 << 10,
            lease_ms: LEASE_MS,
            start_grace_ms: 0,
            faults: FaultSpec {
                replication: self.replication,
                reform_grace_ms: 0,
                snapshot_ms: self.snapshot_ms,
                patience_ms: self.patience_ms,
                on_loss: OnLoss::Continue,
                ..FaultSpec::default()
            },
            ..RunSpec::plain(sizes, vec![clocks], 4 * self.groups as usize)
        }
    }
}

impl Recorded {
    /// Starts servers and groups in a folder, and somebody who reads.
    ///
    /// # Panics
    /// If they do not start.
    pub fn start(plan: Plan, folder: &Path) -> Self {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let spec = plan.spec();
        let layout = spec.check().expect("a specification that can be followed");
        let lengths = layout.blocks.iter().map(|block| block.elements.len());
        let lengths: Vec<usize> = lengths.collect();
        let all = |length: &usize| *length == plan.groups as usize;
        assert!(
            lengths.iter().all(all),
            "a value for each group: {lengths:?}"
        );
        let servers = Servers::start((plan.servers, plan.descriptors), LEASE_MS, folder);
        let shared = Arc::new(Shared {
            spec: (&spec).into(),
            lengths,
            recorder: Recorder::start(),
            network: Network::new(folder),
            placement: watch::Sender::default(),
            stop: AtomicBool::new(false),
            exchanges: (0..plan.groups).map(|_| AtomicU64::new(0)).collect(),
        });
        let mut recorded = Self {
            rng: ChaCha8Rng::seed_from_u64(plan.seed),
            runtime,
            plan,
            servers,
            shared,
            groups: Vec::new(),
            observers: Vec::new(),
        };
        for group in 0..plan.groups {
            let task = recorded.group(group, 1);
            recorded.groups.push((1, task));
        }
        for number in 0..2 {
            let seed = recorded.rng.random();
            let reads = link::observe(recorded.shared.clone(), number, seed);
            recorded.observers.push(recorded.runtime.spawn(reads));
        }
        recorded
    }

    fn group(&mut self, group: u32, life: u64) -> JoinHandle<()> {
        let seed = self.rng.random();
        let shared = self.shared.clone();
        self.runtime
            .spawn(group::lives(shared, (group, life), seed))
    }

    /// Randomness of the run's seed.
    pub fn rng(&mut self) -> &mut ChaCha8Rng {
        &mut self.rng
    }

    /// The process of a group dies, and another one is there at once.
    pub fn restart_group(&mut self, group: u32) {
        let (life, task) = &self.groups[group as usize];
        task.abort();
        let life = life + 1;
        let task = self.group(group, life);
        self.groups[group as usize] = (life, task);
    }

    /// host:port of every server, as the groups were told last.
    pub fn addresses(&self) -> Vec<String> {
        let placement = self.shared.placement.borrow();
        let holding = placement.holding.iter();
        let servers = holding.flat_map(|holding| &holding.servers);
        servers.map(|server| server.address.clone()).collect()
    }

    /// Does something with tasks of its own.
    pub fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Exchanges that a group has made.
    pub fn exchanges(&self, group: u32) -> u64 {
        self.shared.exchanges[group as usize].load(Ordering::Relaxed)
    }

    /// Waits until every group has made so many more.
    ///
    /// # Panics
    /// If they do not.
    pub fn goes_on(&self, exchanges: u64) {
        let all = || (0..self.plan.groups).map(|group| self.exchanges(group));
        let want: Vec<u64> = all().map(|now| now + exchanges).collect();
        wait::wait_for("every group to go on", || {
            let reached = all().zip(&want).all(|(now, want)| now >= *want);
            reached.then_some(())
        });
    }

    /// Waits while the run goes on.
    pub fn pause(&self, pause: Duration) {
        std::thread::sleep(pause);
    }

    /// Lets the groups finish their exchanges, reads every block once more, and returns what was
    /// recorded, with the losses that the fleet has told.
    ///
    /// # Panics
    /// If they do not finish, or the fleet's events cannot be read.
    pub fn end(mut self) -> History {
        self.shared.stop.store(true, Ordering::Relaxed);
        let ending = self.groups.drain(..).map(|(_, task)| task);
        let ending: Vec<JoinHandle<()>> = ending.chain(self.observers.drain(..)).collect();
        let shared = self.shared.clone();
        self.runtime.block_on(async {
            for task in ending {
                let ended = tokio::time::timeout(Duration::from_secs(120), task).await;
                ended
                    .expect("a group finishes")
                    .expect("and does not panic");
            }
            link::read_all(&shared).await;
        });
        let shards = self.shared.placement.borrow().shards.clone();
        let mut history = History::new(Run {
            groups: self.plan.groups,
            shards,
            policy: self.plan.bound.map_or(Policy::Async, Policy::Bounded),
            merged: false,
            replication: self.plan.replication,
            samples: SAMPLES.into(),
        });
        self.shared.recorder.fill(&mut history);
        history.losses = losses(self.servers.folder());
        history
    }
}

/// What the fleet has told as lost: each event adds to what was told of its lineage.
fn losses(folder: &Path) -> Vec<Loss> {
    let text = std::fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    let event = |line: &str| serde_json::from_str::<Value>(line).expect("a line of events.jsonl");
    let loss = |event: Value| match Loss::of_event(&event) {
        Ok(loss) => loss,
        Err(vague) => panic!("{vague}"),
    };
    text.lines().map(event).filter_map(loss).collect()
}
