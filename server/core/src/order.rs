//! What the coordinator tells servers, and what they report.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tradewind_common::holders::Holders;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Incarnation, RunId, ServerId, ShardId};

use super::mark::Lacking;
use super::revoked::RevokedIdentities;
use super::view::{Acknowledge, OrderedView};

/// A registered server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Which life of it.
    pub incarnation: Incarnation,
    /// host:port
    pub address: String,
    /// Names its machine.
    pub host: String,
}

/// One run, as one server has to hold it: everything, but of membership what has changed since a view that the
/// server has followed, where that is known. An older one changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// For whom.
    pub server: ServerId,
    /// The run.
    pub run: RunId,
    /// Its specification.
    pub spec: Arc<RunSpec>,
    /// Which shard each block belongs to.
    pub placement: Arc<Placement>,
    /// Who holds each shard, in the view's generation.
    pub holders: Vec<Holders>,
    /// Where the servers are.
    pub servers: BTreeMap<ServerId, Server>,
    /// The run's membership.
    pub view: OrderedView,
    /// Shards that their heir has to restore.
    pub restore: Vec<Restore>,
    /// Snapshots to take part in; one that was taken already is reported again.
    pub capture: Vec<Capture>,
}

/// What the coordinator tells a server.
#[derive(Clone, Debug)]
pub enum ServerMessage {
    /// A run as the server has to hold it.
    Order(Box<Order>),
    /// The runs there are: it forgets all others.
    Runs(Vec<RunId>),
    /// What is revoked: all of it.
    Revoked(RevokedIdentities),
}

/// A shard that its heir has to restore from a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// Which.
    pub shard: ShardId,
    /// From the newest whole snapshot up to this one.
    pub newest: u64,
    /// From no other: all shards of a run are resumed from the same.
    pub only: bool,
}

/// A part of a snapshot that a primary has to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Of which shard.
    pub shard: ShardId,
    /// Of which snapshot.
    pub number: u64,
    /// Each block as it is when the clocks before this one are decided; `None`: as it is now.
    pub at_clock: Option<Clock>,
}

/// What a server reports of a shard that it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardReport {
    /// Which.
    pub shard: ShardId,
    /// What it follows and has.
    pub seen: Acknowledge,
    /// The snapshot that it was restored from.
    pub restored: Option<u64>,
    /// Snapshots that were passed over, and what was wrong with each.
    pub damaged: Vec<String>,
    /// What that lacks of what had been acknowledged.
    pub lost: Lacking,
    /// Why it cannot be restored.
    pub failure: Option<String>,
}

/// A file of a snapshot: one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardFile {
    /// Its name in the snapshot's folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of its bytes, in hexadecimal digits.
    pub digest: String,
    /// Lowest and highest version of its blocks.
    pub versions: (u64, u64),
    /// Least and most samples applied to its blocks.
    pub samples: (u64, u64),
    /// One past the highest clock decided of any group; 0 if none was.
    pub clock_next: Clock,
}

/// Why a shard's part of a snapshot was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotCaptured {
    /// A block had decided this clock already.
    Passed(Clock),
    /// The disk failed, or the shard is not held here.
    Failed(String),
}
