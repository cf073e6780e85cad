//! Chunks that are out, by number and by group.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};

use crate::ids::{GroupId, Incarnation};

/// To whom a chunk is out.
pub(super) type Owner = (GroupId, Incarnation);

type ByChunk = BTreeMap<u64, Owner>;

/// Chunks that are out. What a group has is found without looking at what others have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "ByChunk")]
pub(super) struct Held {
    by_chunk: ByChunk,
    by_group: BTreeMap<GroupId, BTreeSet<u64>>,
}

impl From<ByChunk> for Held {
    fn from(by_chunk: ByChunk) -> Self {
        let mut held = Self::default();
        for (chunk, owner) in by_chunk {
            held.insert(chunk, owner);
        }
        held
    }
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.by_chunk.serialize(to)
    }
}

impl Held {
    pub(super) fn owner(&self, chunk: u64) -> Option<Owner> {
        self.by_chunk.get(&chunk).copied()
    }

    pub(super) fn insert(&mut self, chunk: u64, owner: Owner) {
        self.remove(chunk);
        self.by_chunk.insert(chunk, owner);
        self.by_group.entry(owner.0).or_default().insert(chunk);
    }

    /// Whether it was out.
    pub(super) fn remove(&mut self, chunk: u64) -> bool {
        let Some((group, _)) = self.by_chunk.remove(&chunk) else {
            return false;
        };
        let of_group = self.by_group.get_mut(&group).expect("it has this one");
        of_group.remove(&chunk);
        if of_group.is_empty() {
            self.by_group.remove(&group);
        }
        true
    }

    /// What an incarnation of a group has.
    pub(super) fn of(&self, owner: Owner) -> impl Iterator<Item = u64> + '_ {
        let of_group = self.by_group.get(&owner.0).into_iter().flatten();
        let own = move |chunk: &u64| self.owner(*chunk) == Some(owner);
        of_group.copied().filter(own)
    }

    /// What any incarnation of a group has; from now on it has nothing.
    pub(super) fn take(&mut self, group: GroupId) -> BTreeSet<u64> {
        let chunks = self.by_group.remove(&group).unwrap_or_default();
        for chunk in &chunks {
            self.by_chunk.remove(chunk);
        }
        chunks
    }

    /// All that is out.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = u64> {
        self.by_chunk.into_keys()
    }
}
