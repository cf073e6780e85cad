//! What a run's exchanges move in a step, and how long that takes: bytes and messages of a rank and
//! of a server, from the layout and the placement that the run really has.
//!
//! A step is one exchange of every group. Messages and payload are exact. Bytes on the wire add
//! the heads of messages, as an estimate, and HTTP/2's; they are those of TCP's payload, without
//! the heads of packets. Left out are what opens a connection, window updates, pings, and a rank's
//! calls to the coordinator: below 0.01 % of the bytes, and a few hundred bytes a second.

mod time;

use serde::Serialize;

pub use time::{Exchange, Limit, Rates, Servers};

use crate::ids::{BlockId, GroupId, Rank, ShardId};
use crate::layout::{Block, Layout};
use crate::placement::Placement;
use crate::{Compression, TensorKind};

/// Head of a gradient, with gRPC's prefix, bytes: an estimate, for numbers take more as they grow.
const PUSH_HEAD_BYTES: u64 = 56;

/// Head of an answer, likewise.
const PULL_HEAD_BYTES: u64 = 32;

/// What a copy answers when it has an update.
const CONFIRMATION_BYTES: u64 = 64;

/// Head of an HTTP/2 frame.
const HTTP2_HEAD_BYTES: u64 = 9;

/// Largest HTTP/2 frame; the default of 16 KiB halves the rate.
pub const HTTP2_FRAME_BYTES: u64 = 512 << 10;

/// Values up to this size share a frame with their head: one small write is cheaper than two.
pub const TOGETHER_BYTES_MAX: u64 = 16 << 10;

/// A run as far as its traffic follows from it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Its flat vector.
    pub layout: &'a Layout,
    /// Who owns its blocks.
    pub placement: &'a Placement,
    /// Ranks of each group, at least 1.
    pub group_sizes: &'a [u32],
    /// Connections of a rank to each server, at least 1.
    pub connections: u32,
    /// How gradients of parameters travel.
    pub up: Compression,
    /// How fresh parameters travel.
    pub down: Compression,
    /// Copies of every block, with its primary, at least 1. A primary forwards every gradient to
    /// the others, in the form in which it came, and each confirms it. Copies lie on the servers as
    /// evenly as primaries do.
    pub copies: u32,
}

/// What goes one way in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Messages of one block each.
    pub messages: u64,
    /// Bytes of their values, as they travel.
    pub payload: u64,
    /// Bytes of all of it.
    pub wire: u64,
}

/// What a process moves in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Values that are pushed, and pulled.
    pub values: u64,
    /// What it sends.
    pub sent: Flow,
    /// What it receives.
    pub received: Flow,
}

/// What a rank sends to its group in a step, and receives as much. Rings: every rank hands on to
/// the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collectives {
    /// Bytes of the all-reduce of the gradients: 2 (N − 1) / N of them.
    pub reduce: u64,
    /// Bytes of the gather of the slices: N − 1 of the longest, to which all are padded.
    pub gather: u64,
}

impl Flow {
    fn of(messages: u64, payload: u64, head: u64) -> Self {
        let frames = match payload {
            0..=TOGETHER_BYTES_MAX => 1,
            _ => 1 + payload.div_ceil(HTTP2_FRAME_BYTES),
        };
        Self {
            messages,
            payload: messages * payload,
            wire: messages * (payload + head + frames * HTTP2_HEAD_BYTES),
        }
    }

    fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.payload += other.payload;
        self.wire += other.wire;
    }
}

impl Traffic {
    /// `times` the exchange of a block, as its rank sees it.
    fn of(run: &Run<'_>, block: &Block, times: u64) -> Self {
        let values = block.elements.len();
        let bytes = |form: Compression| match block.kind {
            TensorKind::Parameter => form.encoded_max(values) as u64,
            TensorKind::Buffer => block.bytes() as u64,
        };
        Self {
            values: times * values as u64,
            sent: Flow::of(times, bytes(run.up), PUSH_HEAD_BYTES),
            received: Flow::of(times, bytes(run.down), PULL_HEAD_BYTES),
        }
    }

    fn add(&mut self, other: Self) {
        self.values += other.values;
        self.sent.add(other.sent);
        self.received.add(other.received);
    }
}

