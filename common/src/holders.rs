//! Who holds each shard: a primary that answers for it, and copies that may take its place.

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, ServerId};

/// The server that answers for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Primary {
    /// Which.
    pub server: ServerId,
    /// The generation in which it became primary; names its log of updates.
    pub since: Generation,
}

/// A server that keeps a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHolder {
    /// Which.
    pub server: ServerId,
    /// The generation in which it was added. One that was removed and comes back has another one.
    pub since: Generation,
    /// It has everything that the primary has acknowledged, and may be promoted.
    pub full: bool,
}

/// What a server is to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answers for it, since this generation.
    Primary(Generation),
    /// It keeps a copy, since this generation.
    Copy(Generation),
}

/// Who holds one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    /// `None` while nobody can answer for it.
    pub primary: Option<Primary>,
    /// On other servers than the primary's, each once.
    pub copies: Vec<CopyHolder>,
    /// The generation in which the shard's values were last restored from a snapshot; 0 if they were
    /// created. Versions of another lineage are meaningless.
    pub lineage: Generation,
}

impl Holders {
    /// One primary from the beginning, and no copy.
    pub fn alone(server: ServerId) -> Self {
        let since = Generation(0);
        Self {
            primary: Some(Primary { server, since }),
            ..Self::default()
        }
    }

    /// What `server` is to the shard; `None` if it does not hold it.
    pub fn role(&self, server: ServerId) -> Option<Role> {
        let primary = self.primary.filter(|primary| primary.server == server);
        let copy = || self.copies.iter().find(|copy| copy.server == server);
        primary
            .map(|primary| Role::Primary(primary.since))
            .or_else(|| copy().map(|copy| Role::Copy(copy.since)))
    }

    /// Since when `server` holds the shard, in the role that it has; `None` if it does not.
    pub fn since(&self, server: ServerId) -> Option<Generation> {
        self.role(server).map(|role| match role {
            Role::Primary(since) | Role::Copy(since) => since,
        })
    }

    /// The primary, then the copies.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + '_ {
        let primary = self.primary.iter().map(|primary| primary.server);
        primary.chain(self.copies.iter().map(|copy| copy.server))
    }
}
