//! The shards of many runs that this server holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use dashmap::DashMap;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{
    BlockId, Compression, Generation, Layout, RunId, ServerId, ShardId, TensorKind,
};

use crate::shard_task::{Message, ShardHandle};
use crate::surroundings::Surroundings;
use crate::telemetry;
use tradewind_core::mark::Shortfall;
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::Shard;
use tradewind_core::view::{Behind, OrderedView, View};

/// A run as streams need to know it.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// The run's specification.
    pub spec: Arc<RunSpec>,
    /// The layout that follows from it.
    pub layout: Arc<Layout>,
    /// Which shard each block belongs to.
    pub placement: Arc<Placement>,
}

impl RunEntry {
    /// Number of values of a block, and how its gradients may travel; no values where there is no
    /// such block.
    pub fn block(&self, id: BlockId) -> (usize, Compression) {
        match self.layout.block(id) {
            Some(block) if block.kind == TensorKind::Parameter => {
                (block.elements.len(), self.spec.up)
            }
            Some(block) => (block.elements.len(), Compression::None),
            // The shard refuses it, not its form.
            None => (0, self.spec.up),
        }
    }
}

/// Runs and shards of this server. It holds at most
/// [`RUNS_MAX`](tradewind_core::answer::RUNS_MAX) runs, because the coordinator creates them.
#[derive(Debug)]
pub struct Registry {
    surroundings: Surroundings,
    runs: DashMap<RunId, RunEntry>,
    shards: DashMap<(RunId, ShardId), Held>,
    /// Membership as the orders that were obeyed last have it.
    views: DashMap<RunId, View>,
}

/// A shard that is held here, and where its values come from.
#[derive(Clone, Debug)]
pub struct Held {
    /// The way to its task.
    pub handle: ShardHandle,
    /// From which snapshot.
    pub restored: Option<u64>,
    /// Snapshots that were passed over, and what was wrong with each.
    pub damaged: Vec<String>,
    /// For which lineage, and what that lacks of what had been acknowledged.
    pub shortfall: Arc<Shortfall>,
    /// What leaves it is recorded where it survives this process.
    pub marked: bool,
    /// The generation of membership that it has followed.
    pub follows: Generation,
}

impl Registry {
    /// An empty registry.
    pub fn new(surroundings: Surroundings) -> Self {
        Self {
            surroundings,
            runs: DashMap::new(),
            shards: DashMap::new(),
            views: DashMap::new(),
        }
    }

    /// What the shards share.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// Which server this is.
    pub fn server(&self) -> ServerId {
        self.surroundings.server
    }

    /// A run of which shards are held here.
    pub fn find(&self, run: &RunId) -> Result<RunEntry, Refusal> {
        let found = self.runs.get(run).map(|entry| entry.clone());
        found.ok_or_else(|| Refusal::UnknownRun(run.clone()))
    }

    /// A shard that is held here.
    pub fn shard(&self, run: &RunId, shard: ShardId) -> Result<ShardHandle, Refusal> {
        let found = self.shards.get(&(run.clone(), shard));
        match found {
            Some(held) => Ok(held.handle.clone()),
            None if self.runs.contains_key(run) => Err(Refusal::NotPrimary(shard)),
            None => Err(Refusal::UnknownRun(run.clone())),
        }
    }

    /// The shards of a run that are held here.
    pub fn shards(&self, run: &RunId) -> Vec<(ShardId, ShardHandle)> {
        let of_run = self.shards.iter().filter(|held| held.key().0 == *run);
        let mut all: Vec<_> = of_run
            .map(|held| (held.key().1, held.handle.clone()))
            .collect();
        all.sort_by_key(|(shard, _)| *shard);
        all
    }

    /// Follows what an order says of membership; whether that is what is followed now, and not what an order says that
    /// was obeyed before.
    ///
    /// # Errors
    /// If it says what has changed since a view that was not followed here.
    pub(crate) fn follow(&self, run: &RunId, told: &OrderedView) -> Result<bool, Behind> {
        self.views.entry(run.clone()).or_default().follow(told)
    }

    /// All of what was followed of a run's membership.
    pub(crate) fn view(&self, run: &RunId) -> View {
        let followed = self.views.get(run);
        followed.map(|view| view.clone()).unwrap_or_default()
    }

    /// A run of which this server is told.
    pub(crate) fn learn(&self, run: &RunId, entry: RunEntry) {
        self.runs.entry(run.clone()).or_insert(entry);
        telemetry::runs(self.runs.len());
    }

    /// What is known of a shard; it begins empty.
    pub(crate) fn hold(&self, run: &RunId, shard: ShardId, entry: &RunEntry) -> Held {
        let begin = || {
            let core = Shard::new(
                self.server(),
                shard,
                entry.spec.clone(),
                &entry.layout,
                entry.placement.blocks(shard),
            )
            .with_milestones(entry.spec.milestone_samples);
            Held {
                handle: ShardHandle::spawn(core, (run.clone(), shard), self.surroundings.clone()),
                restored: None,
                damaged: Vec::new(),
                shortfall: Arc::default(),
                marked: false,
                follows: Generation(0),
            }
        };
        let key = (run.clone(), shard);
        self.shards.entry(key).or_insert_with(begin).clone()
    }

    /// Notes where a shard's values come from.
    pub(crate) fn note(&self, run: &RunId, shard: ShardId, held: Held) {
        self.shards.insert((run.clone(), shard), held);
    }

    /// Forgets all runs but these.
    pub(crate) async fn keep_only(&self, runs: &BTreeSet<RunId>) {
        self.views.retain(|run, _| runs.contains(run));
        self.runs.retain(|run, _| runs.contains(run));
        let gone = |held: &(RunId, ShardId)| !runs.contains(&held.0);
        let held: Vec<_> = self.shards.iter().map(|held| held.key().clone()).collect();
        for (run, shard) in held.into_iter().filter(gone) {
            if let Some(handle) = self.drop_shard(&run, shard) {
                tracing::info!(%run, %shard, "the run is removed");
                let _ = handle.send(Message::Close).await;
            }
        }
        telemetry::runs(self.runs.len());
    }

    /// Holds a shard no longer.
    pub(crate) fn drop_shard(&self, run: &RunId, shard: ShardId) -> Option<ShardHandle> {
        let removed = self.shards.remove(&(run.clone(), shard));
        removed.map(|(_, held)| held.handle)
    }
}
