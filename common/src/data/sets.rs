//! Training data cut into sets, so that a node needs a part of the files only.

use std::ops::Range;

use super::{Chunk, Chunking};
use crate::choice::{Field, Kind};
use crate::ids::GroupId;
use crate::mix::mixed;
use crate::settings;

/// Most sets that training data may be cut into.
pub const SETS_MAX: u32 = 4096;

settings! {
    /// How training data are cut into sets, and which group takes which.
    DataSets {
        /// How many sets there are.
        count: u32 = Field {
            key: "loader.sets",
            kind: Kind::Count { min: 1, max: SETS_MAX as u64 },
            default: "1",
            meaning: "Number of sets that the training samples are cut into, in the order of their numbers. A group takes the samples of its own sets first, so that its nodes need a part of the files only ([data](data.md#files-on-a-nodes-own-disk)); then those that other groups have left. Under `train.consistency = \"sync\"` only 1 is accepted.",
        },
        /// After how many epochs the next group takes a set; 0 for never.
        deal_epochs: u32 = Field {
            key: "loader.deal_epochs",
            kind: Kind::Count { min: 0, max: 1_000_000 },
            default: "0",
            meaning: "Number of epochs after which each set goes to the next group. 0: a group keeps its sets.",
        },
    }
}

impl DataSets {
    /// Which group takes a set first.
    pub fn owner(&self, set: u32, epoch: u64, groups: usize) -> GroupId {
        let deal = epoch.checked_div(u64::from(self.deal_epochs)).unwrap_or(0);
        let groups = groups.max(1) as u64;
        GroupId(((u64::from(set) + deal % groups) % groups) as u32)
    }

    /// The sets that a group takes first, in the order in which it does: another one in each epoch.
    pub fn of_group(
        &self,
        seed: u64,
        group: GroupId,
        epoch: u64,
        groups: usize,
    ) -> impl Iterator<Item = u32> + use<> {
        let mine = (0..self.count).filter(|set| self.owner(*set, epoch, groups) == group);
        let mut mine: Vec<_> = mine.collect();
        mine.sort_by_key(|set| (mixed(seed, [epoch, u64::from(*set)]), *set));
        mine.into_iter()
    }
}

impl Chunking {
    /// The positions of a set in the epoch: sets differ by one sample at most.
    pub fn set(&self, set: u32) -> Range<u64> {
        let cut = |set: u32| {
            let all = u128::from(self.epoch_samples) * u128::from(set);
            (all / u128::from(self.sets)) as u64
        };
        cut(set)..cut(set + 1)
    }

    /// The set that a position of the epoch lies in.
    pub fn set_at(&self, position: u64) -> u32 {
        let guess = u128::from(position) * u128::from(self.sets);
        let guess = (guess / u128::from(self.epoch_samples)) as u32;
        // Cuts are rounded down: the guess may be one too low.
        match position < self.set(guess).end {
            true => guess,
            false => guess + 1,
        }
    }

    /// Numbers of chunks in an epoch of a set, of which sets that have fewer leave the last one out.
    pub(super) fn slots(&self) -> u64 {
        let longest = self.epoch_samples.div_ceil(u64::from(self.sets));
        longest.div_ceil(self.chunk_samples)
    }

    /// Chunks of a set in an epoch.
    pub(super) fn chunks(&self, set: u32) -> u64 {
        let set = self.set(set);
        (set.end - set.start).div_ceil(self.chunk_samples)
    }

    /// The set of a chunk, and its place in the order of that set's chunks through all epochs.
    pub(super) fn place(&self, number: u64) -> (u32, u64) {
        let (slots, sets) = (self.slots(), u64::from(self.sets));
        let (epoch, within) = (number / (slots * sets), number % (slots * sets));
        ((within / slots) as u32, epoch * slots + within % slots)
    }

    /// The number of the chunk at such a place.
    pub(super) fn number(&self, set: u32, place: u64) -> u64 {
        let (slots, sets) = (self.slots(), u64::from(self.sets));
        (place / slots * sets + u64::from(set)) * slots + place % slots
    }

    /// About how many samples were passed when a chunk begins, all epochs counted whole: as if all sets were
    /// passed alike.
    pub fn begins(&self, chunk: &Chunk) -> u64 {
        let set = self.set(self.set_at(chunk.positions.start));
        let within = (chunk.positions.start - set.start).saturating_mul(u64::from(self.sets));
        let epochs = chunk.epoch.saturating_mul(self.epoch_samples);
        epochs.saturating_add(within.min(self.epoch_samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_all_sets_tile_every_epoch() {
        for (samples, chunk, sets) in [
            (10, 4, 1),
            (10, 3, 3),
            (101, 7, 8),
            (5, 9, 5),
            (1 << 40, 1 << 36, 7),
        ] {
            let chunking = Chunking {
                epoch_samples: samples,
                chunk_samples: chunk,
                sets,
            };
            let mut next = 0;
            for set in 0..sets {
                assert_eq!(chunking.set(set).start, next);
                for nth in 0..chunking.chunks(set) {
                    let number = chunking.number(set, 2 * chunking.slots() + nth);
                    assert_eq!(chunking.place(number), (set, 2 * chunking.slots() + nth));
                    let chunk = chunking.chunk(number);
                    assert_eq!(
                        (chunk.number, chunk.epoch, chunk.positions.start),
                        (number, 2, next)
                    );
                    for at in [chunk.positions.start, chunk.positions.end - 1] {
                        assert_eq!(chunking.set_at(at), set);
                    }
                    next = chunk.positions.end;
                }
            }
            assert_eq!(next, samples);
        }
    }

    #[test]
    fn every_set_has_one_owner_and_moves_on() {
        let sets = DataSets {
            count: 7,
            deal_epochs: 2,
        };
        for epoch in 0..9 {
            let mut all: Vec<_> = (0..3)
                .flat_map(|group| sets.of_group(5, GroupId(group), epoch, 3))
                .collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
        }
        let owners = [0, 1, 2, 3, 5, 6].map(|epoch| sets.owner(1, epoch, 3).0);
        assert_eq!(owners, [1, 1, 2, 2, 0, 1]);
        let kept = DataSets {
            count: 7,
            deal_epochs: 0,
        };
        assert_eq!(kept.owner(1, 1_000, 3), GroupId(1));
    }

    #[test]
    fn a_group_takes_its_sets_in_another_order_in_each_epoch() {
        let sets = DataSets {
            count: 40,
            deal_epochs: 0,
        };
        let order = |seed, epoch| {
            sets.of_group(seed, GroupId(1), epoch, 2)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
    }

    #[test]
    fn a_batch_grows_as_if_all_sets_were_passed_alike() {
        let chunking = Chunking {
            epoch_samples: 100,
            chunk_samples: 10,
            sets: 2,
        };
        let begins = |number| chunking.begins(&chunking.chunk(number));
        assert_eq!([0, 4, 5, 9, 10].map(begins), [0, 80, 0, 80, 100]);
        let whole = Chunking {
            sets: 1,
            ..chunking
        };
        assert_eq!(
            [0, 9, 10, 25].map(|n| whole.begins(&whole.chunk(n))),
            [0, 90, 100, 250]
        );
    }
}
