//! The log of a shard: what its primary passes on to its copies, in order.

use std::sync::Arc;

use tradewind_common::{BlockId, Generation, GroupId, Incarnation, ServerId};

use super::decided::Decided;
use super::state::BlockState;

/// One entry of a log, as one copy is sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When the sender became primary: names the log.
    pub log: Generation,
    /// When the copy was added.
    pub fill: Generation,
    /// Number of the entry that this copy was sent before; 0 before the first.
    pub previous: u64,
    /// Number of this one in the log, from 1.
    pub seq: u64,
    /// What happened.
    pub entry: LogEntry,
}

/// What happened to a shard.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEntry {
    /// Nothing; a copy confirms that it is still there, and still a copy of this log.
    Probe,
    /// A block as it is: it was created, or the copy is being filled.
    State(BlockState),
    /// Contributions to a block were decided.
    Update(Update),
}

/// What was decided of a block at once, with every number that the primary took, so that a copy
/// computes the same bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Which block.
    pub block: BlockId,
    /// Of whom.
    pub decided: Vec<(GroupId, Incarnation, Decided)>,
    /// What was applied; `None` if all were skipped or dropped.
    pub applied: Option<Applied>,
}

/// One update of a block's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// Learning rate.
    pub rate: f64,
    /// Momentum, where it is not the optimizer's own.
    pub momentum: Option<f64>,
    /// What the step of each piece of the block is multiplied by; none: by 1.
    pub scales: Vec<f32>,
    /// Times which the gradient counts; of buffers the part of the change that is added.
    pub weight: f32,
    /// Samples that are in it.
    pub samples: u64,
    /// The merged gradient; of buffers the change, from the values before it.
    pub gradient: Arc<Vec<f32>>,
}

/// A copy has applied its records up to `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// Who says it.
    pub copy: ServerId,
    /// Of which log.
    pub log: Generation,
    /// Since when it is a copy.
    pub fill: Generation,
    /// Up to where.
    pub seq: u64,
}
