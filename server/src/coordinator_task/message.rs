//! What the coordinator is asked.

use tokio::sync::oneshot;
use tradewind_common::data::Chunk;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Generation, GroupId, Incarnation, RunId, ServerId, ShardId};
use tradewind_proto::holding::Holding;

use super::{Outbox, Stream};
use crate::status::{Placed, RunStatus};
use tradewind_core::answer::{Answer, Refused};
use tradewind_core::fleet::ServerRow;
use tradewind_core::order::{NotCaptured, Server, ShardFile, ShardReport};
use tradewind_core::revoked::RevokedIdentities;
use tradewind_core::run::{Beat, Beaten, Caller, Join};
use tradewind_core::saved::Saved;

pub(super) type Reply<T> = oneshot::Sender<Result<T, Refused>>;

/// What the coordinator is asked.
pub enum Message {
    /// A server registers; its orders go there. Answered with the number of this bond.
    Register(ServerId, Server, Outbox, Reply<u64>),
    /// A server is alive.
    ServerBeat(ServerId, Incarnation, Reply<()>),
    /// The bond of this number with a server broke.
    ServerLost(ServerId, Incarnation, u64),
    /// What became of a shard on a server.
    Report(ServerId, RunId, Box<ShardReport>, Reply<()>),
    /// Which view of a run a server has followed; `None`: none from which the last order could go on.
    Followed(ServerId, RunId, Option<Generation>, Reply<()>),
    /// A shard's part of a snapshot, by number.
    Captured(
        ServerId,
        (RunId, ShardId, u64),
        Result<ShardFile, NotCaptured>,
        Reply<()>,
    ),
    /// The manifest of a snapshot has been written, or could not be.
    Written(RunId, u64, Result<(), String>),
    /// A rank joins.
    Join(RunId, Box<RunSpec>, Join, Reply<Answer>),
    /// A rank asks to push; whether it has created its slice.
    AwaitReady(RunId, Caller, bool, Reply<Answer>),
    /// A rank is alive, and says so on this stream.
    Heartbeat(RunId, Caller, (Stream, Beat), Reply<Beaten>),
    /// Whether a rank's incarnation of its group is still the one.
    Check(RunId, Caller, Reply<Generation>),
    /// The stream of this number of a rank's heartbeats has ended.
    RankLost(RunId, Caller, u64),
    /// Who holds the shards of a run.
    Holding(RunId, Reply<Holding>),
    /// Which blocks the shards have, and who holds them.
    Placement(RunId, Reply<Placed>),
    /// A group asks for data: finished chunks, held chunks.
    LeaseChunk(
        RunId,
        (GroupId, Incarnation),
        Vec<u64>,
        Vec<u64>,
        Reply<Chunk>,
    ),
    /// A rank is done, and so are these chunks.
    Leave(RunId, Caller, Vec<u64>, Reply<()>),
    /// Groups of so many ranks may join on top of the others.
    Attach(RunId, Vec<u32>, Reply<Answer>),
    /// These groups shall leave; where none is named, all of them and whoever comes later.
    Drain(RunId, Vec<GroupId>, Reply<Answer>),
    /// The certificates of these are good for nothing any more; answered when all servers keep that.
    Revoke(RunId, RevokedIdentities, Reply<Answer>),
    /// A server keeps so many that are revoked.
    KeepsRevoked(ServerId, usize, Reply<()>),
    /// Forget a run that is over.
    Remove(RunId, Reply<Answer>),
    /// The next join of a run goes on from this; answered when it is written down.
    Resume(RunId, Box<Saved>, Reply<Answer>),
    /// Take a snapshot; answered when it is whole.
    Snapshot(RunId, Reply<Answer>),
    /// The status page.
    Status(RunId, Reply<RunStatus>),
    /// Whether nothing of any run is left to be kept.
    Idle(Reply<bool>),
    /// The names of the runs, and the servers that they are on.
    Fleet(Reply<(Vec<RunId>, Vec<ServerRow>)>),
}

impl Message {
    /// Whether it changes nothing, and tells what has been decided: that has to be written down before.
    pub(super) fn only_looks(&self) -> bool {
        matches!(self, Self::Placement(..) | Self::Status(..))
    }

    /// Whether it is answered from what is written down, or changes nothing that has to be.
    pub(super) fn needs_no_disk(&self) -> bool {
        match self {
            Self::ServerBeat(..)
            | Self::Followed(..)
            | Self::Heartbeat(..)
            | Self::Check(..)
            | Self::Holding(..)
            | Self::LeaseChunk(..)
            | Self::Idle(..)
            | Self::Fleet(..) => true,
            Self::Register(..)
            | Self::ServerLost(..)
            | Self::Report(..)
            | Self::Captured(..)
            | Self::Written(..)
            | Self::Join(..)
            | Self::AwaitReady(..)
            | Self::RankLost(..)
            | Self::Placement(..)
            | Self::Leave(..)
            | Self::Attach(..)
            | Self::Drain(..)
            | Self::Revoke(..)
            | Self::KeepsRevoked(..)
            | Self::Remove(..)
            | Self::Resume(..)
            | Self::Snapshot(..)
            | Self::Status(..) => false,
        }
    }
}
