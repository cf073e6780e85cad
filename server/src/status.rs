//! What the coordinator tells of a run: who holds its shards, and the status page.

use std::sync::Arc;

use tradewind_common::loss::Loss;
use tradewind_common::placement::Placement;
use tradewind_common::{Clock, Generation, RunId, ServerId, ShardId};
use tradewind_proto::holding::{Endpoint, Holding, placement_to_wire};
use tradewind_proto::refusal::Reason;
use tradewind_proto::v1;

use tradewind_core::answer::Refused;
use tradewind_core::coordinator::Coordinator;
use tradewind_core::event::Event;
use tradewind_core::fleet::ServerRow;
use tradewind_core::order::Server;
use tradewind_core::run::{GroupRow, Phase, RankRow};

/// A run as the status page shows it.
#[derive(Clone, Debug)]
pub struct RunStatus {
    /// The present generation.
    pub generation: Generation,
    /// Where the run stands.
    pub phase: Phase,
    /// Its groups.
    pub groups: Vec<GroupRow>,
    /// Where its blocks are.
    pub placed: Placed,
    /// The servers of the fleet.
    pub servers: Vec<ServerRow>,
    /// Samples of finished chunks that filled no batch.
    pub samples_unused: u64,
    /// The newest whole snapshot.
    pub snapshot: Option<u64>,
    /// What was lost by restoring.
    pub lost: Loss,
    /// Shards that nobody can answer for, and whom each waits for.
    pub waiting: Vec<(ShardId, Vec<String>)>,
    /// What happened lately, oldest first.
    pub events: Vec<Event>,
    /// All groups were asked to leave.
    pub draining: bool,
    /// Ranks of each group there may be.
    pub group_sizes: Vec<u32>,
}

/// Who holds the shards of a run, and where.
pub(crate) fn holding(core: &Coordinator, run: &RunId) -> Result<Holding, Refused> {
    let run = core.run(run)?;
    let endpoint = |(id, server): (ServerId, Server)| Endpoint {
        server: id,
        incarnation: server.incarnation,
        address: server.address,
    };
    Ok(Holding {
        generation: run.generation(),
        holders: run.holders().cloned().collect(),
        servers: core.fleet().endpoints().into_iter().map(endpoint).collect(),
    })
}

/// Where a run's blocks are.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Which shard each block belongs to.
    pub placement: Arc<Placement>,
    /// Who holds the shards.
    pub holding: Holding,
    /// As in the run's specification.
    pub bucket_bytes: Option<usize>,
}

impl Placed {
    /// For the wire.
    pub(crate) fn encode(&self) -> v1::Placement {
        placement_to_wire(&self.placement, &self.holding, self.bucket_bytes)
    }
}

/// Where a run's blocks are.
pub(crate) fn placed(core: &Coordinator, run: &RunId) -> Result<Placed, Refused> {
    let of = core.run(run)?;
    Ok(Placed {
        placement: of.placement().clone(),
        holding: holding(core, run)?,
        bucket_bytes: of.spec().bucket_bytes,
    })
}

/// The status page of a run.
pub(crate) fn status(core: &Coordinator, run: &RunId, now_ms: u64) -> Result<RunStatus, Refused> {
    let of = core.run(run)?;
    let shards = (0..of.holders().len() as u32).map(ShardId);
    let waits = shards.map(|shard| (shard, of.waits_for(shard, core.fleet())));
    let concerns = |event: &&Event| event.run.as_ref().is_none_or(|about| about == run);
    Ok(RunStatus {
        generation: of.generation(),
        phase: of.phase().clone(),
        groups: of.rows(now_ms),
        placed: placed(core, run)?,
        servers: core.fleet().rows(now_ms),
        samples_unused: of.samples_unused(),
        snapshot: of.newest_snapshot(),
        lost: of.lost(),
        waiting: waits.filter(|(_, whom)| !whom.is_empty()).collect(),
        events: core.recent_events().filter(concerns).cloned().collect(),
        draining: of.is_draining(),
        group_sizes: of.sizes().collect(),
    })
}

/// The status page, for the wire.
pub(crate) fn encode(status: RunStatus) -> v1::StatusReply {
    let clocks = status.groups.iter().map(|group| group.clock);
    let fastest = clocks.max().unwrap_or_default();
    let (failure, failure_reason) = match &status.phase {
        Phase::Failed(why) => (why.clone(), Reason::RunFailed.word()),
        Phase::Stopped(why) => (why.clone(), Reason::Lost.word()),
        Phase::Forming | Phase::Creating(..) | Phase::Restoring | Phase::Ready => {
            (String::new(), "")
        }
    };
    v1::StatusReply {
        generation: status.generation.0,
        phase: status.phase.word().into(),
        groups: status
            .groups
            .iter()
            .map(|row| group(row, fastest))
            .collect(),
        placement: Some(status.placed.encode()),
        samples_unused: status.samples_unused,
        servers: status.servers.into_iter().map(server).collect(),
        snapshot: status.snapshot,
        events: status.events.into_iter().map(event).collect(),
        lost_updates: status.lost.updates,
        lost_samples: status.lost.samples,
        waiting: status.waiting.into_iter().map(waiting).collect(),
        failure_reason: failure_reason.into(),
        failure,
        draining: status.draining,
        group_sizes: status.group_sizes,
        ..v1::StatusReply::default()
    }
}

/// The servers alone.
pub(crate) fn encode_servers(servers: Vec<ServerRow>) -> v1::StatusReply {
    v1::StatusReply {
        servers: servers.into_iter().map(server).collect(),
        ..v1::StatusReply::default()
    }
}

fn group(row: &GroupRow, fastest: Clock) -> v1::GroupStatus {
    let rank = |rank: &RankRow| v1::RankStatus {
        rank: rank.rank.0,
        life: rank.life,
        clock: rank.clock.0,
        lease_left_ms: rank.lease_left_ms,
    };
    v1::GroupStatus {
        group: row.group.0,
        size: row.size,
        incarnation: row.incarnation.0,
        state: row.word().into(),
        clock: row.clock.0,
        lag: fastest.0 - row.clock.0,
        lease_left_ms: row.lease_left_ms,
        ranks: row.ranks.iter().map(rank).collect(),
        draining: row.draining,
    }
}

fn waiting((shard, waits_for): (ShardId, Vec<String>)) -> v1::WaitingShard {
    v1::WaitingShard {
        shard: shard.0,
        waits_for,
    }
}

fn server(row: ServerRow) -> v1::ServerStatus {
    v1::ServerStatus {
        server: row.id.0,
        incarnation: row.server.incarnation.0,
        address: row.server.address,
        alive: row.alive,
        lease_left_ms: row.lease_left_ms,
    }
}

fn event(event: Event) -> v1::Event {
    v1::Event {
        number: event.number,
        at_ms: event.at_ms,
        kind: event.kind.word().into(),
        text: event.text,
        server: event.server.map(|server| server.0),
        group: event.group.map(|group| group.0),
        rank: event.rank.map(|rank| rank.0),
        shard: event.shard.map(|shard| shard.0),
        life: event.life,
    }
}
