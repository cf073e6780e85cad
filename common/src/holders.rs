//! Who holds each shard: a primary that answers for it, and copies that may take its place. While
//! nobody answers: the candidates that keep what they have, and the heir that is chosen among them.

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, Incarnation, ServerId};

/// The server that answers for a shard, or is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Primary {
    /// Which.
    pub server: ServerId,
    /// The generation in which it was chosen; names its log of updates.
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

/// A server that has everything that was acknowledged of a shard, as long as this life of it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which.
    pub server: ServerId,
    /// Which life of it.
    pub incarnation: Incarnation,
}

/// What a server is to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answers for it, since this generation.
    Primary(Generation),
    /// It keeps a copy, since this generation.
    Copy(Generation),
    /// It is to answer for it, chosen in this generation: it refuses whoever was primary before, and
    /// answers nothing until it is told that this is written down.
    Heir(Generation),
    /// It keeps what it has, and answers nothing.
    Candidate,
}

/// Who holds one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    /// `None` while nobody answers for it.
    pub primary: Option<Primary>,
    /// On other servers than the primary's, each once; none while nobody answers.
    pub copies: Vec<CopyHolder>,
    /// The generation in which the shard's values were last restored from a snapshot; 0 if they were
    /// created. Versions of another lineage are meaningless.
    pub lineage: Generation,
    /// While nobody answers: who is to. It is one of the candidates, or restores a snapshot.
    #[serde(default)]
    pub heir: Option<Primary>,
    /// While nobody answers: the former primary and its full copies, as far as they are not known to
    /// be dead.
    #[serde(default)]
    pub candidates: Vec<Candidate>,
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
        let heir = self.heir.filter(|heir| heir.server == server);
        let copy = self.copies.iter().find(|copy| copy.server == server);
        let candidate = self.candidates.iter().any(|c| c.server == server);
        primary
            .map(|primary| Role::Primary(primary.since))
            .or_else(|| heir.map(|heir| Role::Heir(heir.since)))
            .or_else(|| copy.map(|copy| Role::Copy(copy.since)))
            .or_else(|| candidate.then_some(Role::Candidate))
    }

    /// Since when `server` holds the shard, in the role that it has; `None` if it does not, or only
    /// keeps what it has.
    pub fn since(&self, server: ServerId) -> Option<Generation> {
        self.role(server).and_then(|role| match role {
            Role::Primary(since) | Role::Copy(since) | Role::Heir(since) => Some(since),
            Role::Candidate => None,
        })
    }

    /// The primary, then the copies; the heir, then the other candidates.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + '_ {
        let primary = self.primary.iter().map(|primary| primary.server);
        let heir = self.heir.iter().map(|heir| heir.server);
        let others = self.candidates.iter().map(|candidate| candidate.server);
        let others = others.filter(|server| self.heir.is_none_or(|heir| heir.server != *server));
        primary
            .chain(self.copies.iter().map(|copy| copy.server))
            .chain(heir)
            .chain(others)
    }
}
