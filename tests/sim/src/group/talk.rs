//! What a rank says and hears.

use std::sync::Arc;

use tradewind_client::core::session::Summary;
use tradewind_common::placement::Placement;
use tradewind_common::schedule::Seen;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Generation, Incarnation, Layout, RunId, ServerId, ShardId};
use tradewind_core::answer::Refused;
use tradewind_core::refusal::Refusal;
use tradewind_core::run::Caller;
use tradewind_core::shard::Push;

use crate::values::{Brought, Life};

/// What a rank asks the coordinator.
#[derive(Clone, Debug)]
pub enum Call {
    /// To join, as this process.
    Join {
        /// Names the process.
        life: u64,
    },
    /// To push; whether its slice has been created.
    AwaitReady(Caller, bool),
    /// To keep its lease.
    Heartbeat(Caller, Clock),
    /// To be let go.
    Leave(Caller),
}

impl Call {
    /// In which life of its group the rank calls; 0 before it has joined one.
    pub fn incarnation(&self) -> Incarnation {
        match self {
            Self::Join { .. } => Incarnation(0),
            Self::AwaitReady(caller, _) | Self::Heartbeat(caller, _) | Self::Leave(caller) => {
                caller.incarnation
            }
        }
    }
}

/// The number of calls whose answer matters only if it is a refusal.
pub const UNTRACKED: u64 = 0;

/// Who answers for each shard, as ranks are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Orders directories.
    pub generation: Generation,
    /// By shard.
    pub primaries: Vec<Option<Primary>>,
}

/// Who answers for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Primary {
    /// Which server.
    pub server: ServerId,
    /// Since when.
    pub since: Generation,
}

impl Directory {
    /// Who answers for a shard; `None` while nobody does.
    pub fn primary(&self, shard: ShardId) -> Option<Primary> {
        *self.primaries.get(shard.0 as usize)?
    }
}

/// What the ranks of a group do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meeting {
    /// They average a gradient.
    Reduce,
    /// They gather the slices of an exchange.
    Gather,
}

/// What a gathering came to: the same for all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// What was applied, over the blocks of all ranks.
    pub seen: Seen,
    /// Whether any block said stop.
    pub stop: bool,
    /// Whether any rank was asked to leave.
    pub leave: bool,
    /// The highest clock that any block makes next, where groups may be left behind.
    pub next: Clock,
}

impl Outcome {
    /// With another rank's.
    pub fn with(self, summary: Option<&Summary>) -> Self {
        let Some(summary) = summary else { return self };
        Self {
            seen: self.seen.latest(summary.seen()),
            stop: self.stop || summary.stop,
            next: self.next.max(summary.next),
            ..self
        }
    }
}

/// What a rank wants done.
#[derive(Clone, Debug)]
pub enum Out {
    /// Send a frame on a stream.
    Frame(ServerId, ShardId, u64, Push),
    /// Make a call of this number.
    Call(u64, Call),
    /// Wake the rank later.
    Wake(u64, Wake),
    /// Compute a step, then meet the others.
    Compute,
    /// Meet the others, having exchanged this.
    Meet(Meeting, Option<Summary>),
    /// This life of the group is over for it.
    Abandon(Incarnation),
    /// It has taken the answer of a version in, and has these values of the block.
    Took(Life, BlockId, (Generation, u64), Vec<f32>),
    /// The process ends and is started again.
    Exit,
    /// It is done, or was asked to leave.
    Left(bool),
    /// The run has failed.
    Failed(String),
    /// A refusal that no rule foresees, or a session that does not know what it does.
    Unexpected(String),
}

/// Why a rank wakes.
#[derive(Clone, Copy, Debug)]
pub enum Wake {
    /// A call may have to be made again.
    Retry(u64),
    /// A heartbeat is due, in this life of the group.
    Heartbeat(Incarnation),
    /// The step has been computed, in this life of the group.
    Computed(Incarnation),
    /// All have met, in this life of the group, for the given time.
    Met(Incarnation, Meeting, Outcome),
    /// A peer is not in this life of the group any more.
    Deserted(Incarnation),
    /// A message on a stream was lost, or the stream was refused for a while.
    Broken(ShardId, u64),
    /// Connections to a server broke.
    ServerGone(ServerId),
    /// Its group is asked to leave, in this life of it.
    Asked(Incarnation),
    /// It has waited for its peers for too long in this life of the group.
    Stuck(Incarnation),
}

/// What is the same for all groups of a run.
#[derive(Clone, Debug)]
pub struct Common {
    /// The run.
    pub run: RunId,
    /// Its specification.
    pub spec: RunSpec,
    /// Its blocks.
    pub layout: Layout,
    /// Which shard each belongs to.
    pub placement: Arc<Placement>,
    /// See [`crate::scenario::Scenario::overlap`].
    pub overlap: bool,
    /// What groups bring.
    pub brought: Brought,
    /// Whether answers on streams that were given up are read.
    pub late_answers: bool,
}

/// Whether a call that is refused so is made again.
pub(super) fn waits(refused: &Refused) -> bool {
    matches!(
        refused,
        Refused::ServersMissing { .. } | Refused::Replaced { .. }
    )
}

/// Whether a group that is refused so has to start again.
pub(super) fn fenced(refused: &Refused) -> bool {
    matches!(
        refused,
        Refused::Refusal(Refusal::NotLive(_) | Refusal::StaleIncarnation { .. })
    )
}
