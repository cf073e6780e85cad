//! Chunks that are out, by number and by group.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{GroupId, Incarnation};

/// Who holds a chunk.
pub(super) type Owner = (GroupId, Incarnation);

/// Chunks that are out, and to whom. It is written as the list of owners by chunk; the chunks of a group follow
/// from it, and both change together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldChunks {
    owners: BTreeMap<u64, Owner>,
    of_group: BTreeMap<GroupId, BTreeSet<u64>>,
}

impl HeldChunks {
    pub(super) fn owner(&self, chunk: u64) -> Option<Owner> {
        self.owners.get(&chunk).copied()
    }

    /// The chunks of one life of a group, in order.
    pub(super) fn of(&self, owner: Owner) -> impl Iterator<Item = u64> + '_ {
        let chunks = self.of_group.get(&owner.0).into_iter().flatten();
        let own = move |chunk: &&u64| self.owners[*chunk] == owner;
        chunks.filter(own).copied()
    }

    /// A chunk goes to somebody, unless it is out.
    pub(super) fn lend(&mut self, chunk: u64, owner: Owner) {
        if self.owner(chunk).is_none() {
            self.owners.insert(chunk, owner);
            self.of_group.entry(owner.0).or_default().insert(chunk);
        }
    }

    /// A chunk is not out any more.
    pub(super) fn take(&mut self, chunk: u64) {
        let Some((group, _)) = self.owners.remove(&chunk) else {
            return;
        };
        if let Some(chunks) = self.of_group.get_mut(&group) {
            chunks.remove(&chunk);
            if chunks.is_empty() {
                self.of_group.remove(&group);
            }
        }
    }

    /// All chunks of a group come back.
    pub(super) fn take_all_of(&mut self, group: GroupId) -> BTreeSet<u64> {
        let chunks = self.of_group.remove(&group).unwrap_or_default();
        for chunk in &chunks {
            self.owners.remove(chunk);
        }
        chunks
    }

    /// All chunks come back.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(self).owners.into_keys()
    }
}

impl Serialize for HeldChunks {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.owners.serialize(to)
    }
}

impl<'de> Deserialize<'de> for HeldChunks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let owners = BTreeMap::<u64, Owner>::deserialize(from)?;
        let mut held = Self::default();
        for (chunk, owner) in owners {
            held.lend(chunk, owner);
        }
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::mixed;

    #[test]
    fn chunks_of_a_group_are_those_that_a_walk_over_all_finds() {
        for seed in 0..50 {
            let (mut held, mut owners) = (HeldChunks::default(), BTreeMap::new());
            for turn in 0..400 {
                let draw = |part, below: u64| mixed(seed, [turn, part]) % below;
                let (chunk, group) = (draw(0, 30), GroupId(draw(1, 5) as u32));
                let owner = (group, Incarnation(draw(2, 2)));
                match draw(3, 10) {
                    0 => {
                        let mut back = BTreeSet::new();
                        owners.retain(|chunk, (of, _)| *of != group || !back.insert(*chunk));
                        assert_eq!(held.take_all_of(group), back, "seed {seed}");
                    }
                    1..4 => {
                        held.take(chunk);
                        owners.remove(&chunk);
                    }
                    _ => {
                        held.lend(chunk, owner);
                        owners.entry(chunk).or_insert(owner);
                    }
                }
                assert_eq!(held.owners, owners);
                let mine = owners.iter().filter(|(_, of)| **of == owner);
                assert!(
                    held.of(owner).eq(mine.map(|(chunk, _)| *chunk)),
                    "seed {seed}"
                );
                let sizes = held.of_group.values().map(BTreeSet::len);
                assert_eq!(
                    sizes.sum::<usize>(),
                    owners.len(),
                    "nothing is left of others"
                );
            }
            let text = serde_json::to_string(&held).unwrap();
            assert_eq!(text, serde_json::to_string(&owners).unwrap());
            assert_eq!(serde_json::from_str::<HeldChunks>(&text).unwrap(), held);
            assert!(held.take_all().eq(owners.into_keys()));
            assert_eq!(held, HeldChunks::default());
        }
    }
}
