//! What a group says and hears.

use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Layout, Rank, RunId, ServerId};
use tradewind_server::core::run::Caller;
use tradewind_server::core::shard::Push;

use crate::sim::values::Life;

/// What a rank asks the coordinator.
#[derive(Clone, Debug)]
pub enum Call {
    /// To join, as this process.
    Join {
        /// Names the process.
        process: u64,
    },
    /// To push; whether its slice has been created.
    AwaitReady(Caller, bool),
    /// To keep its lease.
    Heartbeat(Caller, Clock),
    /// To be let go.
    Leave(Caller),
}

/// The number of calls whose answer matters only if it is a refusal.
pub const UNTRACKED: u64 = 0;

/// What a group wants done.
#[derive(Clone, Debug)]
pub enum Out {
    /// Send a frame on a stream.
    Frame(Rank, ServerId, u64, Push),
    /// Make a call of this number.
    Call(Rank, u64, Call),
    /// Wake the group later.
    Wake(u64, Wake),
    /// Wake it with [`Wake::Computed`] when a step has been computed.
    Compute,
    /// All ranks have the answers of this clock.
    Ticked(Clock),
    /// A rank of this life has taken the answer of a version in, and has these values of the block.
    Took(Life, BlockId, u64, Vec<f32>),
    /// The coordinator took it for dead: its processes start again.
    Restart,
    /// It is done.
    Left,
    /// A refusal that no rule foresees, or a session that does not know what it does.
    Unexpected(String),
}

/// Why a group wakes.
#[derive(Clone, Copy, Debug)]
pub enum Wake {
    /// A call may have to be made again.
    Retry(Rank, u64),
    /// A heartbeat is due.
    Heartbeat(Rank),
    /// The gradients are there.
    Computed,
    /// A message on a stream was lost.
    Broken(Rank, ServerId, u64),
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
    /// Where they are.
    pub placement: Placement,
    /// See [`crate::sim::scenario::Scenario::overlap`].
    pub overlap: bool,
    /// See [`crate::sim::scenario::Scenario::skip_one_in`].
    pub skip_one_in: u64,
    /// Whether answers on streams that were given up are read.
    pub late_answers: bool,
}
