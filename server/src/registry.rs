//! The shards of many runs on this server.

use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::mpsc;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Compression, Layout, RunId, ServerId, TensorKind};

use crate::clock::Origin;
use crate::core::coordinator::Order;
use crate::core::refusal::Refusal;
use crate::core::shard::Shard;
use crate::core::view::Acknowledge;
use crate::shard_task::ShardHandle;
use crate::telemetry;

/// A shard as the shell finds it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The way to its task.
    pub handle: ShardHandle,
    /// The run's specification.
    pub spec: Arc<RunSpec>,
    /// The layout that follows from it.
    pub layout: Arc<Layout>,
}

impl Entry {
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

/// Run → shard. The only shared table of the server; it holds at most
/// [`RUNS_MAX`](crate::core::answer::RUNS_MAX) entries, because the coordinator creates them.
#[derive(Debug)]
pub struct Registry {
    server: ServerId,
    origin: Origin,
    complete: mpsc::Sender<(RunId, Acknowledge)>,
    shards: DashMap<RunId, Entry>,
}

impl Registry {
    /// An empty registry; `complete` is told when a shard has all its values.
    pub fn new(
        server: ServerId,
        origin: Origin,
        complete: mpsc::Sender<(RunId, Acknowledge)>,
    ) -> Self {
        Self {
            server,
            origin,
            complete,
            shards: DashMap::new(),
        }
    }

    /// Which server this is.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// The shard of a run.
    pub fn find(&self, run: &RunId) -> Result<Entry, Refusal> {
        let found = self.shards.get(run).map(|entry| entry.clone());
        found.ok_or_else(|| Refusal::UnknownRun(run.clone()))
    }

    /// The shard of an order's run, created at the first order.
    pub fn find_or_create(&self, order: &Order, layout: Arc<Layout>) -> ShardHandle {
        let create = || {
            let shard = Shard::new(
                order.spec.clone(),
                &layout,
                order.placement.shard(self.server),
            );
            let run = order.run.clone();
            let complete = self.complete.clone();
            let handle = ShardHandle::spawn(shard, run, self.server, self.origin, complete);
            Entry {
                handle,
                spec: order.spec.clone(),
                layout,
            }
        };
        let handle = self
            .shards
            .entry(order.run.clone())
            .or_insert_with(create)
            .handle
            .clone();
        telemetry::runs(self.shards.len());
        handle
    }
}
