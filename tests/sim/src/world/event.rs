//! What happens in the world.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tradewind_common::{Generation, GroupId, Incarnation, Rank, ServerId, ShardId};
use tradewind_core::answer::{Answer, Refused};
use tradewind_core::log::{Confirm, Record};
use tradewind_core::order::{NotCaptured, Order, ShardFile, ShardReport};
use tradewind_core::refusal::Refusal;
use tradewind_core::run::Caller;
use tradewind_core::saved::ManifestData;
use tradewind_core::shard::{Push, Reply};

use super::disk::File;
use crate::group::{Call, Directory, Wake};
use crate::scenario::GroupPlan;

/// One process of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    pub(super) group: GroupId,
    pub(super) rank: Rank,
    pub(super) life: u64,
}

/// One process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Life {
    pub(super) server: ServerId,
    pub(super) incarnation: Incarnation,
}

/// A process, whichever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Process {
    Rank(Address),
    Server(Life),
    Coordinator(u64),
}

/// What a server tells the coordinator.
#[derive(Clone, Debug)]
pub(super) enum Up {
    Register,
    Beat,
    Report(Box<ShardReport>),
    /// The generation of the view that it has followed; `None` if the last order left a gap.
    Followed(Option<Generation>),
    Captured(ShardId, u64, Result<ShardFile, NotCaptured>),
}

/// What a coordinator is told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// A call of a rank.
    Call(Address, u64, Call),
    /// The heartbeats of a rank ended.
    RankLost(Caller),
    /// A server, on a bond.
    Server(Life, u64, Up),
    /// A bond ended.
    ServerLost(Life, u64),
    /// A manifest is on disk, or could not be written.
    Manifest(u64, Result<(), String>),
    /// A group like this may join.
    Attach(GroupPlan),
    /// A group shall leave.
    Drain(GroupId),
    /// Time passes.
    Tick,
}

/// What happens to a server.
#[derive(Clone, Debug)]
pub(super) enum Done {
    /// It looks for a coordinator.
    Connect,
    /// It tells the coordinator that it is there.
    Beat(u64),
    /// Its bond with the coordinator broke.
    BondBroke(u64),
    /// The coordinator, by its incarnation, has sent an order on a bond.
    Order(u64, u64, Box<Order>),
    /// What an order needed has been read.
    Obey,
    /// A way to a copy is tried.
    Link(ShardId, ServerId, u64),
    /// A way to a copy broke.
    Unlinked(ShardId, ServerId, u64),
    /// A record comes on a way, from this primary.
    Record(Life, ShardId, u64, Box<Record>),
    /// A copy confirms on a way.
    Confirm(ShardId, u64, Confirm),
    /// A frame of a rank.
    Frame(Address, ShardId, u64, Push),
    /// A shard wanted to be asked again by now.
    Timeout(ShardId),
    /// A part of a snapshot is on disk, or could not be written.
    Written(ShardId, u64, Box<File>),
}

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Coordinator(u64, Told),
    /// The coordinator's state has been written, or could not be.
    Wrote(u64),
    /// It has looked for later claims.
    Looked(u64),
    StartCoordinator,
    /// A coordinator that has claimed reads what the last one wrote.
    ReadState(u64),
    Server(Life, Done),
    StartServer(ServerId),
    Answered(
        Address,
        (u64, Incarnation),
        Result<Option<Answer>, Refused>,
        Arc<Directory>,
    ),
    Reply(Address, (Life, ShardId), u64, Result<Reply, Refusal>),
    Wake(Address, Wake),
    StartRank(GroupId, Rank),
    /// A manifest that a coordinator has ordered is written.
    Finish(u64, Box<ManifestData>),
    Delete(u64),
    Fault(usize),
    Malformed,
}

impl Event {
    /// To which process it happens.
    pub(super) fn whom(&self) -> Option<Process> {
        match self {
            Self::Coordinator(n, _) | Self::Wrote(n) | Self::Looked(n) | Self::ReadState(n) => {
                Some(Process::Coordinator(*n))
            }
            Self::Server(life, _) => Some(Process::Server(*life)),
            Self::Answered(to, ..) | Self::Reply(to, ..) | Self::Wake(to, _) => {
                Some(Process::Rank(*to))
            }
            Self::StartCoordinator
            | Self::StartServer(_)
            | Self::StartRank(..)
            | Self::Finish(..)
            | Self::Delete(_)
            | Self::Fault(_)
            | Self::Malformed => None,
        }
    }

    /// Adds what tells it from others.
    pub(super) fn trace(&self, hasher: &mut impl Hasher) {
        std::mem::discriminant(self).hash(hasher);
        self.whom().hash(hasher);
        match self {
            Self::Server(_, Done::Frame(from, shard, stream, push)) => {
                (from, shard, stream, push.clock, push.block).hash(hasher);
            }
            Self::Server(_, Done::Record(_, shard, way, record)) => {
                (shard, way, record.log, record.seq).hash(hasher);
            }
            Self::Reply(_, shard, stream, Ok(reply)) => {
                (shard, stream, reply.clock, reply.version).hash(hasher);
                (reply.block, reply.lag, reply.waited_us).hash(hasher);
                for value in reply.fresh.values() {
                    value.to_bits().hash(hasher);
                }
            }
            Self::Coordinator(_, Told::Call(from, number, _)) => (from, number).hash(hasher),
            Self::Coordinator(_, Told::Server(_, bond, Up::Report(report))) => {
                let seen = &report.seen;
                (bond, report.shard, seen.generation, seen.clock_seen).hash(hasher);
            }
            _ => {}
        }
    }
}