impl Run<'_> {
    /// What a rank moves; nothing if there is no such rank.
    pub fn rank(&self, group: GroupId, rank: Rank) -> Traffic {
        let size = self.group_sizes.get(group.0 as usize);
        let size = size.filter(|size| rank.0 < **size);
        size.map_or(Traffic::default(), |size| {
            self.of_slice(&self.layout.slice(rank, *size))
        })
    }

    /// The rank that moves most, of all groups.
    pub fn busiest_rank(&self) -> Traffic {
        let sizes = self.sizes().into_iter();
        let slices = sizes.flat_map(|size| self.layout.slices(size));
        busiest(slices.map(|slice| self.of_slice(&slice)))
    }

    /// What the primary of a shard moves for `groups` groups.
    pub fn server(&self, shard: ShardId, groups: u64) -> Traffic {
        let mut all = Traffic::default();
        for block in self.placement.blocks(shard) {
            let block = self
                .layout
                .block(block)
                .expect("placed blocks are laid out");
            all.add(self.at_server(Traffic::of(self, block, groups)));
        }
        all
    }

    /// The server that moves most, for `groups` groups.
    pub fn busiest_server(&self, groups: u64) -> Traffic {
        let shards = self.placement.shards();
        let most = shards.iter().map(|shard| shard.0).max().unwrap_or(0);
        let mut all = vec![Traffic::default(); most as usize + 1];
        for (block, shard) in self.layout.blocks.iter().zip(shards) {
            all[shard.0 as usize].add(self.at_server(Traffic::of(self, block, groups)));
        }
        busiest(all)
    }

    /// What all servers together move, for all groups.
    pub fn servers(&self) -> Traffic {
        let mut all = Traffic::default();
        for block in &self.layout.blocks {
            let groups = self.group_sizes.len() as u64;
            all.add(self.at_server(Traffic::of(self, block, groups)));
        }
        all
    }

    /// What a rank sends inside a group of `size` ranks.
    pub fn collectives(&self, size: u32) -> Collectives {
        let slices = self.layout.slices(size);
        let bytes = slices.iter().map(|slice| self.of_slice(slice).values * 4);
        let (others, all) = (u64::from(size) - 1, self.layout.elements() as u64 * 4);
        Collectives {
            reduce: (2 * others * all).div_ceil(u64::from(size)),
            gather: others * bytes.max().unwrap_or(0),
        }
    }

    /// Connections that ranks hold to the primary of a shard.
    pub fn connections(&self, shard: ShardId) -> u64 {
        let of_rank = |slice: &Vec<BlockId>| {
            let owned = |block: &&BlockId| self.placement.shard(**block) == Some(shard);
            slice
                .iter()
                .filter(owned)
                .take(self.connections as usize)
                .count() as u64
        };
        let of_group = |size| self.layout.slices(size).iter().map(of_rank).sum::<u64>();
        let times = |size| {
            self.group_sizes
                .iter()
                .filter(|other| **other == size)
                .count() as u64
        };
        let sizes = self.sizes().into_iter();
        sizes.map(|size| times(size) * of_group(size)).sum()
    }

    /// The sizes that groups have, each once: groups of one size move the same.
    fn sizes(&self) -> Vec<u32> {
        let mut sizes = self.group_sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn of_slice(&self, slice: &[BlockId]) -> Traffic {
        let mut all = Traffic::default();
        for block in slice {
            let block = self.layout.block(*block).expect("slices name blocks");
            all.add(Traffic::of(self, block, 1));
        }
        all
    }

    /// The same at the other end: what ranks send is received, and forwarded to the copies; as much
    /// comes in from other primaries.
    fn at_server(&self, exchange: Traffic) -> Traffic {
        let Traffic {
            values,
            sent: pushed,
            received: pulled,
        } = exchange;
        let others = u64::from(self.copies) - 1;
        let confirmed = Flow::of(others * pushed.messages, 0, CONFIRMATION_BYTES);
        let forwarded = Flow {
            messages: others * pushed.messages,
            payload: others * pushed.payload,
            wire: others * pushed.wire,
        };
        let mut traffic = Traffic {
            values,
            sent: pulled,
            received: pushed,
        };
        for flow in [&mut traffic.sent, &mut traffic.received] {
            flow.add(forwarded);
            flow.add(confirmed);
        }
        traffic
    }
}

/// The one with the most bytes in either direction.
fn busiest(all: impl IntoIterator<Item = Traffic>) -> Traffic {
    let most = |traffic: &Traffic| traffic.sent.wire.max(traffic.received.wire);
    all.into_iter().max_by_key(most).unwrap_or_default()
}

#[cfg(test)]
mod tests;
