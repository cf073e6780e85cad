//! What goes into a shard and comes out of it.

use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, ServerId};

use crate::ReplyTo;
use crate::askers::{Fresh, Wants};
use crate::block::Contribution;
use crate::decided::Decided;
use crate::log::Record;
use crate::order::NotCaptured;
use crate::refusal::Refusal;
use crate::state::BlockState;
use crate::view::Acknowledge;

/// One frame of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// Who speaks; a bare pull may come from nobody.
    pub group: GroupId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The group's clock; 0 for pulls and creations.
    pub clock: Clock,
    /// What it is about.
    pub block: BlockId,
    /// What the answer shall carry.
    pub wants: Wants,
    /// What is asked for.
    pub action: Action,
}

/// What a frame asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Decide the group's gradient, or its skip, and answer with the fresh values.
    Contribute(Contribution),
    /// Only the current values.
    Pull,
    /// Set the initial values.
    Create(Vec<f32>),
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A contribution was decided; `true` if it had been before.
    Decided(Decided, bool),
    /// To a pull.
    Read,
    /// To a creation.
    Created,
}

/// What goes back for one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The frame's block.
    pub block: BlockId,
    /// The frame's clock.
    pub clock: Clock,
    /// The clock that the block makes next; 0 where every group has its own.
    pub next: Clock,
    /// Which kind.
    pub answer: Answer,
    /// Version of the values.
    pub version: u64,
    /// Exchanges by which the group was behind the fastest when the block was decided.
    pub lag: u64,
    /// How long the policy held the block back, microseconds.
    pub waited_us: u64,
    /// Samples applied to the block.
    pub samples_applied: u64,
    /// The budget is reached.
    pub stop: bool,
    /// When the values were last restored: versions of another lineage mean nothing.
    pub lineage: Generation,
    /// Number of values of the block.
    pub length: usize,
    /// What was asked for of the current values.
    pub fresh: Fresh,
}

/// What a shard wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Answer a frame.
    Reply {
        /// Whom.
        to: ReplyTo,
        /// With what.
        result: Result<Reply, Refusal>,
    },
    /// Tell the coordinator: every block has a value now, or a copy has everything.
    Report(Acknowledge),
    /// Pass a record on. It is dropped while there is no way to the copy, and comes out again when
    /// there is one.
    Record {
        /// The copy.
        to: ServerId,
        /// For its log.
        record: Record,
    },
    /// Write the shard's part of a snapshot, or report why there is none.
    Captured {
        /// Of which snapshot.
        number: u64,
        /// The blocks in flat order.
        result: Result<Vec<BlockState>, NotCaptured>,
    },
    /// Save the blocks for an evaluation.
    Milestone {
        /// Each is as after the first update with which it had so many applied samples.
        samples: u64,
        /// The blocks in flat order, without what the optimizer keeps.
        states: Vec<BlockState>,
    },
}
