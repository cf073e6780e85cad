//! Who holds the shards of a run, and where: for the wire and from it.

use tradewind_common::holders::{Candidate, CopyHolder, Holders, Primary};
use tradewind_common::placement::Placement;
use tradewind_common::{Generation, Incarnation, ServerId, ShardId};

use crate::malformed::{Malformed, malformed, required};
use crate::v1;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its number.
    pub server: ServerId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// host:port
    pub address: String,
}

/// Who holds the shards of a run in one generation, and where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Orders holdings.
    pub generation: Generation,
    /// By shard.
    pub holders: Vec<Holders>,
    /// Every holder is among them.
    pub servers: Vec<Endpoint>,
}

impl Holding {
    /// Where the primary of a shard is; `None` while nobody answers for it.
    pub fn primary(&self, shard: ShardId) -> Option<&Endpoint> {
        let primary = self.holders.get(shard.0 as usize)?.primary?;
        self.servers.iter().find(|e| e.server == primary.server)
    }
}

impl From<&Holding> for v1::Holding {
    fn from(holding: &Holding) -> Self {
        let endpoint = |e: &Endpoint| v1::ServerEndpoint {
            server: e.server.0,
            address: e.address.clone(),
            incarnation: e.incarnation.0,
        };
        Self {
            generation: holding.generation.0,
            servers: holding.servers.iter().map(endpoint).collect(),
            holders: holding.holders.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Holding> for Holding {
    type Error = Malformed;
    fn try_from(wire: v1::Holding) -> Result<Self, Malformed> {
        let endpoint = |e: v1::ServerEndpoint| Endpoint {
            server: ServerId(e.server),
            incarnation: Incarnation(e.incarnation),
            address: e.address,
        };
        let holding = Self {
            generation: Generation(wire.generation),
            servers: wire.servers.into_iter().map(endpoint).collect(),
            holders: wire.holders.iter().map(Into::into).collect(),
        };
        let known = |server: &ServerId| holding.servers.iter().any(|e| e.server == *server);
        let missing = {
            let mut holders = holding.holders.iter().flat_map(Holders::servers);
            holders.find(|server| !known(server))
        };
        match missing {
            Some(server) => Err(malformed(
                "holding.holders",
                format!("server {server} has no address"),
            )),
            None => Ok(holding),
        }
    }
}

impl From<&Holders> for v1::Holders {
    fn from(holders: &Holders) -> Self {
        Self {
            primary: holders.primary.map(|primary| primary.server.0),
            primary_since: holders.primary.map_or(0, |primary| primary.since.0),
            copies: holders.copies.iter().map(copy_to_wire).collect(),
            lineage: holders.lineage.0,
            heir: holders.heir.map(|heir| heir.server.0),
            heir_since: holders.heir.map_or(0, |heir| heir.since.0),
            candidates: holders.candidates.iter().map(candidate_to_wire).collect(),
        }
    }
}

impl From<&v1::Holders> for Holders {
    fn from(wire: &v1::Holders) -> Self {
        let since = |since| {
            move |server| Primary {
                server: ServerId(server),
                since: Generation(since),
            }
        };
        Self {
            primary: wire.primary.map(since(wire.primary_since)),
            copies: wire.copies.iter().map(copy_from_wire).collect(),
            lineage: Generation(wire.lineage),
            heir: wire.heir.map(since(wire.heir_since)),
            candidates: wire.candidates.iter().map(candidate_from_wire).collect(),
        }
    }
}

fn candidate_to_wire(candidate: &Candidate) -> v1::Candidate {
    v1::Candidate {
        server: candidate.server.0,
        incarnation: candidate.incarnation.0,
    }
}

fn candidate_from_wire(wire: &v1::Candidate) -> Candidate {
    Candidate {
        server: ServerId(wire.server),
        incarnation: Incarnation(wire.incarnation),
    }
}

/// A copy of a shard, for the wire.
pub fn copy_to_wire(copy: &CopyHolder) -> v1::CopyHolder {
    v1::CopyHolder {
        server: copy.server.0,
        since: copy.since.0,
        full: copy.full,
    }
}

/// A copy of a shard, from the wire.
pub fn copy_from_wire(wire: &v1::CopyHolder) -> CopyHolder {
    CopyHolder {
        server: ServerId(wire.server),
        since: Generation(wire.since),
        full: wire.full,
    }
}

/// A placement with its holders, for the wire; `bucket_bytes` as in the run's specification.
pub fn placement_to_wire(
    placement: &Placement,
    holding: &Holding,
    bucket_bytes: Option<usize>,
) -> v1::Placement {
    v1::Placement {
        bucket_bytes: bucket_bytes.map(|size| size as u64),
        shards: placement.shards().iter().map(|shard| shard.0).collect(),
        holding: Some(holding.into()),
    }
}

/// A placement from the wire: every shard must have an entry among the holders.
pub fn placement_from_wire(wire: v1::Placement) -> Result<(Placement, Holding), Malformed> {
    let holding = Holding::try_from(required("placement.holding", wire.holding)?)?;
    let shards: Vec<ShardId> = wire.shards.into_iter().map(ShardId).collect();
    let unknown = |shard: &&ShardId| shard.0 as usize >= holding.holders.len();
    match shards.iter().find(unknown) {
        Some(shard) => Err(malformed(
            "placement.shards",
            format!("shard {shard} has no holders"),
        )),
        None => Ok((Placement::from_shards(shards), holding)),
    }
}
