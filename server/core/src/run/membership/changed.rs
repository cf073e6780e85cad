//! Since when each group is what it is in the view, so that what has changed since a generation is found without
//! a look at what has not.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::{Generation, GroupId};

/// Groups by the last generation that changed what they are in the view. One that has gone is among them like
/// others: there is one entry a group that was ever joined, however often it comes and goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Changed {
    at: BTreeMap<GroupId, Generation>,
    by: BTreeSet<(Generation, GroupId)>,
    /// Those that have changed since anybody was told of a generation.
    new: BTreeSet<GroupId>,
}

impl Changed {
    /// A group is something else in the view.
    pub(super) fn note(&mut self, group: GroupId) {
        self.new.insert(group);
    }

    /// Somebody is told of this generation: what has changed until now is so from it on. Nobody was told of a
    /// generation in which it was so before.
    pub(super) fn begin(&mut self, generation: Generation) {
        for group in std::mem::take(&mut self.new) {
            if let Some(before) = self.at.insert(group, generation) {
                debug_assert!(
                    before < generation,
                    "group {group} changes without a generation"
                );
                self.by.remove(&(before, group));
            }
            self.by.insert((generation, group));
        }
    }

    /// Those that have changed after a generation.
    pub(super) fn since(&self, base: Generation) -> impl Iterator<Item = GroupId> + '_ {
        debug_assert!(self.new.is_empty(), "they belong to no generation yet");
        let after = self.by.range((base.next(), GroupId(0))..);
        after.map(|(_, group)| *group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(changed: &Changed, base: u64) -> Vec<u32> {
        let found = changed.since(Generation(base));
        found.map(|group| group.0).collect()
    }

    #[test]
    fn each_group_is_found_once_by_its_last_change() {
        let mut changed = Changed::default();
        for (generation, groups) in [(2, &[1, 2, 3][..]), (4, &[2]), (9, &[5, 1])] {
            groups
                .iter()
                .for_each(|group| changed.note(GroupId(*group)));
            changed.begin(Generation(generation));
        }
        assert_eq!(since(&changed, 1), [3, 2, 1, 5]);
        assert_eq!(since(&changed, 2), [2, 1, 5]);
        assert_eq!(since(&changed, 4), [1, 5]);
        assert!(since(&changed, 9).is_empty());
        assert_eq!((changed.at.len(), changed.by.len()), (4, 4));
    }
}
