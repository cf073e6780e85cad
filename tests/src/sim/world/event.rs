//! What happens in the world.

use std::hash::{Hash, Hasher};

use tradewind_common::{GroupId, Rank, ServerId};
use tradewind_server::core::answer::{Answer, Refused};
use tradewind_server::core::coordinator::Order;
use tradewind_server::core::refusal::Refusal;
use tradewind_server::core::shard::{Push, Reply};
use tradewind_server::core::view::Acknowledge;

use crate::sim::group::{Call, Wake};

/// One rank of one life of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) group: GroupId,
    pub(super) process: u64,
    pub(super) rank: Rank,
}

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Call(Address, u64, Call),
    Answered(Address, u64, Result<Option<Answer>, Refused>),
    Register(ServerId),
    Order(Box<Order>),
    Acknowledge(ServerId, Acknowledge),
    Frame(Address, ServerId, u64, Push),
    Reply(Address, ServerId, u64, Result<Reply, Refusal>),
    Wake(GroupId, u64, Wake),
    Start(GroupId),
    Crash(usize),
    Tick,
    Malformed,
}

impl Event {
    /// Adds what tells it from others.
    pub(super) fn trace(&self, hasher: &mut impl Hasher) {
        std::mem::discriminant(self).hash(hasher);
        match self {
            Event::Frame(from, server, stream, push) => {
                (from, server, stream, push.clock, push.block).hash(hasher);
            }
            Event::Reply(to, server, stream, Ok(reply)) => {
                (to, server, stream, reply.clock, reply.version).hash(hasher);
                (reply.block, reply.lag, reply.waited_us).hash(hasher);
            }
            Event::Call(from, number, _) => (from, number).hash(hasher),
            Event::Acknowledge(server, seen) => {
                (server, seen.generation, seen.clock_seen).hash(hasher);
            }
            _ => {}
        }
    }
}
