//! What a shard's task is asked and told, and what it tells.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot};
use tradewind_common::holders::Holders;
use tradewind_common::{Clock, Generation, GroupId, ServerId};

use super::{Copy, Recorder};
use tradewind_core::ReplyTo;
use tradewind_core::log::{Confirm, Record};
use tradewind_core::order::Capture;
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{Counters, Push, Reply};
use tradewind_core::state::BlockState;
use tradewind_core::view::{Acknowledge, Behind, OrderedView};

/// Where the answers to one stream's frames go. Unbounded, because a stream sends no more frames
/// than it has permits, and gets a permit back with each answer (`rpc/exchange.rs`). Boxed, because a channel keeps room
/// for 32 of them, for each stream.
pub type Answers = mpsc::UnboundedSender<Box<Result<Reply, Refusal>>>;

/// What a shard is asked.
pub enum Message {
    /// A stream begins; its answers go there.
    Open(ReplyTo, Answers),
    /// A frame of a stream, and the bytes that its values took on the way.
    Push(Push, usize, ReplyTo),
    /// A frame of a stream that is no push.
    Malformed(Refusal, ReplyTo),
    /// Membership and holders to follow.
    Order(Box<Ordered>, oneshot::Sender<Result<Acknowledge, Behind>>),
    /// A record of the primary's log.
    Record(Box<Record>, oneshot::Sender<Result<Confirm, Refusal>>),
    /// The way to a copy is there; its records go there.
    Linked(ServerId, Generation, mpsc::UnboundedSender<Record>),
    /// A copy has applied records.
    Confirm(Confirm),
    /// Counters and versions, and with `true` the digest of the values.
    Status(bool, oneshot::Sender<ShardStatus>),
    /// The shard is not held here any more.
    Close,
}

/// What a shard has to follow.
pub struct Ordered {
    /// Membership.
    pub view: OrderedView,
    /// Who holds the shard.
    pub holders: Holders,
    /// Where its copies are, if it is the primary.
    pub copies: Vec<Copy>,
    /// Where it records from now on what leaves it.
    pub recorder: Option<Recorder>,
    /// Values to take over first, of this lineage.
    pub restored: Option<(Vec<BlockState>, Generation)>,
    /// Parts of snapshots to write.
    pub captures: Vec<Capture>,
}

/// What a shard tells about itself.
#[derive(Clone, Debug)]
pub struct ShardStatus {
    /// The generation it follows.
    pub generation: u64,
    /// Whether it answers for the shard.
    pub primary: bool,
    /// Bytes of parameters.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The lowest and the highest version.
    pub versions: (u64, u64),
    /// The versions of all blocks, added.
    pub version_sum: u64,
    /// When the values were last restored.
    pub lineage: Generation,
    /// The lowest clock, over all blocks, that was decided of each group; of groups of which
    /// something was decided at every block.
    pub decided: BTreeMap<GroupId, Clock>,
    /// What it counted.
    pub counters: Counters,
    /// BLAKE3 over (block, version, values).
    pub digest: Option<[u8; 32]>,
    /// Records that copies have not confirmed.
    pub unconfirmed: u64,
    /// What its exchanges moved.
    pub moved: Moved,
    /// The explicit momentum of the last update, where that is not the optimizer's own.
    pub momentum: Option<f64>,
}

/// Bytes of values, as they travelled, since the shard is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// That contributions brought.
    pub pushed: u64,
    /// That answers to them carried.
    pub pulled: u64,
}

impl Moved {
    /// Both together.
    pub(super) fn bytes(self) -> u64 {
        self.pushed + self.pulled
    }
}
