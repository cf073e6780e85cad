//! Which chunks are out, and to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

mod change;

pub use self::change::LedgerChange;
use self::change::Unwritten;
use super::held::{HeldChunks, Owner};
use super::{Chunk, Chunking, DataPosition};
use crate::ids::GroupId;

/// At most this many chunks are out to one group.
pub const CHUNKS_HELD_MAX: usize = 4;

/// A keeper of a ledger writes it down before it has leased so many more chunks.
pub const FORGOTTEN_MAX: u64 = 64;

/// Chunks of a set that a former keeper may have leased without writing it down, by their place in the order
/// of the set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Forgotten {
    chunks: Range<u64>,
    /// The last of them that somebody holds.
    claimed: Option<u64>,
}

/// A lease that cannot be granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseRefused {
    /// The group already holds all it may.
    #[error("group {group} already holds {CHUNKS_HELD_MAX} chunks; finish one first")]
    TooMany {
        /// The group that asked.
        group: GroupId,
    },
    /// The group names a chunk that it does not hold.
    #[error("group {group} does not hold chunk {chunk}")]
    NotHeld {
        /// The group that asked.
        group: GroupId,
        /// The chunk it named.
        chunk: u64,
    },
}

/// Which chunks are out, and to whom. Its size is bounded by groups × [`CHUNKS_HELD_MAX`], and by sets.
///
/// An epoch ends when every chunk of all its sets is leased: only then those of the next one are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    chunking: Chunking,
    /// Of each set: the place in the order of its chunks of the first that was never leased.
    #[serde(with = "one_or_more")]
    next: Vec<u64>,
    held: HeldChunks,
    /// Of what is held: when it was leased, counted in leases.
    #[serde(default)]
    leased: BTreeMap<u64, u64>,
    #[serde(default)]
    leases: u64,
    returned: BTreeSet<u64>,
    /// What had come back and a former keeper may have leased again without writing it down.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    doubted: BTreeSet<u64>,
    unused: u64,
    /// Of each set; empty when nothing may have been forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_more")]
    forgotten: Vec<Forgotten>,
    /// Of sets: the group that has leased of it last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    takers: BTreeMap<u32, GroupId>,
    #[serde(skip)]
    unwritten: Unwritten,
}

/// A list that is written as its only element: as before there were sets.
mod one_or_more {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written<T> {
        One(T),
        More(Vec<T>),
    }

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        list: &[T],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match list {
            [one] => one.serialize(to),
            more => more.serialize(to),
        }
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        Ok(match Written::deserialize(from)? {
            Written::One(one) => vec![one],
            Written::More(more) => more,
        })
    }
}

impl Ledger {
    /// A ledger from which nothing has been leased.
    pub fn new(chunking: Chunking) -> Self {
        Self {
            chunking,
            next: vec![0; chunking.sets as usize],
            held: HeldChunks::default(),
            leased: BTreeMap::new(),
            leases: 0,
            returned: BTreeSet::new(),
            doubted: BTreeSet::new(),
            unused: 0,
            forgotten: Vec::new(),
            takers: BTreeMap::new(),
            unwritten: Unwritten::default(),
        }
    }

    /// A ledger that goes on where another run or form of the data has come to, so many samples
    /// of whole epochs and positions in; a chunk that begins before is not leased.
    pub fn from_position(chunking: Chunking, position: DataPosition) -> Self {
        // Which samples were passed is not known where data were cut into other sets: it is said of the first.
        let next = (0..chunking.sets).map(|set| {
            let set = chunking.set(set);
            let within = position.samples.clamp(set.start, set.end) - set.start;
            position.epoch * chunking.slots() + within.div_ceil(chunking.chunk_samples)
        });
        let mut ledger = Self::new(chunking);
        ledger.next = next.collect();
        ledger
    }

    /// How epochs are cut.
    pub fn chunking(&self) -> Chunking {
        self.chunking
    }

    /// How much was leased, all epochs counted whole but the first of which there is something left; chunks
    /// of later epochs are not counted.
    pub fn position(&self) -> DataPosition {
        let sets = || (0..self.chunking.sets).map(|set| (set, self.first_never_leased(set)));
        let epoch = sets().map(|(_, place)| self.epoch_of(place)).min();
        let epoch = epoch.unwrap_or_default();
        let passed = |(set, place)| {
            let samples = self.chunking.set(set);
            let samples = samples.end - samples.start;
            match self.epoch_of(place) > epoch {
                true => samples,
                false => {
                    let within = place % self.chunking.slots();
                    within
                        .saturating_mul(self.chunking.chunk_samples)
                        .min(samples)
                }
            }
        };
        DataPosition {
            epoch,
            samples: sets().map(passed).sum(),
        }
    }

    fn epoch_of(&self, place: u64) -> u64 {
        place / self.chunking.slots()
    }

    /// Whether there is a chunk: the last place of an epoch is empty in sets that are shorter than others.
    fn is_chunk(&self, set: u32, place: u64) -> bool {
        place % self.chunking.slots() < self.chunking.chunks(set)
    }

    /// The place of the first chunk of a set that was never leased.
    fn first_never_leased(&self, set: u32) -> u64 {
        let next = self.next[set as usize];
        match self.is_chunk(set, next) {
            true => next,
            false => next + 1,
        }
    }

    /// The same with everything returned that is out, for a time in which nobody holds anything.
    #[must_use]
    pub fn all_returned(&self) -> Self {
        let mut ledger = self.clone();
        let held = ledger.held.take_all();
        ledger.returned.extend(held);
        ledger.settle();
        ledger
    }

    /// Samples of finished chunks that did not fill a batch of the group that had them.
    pub fn unused(&self) -> u64 {
        self.unused
    }

    /// Begins for somebody who follows a keeper that is gone, and that may have leased up to
    /// [`FORGOTTEN_MAX`] more chunks than are written here. Those are leased to nobody until
    /// [`settle`](Self::settle), and neither is what had come back; meanwhile groups say which of them they hold
    /// or have finished.
    pub fn take_over(&mut self) {
        self.touch(self.returned.iter().copied().collect());
        self.doubted.append(&mut self.returned);
        let former = std::mem::take(&mut self.forgotten);
        let sets = 0..self.chunking.sets;
        let next: Vec<u64> = sets.map(|set| self.first_never_leased(set)).collect();
        let epoch = next.iter().map(|place| self.epoch_of(*place)).min();
        let begin = epoch.unwrap_or_default() * self.chunking.slots();
        let after = begin + self.chunking.slots();
        let left = |(set, next): (u32, &u64)| {
            let end = begin + self.chunking.chunks(set);
            end.saturating_sub(*next)
        };
        // Chunks of the epoch after this one are leased when none of this one is left.
        let left: u64 = (0..).zip(&next).map(left).sum();
        let later = FORGOTTEN_MAX.saturating_sub(left);
        for (set, next) in (0..).zip(next) {
            let end = match later {
                0 => self.after(set, next, FORGOTTEN_MAX).min(after.max(next)),
                later => self.after(set, next.max(after), later),
            };
            let former = former.get(set as usize);
            self.next[set as usize] = end;
            self.forgotten.push(Forgotten {
                chunks: former.map_or(next, |forgotten| forgotten.chunks.start)..end,
                claimed: None,
            });
        }
    }

    /// The place behind so many chunks of a set from a place on.
    fn after(&self, set: u32, place: u64, count: u64) -> u64 {
        let (slots, chunks) = (self.chunking.slots(), self.chunking.chunks(set));
        let passed = place / slots * chunks + (place % slots).min(chunks) + count;
        passed / chunks * slots + passed % chunks
    }

    /// Believes a group that it holds chunks which may have been leased to it and forgotten.
    pub fn believe(&mut self, owner: Owner, holds: &[u64]) {
        for number in holds {
            if self.was_leased(*number) {
                self.held.lend(*number, owner);
                self.touch(vec![*number]);
            }
        }
    }

    /// Somebody says of a chunk that a former keeper has leased it; whether it may have.
    fn was_leased(&mut self, number: u64) -> bool {
        let (set, place) = self.chunking.place(number);
        let chunk = self.is_chunk(set, place);
        let forgotten = self.forgotten.get_mut(set as usize);
        match forgotten.filter(|of| chunk && of.chunks.contains(&place)) {
            Some(forgotten) => {
                forgotten.claimed = forgotten.claimed.max(Some(place));
                self.touch(Vec::new());
                true
            }
            None => {
                self.touch(vec![number]);
                self.doubted.remove(&number)
            }
        }
    }

    /// Something about these chunks is to be written down.
    fn touch(&mut self, chunks: Vec<u64>) {
        self.unwritten.any = true;
        self.unwritten.chunks.extend(chunks);
    }

    /// Every group has had its say: of the chunks of a set that may have been forgotten, those before the
    /// last one that somebody holds were leased and are finished; the others never were.
    pub fn settle(&mut self) {
        self.touch(self.doubted.iter().copied().collect());
        self.returned.append(&mut self.doubted);
        for (set, forgotten) in (0..).zip(std::mem::take(&mut self.forgotten)) {
            let first = forgotten.claimed.map_or(forgotten.chunks.start, |n| n + 1);
            let never = first..forgotten.chunks.end;
            if never.end == self.next[set as usize] {
                self.next[set as usize] = never.start;
            } else {
                let never = never.filter(|place| self.is_chunk(set, *place));
                let never: Vec<_> = never
                    .map(|place| self.chunking.number(set, place))
                    .collect();
                self.returned.extend(&never);
                self.touch(never);
            }
        }
    }

    /// Refuses a group that names a chunk as held which it does not hold, or has finished.
    pub fn check(&self, owner: Owner, finished: &[u64], holds: &[u64]) -> Result<(), LeaseRefused> {
        let lacks =
            |chunk: &&u64| self.held.owner(**chunk) != Some(owner) || finished.contains(chunk);
        let group = owner.0;
        match holds.iter().find(lacks) {
            Some(&chunk) => Err(LeaseRefused::NotHeld { group, chunk }),
            None => Ok(()),
        }
    }

    /// Takes note of `finished` chunks of a group whose ranks together take `group_batch` samples
    /// a step of a chunk that begins at this position. They may be named again, as in a retry; then they are
    /// nobody's, unless a former keeper has leased them.
    pub fn finish(&mut self, owner: Owner, finished: &[u64], group_batch: impl Fn(u64) -> u64) {
        for number in finished {
            let holder = self.held.owner(*number);
            if holder == Some(owner) {
                self.held.take(*number);
                self.leased.remove(number);
                self.touch(vec![*number]);
                let chunk = self.chunking.chunk(*number);
                let batch = group_batch(self.chunking.begins(&chunk));
                self.unused += (chunk.positions.end - chunk.positions.start) % batch;
            } else if holder.is_none() {
                self.was_leased(*number);
            }
        }
    }

    /// Leases the next chunk to a group that holds `holds`; `first` are the sets that it takes from first, in
    /// this order, in an epoch. A chunk that is out to this incarnation and that it does not hold is given
    /// again, in the order of leases: it was lost with an earlier answer, or another rank has asked before.
    pub fn lease(
        &mut self,
        owner: Owner,
        holds: &[u64],
        first: impl FnOnce(u64) -> Vec<u32>,
    ) -> Result<Chunk, LeaseRefused> {
        self.check(owner, &[], holds)?;
        let group = owner.0;
        let mine: Vec<u64> = self.held.of(owner).collect();
        let unseen = mine.iter().filter(|chunk| !holds.contains(chunk));
        if let Some(lost) = unseen.min_by_key(|chunk| self.leased.get(chunk)) {
            return Ok(self.chunking.chunk(*lost));
        }
        if mine.len() >= CHUNKS_HELD_MAX {
            return Err(LeaseRefused::TooMany { group });
        }
        let number = self.take(group, first);
        self.held.lend(number, owner);
        self.leases += 1;
        self.leased.insert(number, self.leases);
        self.touch(vec![number]);
        Ok(self.chunking.chunk(number))
    }

    /// Takes the next chunk for a group: of the first of its own sets that has one left in the epoch; else of a
    /// set that it was the last to take from; else of the set of which most is left.
    fn take(&mut self, group: GroupId, first: impl FnOnce(u64) -> Vec<u32>) -> u64 {
        for set in 0..self.chunking.sets {
            self.next[set as usize] = self.first_never_leased(set);
        }
        let epochs = self.next.iter().map(|place| self.epoch_of(*place));
        let back = self
            .returned
            .first()
            .map(|number| self.chunking.chunk(*number).epoch);
        let epoch = epochs.chain(back).min().expect("there is a set");
        if self.chunking.sets == 1 {
            // What has come back first, if it is of this epoch.
            let of_epoch = |number: &u64| self.chunking.chunk(*number).epoch == epoch;
            let back = self.returned.first().copied().filter(of_epoch);
            return self.take_of(0, back);
        }
        let mut left: Vec<u64> = (0..self.chunking.sets)
            .map(|set| {
                let next = self.next[set as usize];
                let all = self.chunking.chunks(set) - next % self.chunking.slots();
                if self.epoch_of(next) == epoch { all } else { 0 }
            })
            .collect();
        // The lowest of each set that came back.
        let mut back: BTreeMap<u32, u64> = BTreeMap::new();
        for number in &self.returned {
            let (set, place) = self.chunking.place(*number);
            if self.epoch_of(place) > epoch {
                break;
            }
            left[set as usize] += 1;
            back.entry(set).or_insert(*number);
        }
        let has = |set: &u32| left.get(*set as usize).is_some_and(|left| *left > 0);
        let mine = || first(epoch).into_iter().find(has);
        let taken = || {
            let of_group = |(set, taker): (&u32, &GroupId)| (*taker == group).then_some(*set);
            self.takers.iter().filter_map(of_group).find(has)
        };
        let most = || {
            (0..self.chunking.sets)
                .rev()
                .max_by_key(|set| left[*set as usize])
        };
        let set = mine().or_else(taken);
        let set = set.or_else(most).expect("there is a set");
        self.takers.insert(set, group);
        self.unwritten.sets.insert(set);
        self.take_of(set, back.get(&set).copied())
    }

    /// Takes the next chunk of a set, which is one that has come `back` if there is one.
    fn take_of(&mut self, set: u32, back: Option<u64>) -> u64 {
        match back {
            Some(number) => {
                self.returned.remove(&number);
                number
            }
            None => self.take_new(set),
        }
    }

    /// The first chunk of a set that was never leased, which is now.
    fn take_new(&mut self, set: u32) -> u64 {
        let place = self.next[set as usize];
        self.next[set as usize] = place + 1;
        self.chunking.number(set, place)
    }

    /// Takes back what a group holds, for others to lease.
    pub fn give_back(&mut self, group: GroupId) {
        let back = self.held.take_all_of(group);
        for chunk in &back {
            self.leased.remove(chunk);
        }
        if !back.is_empty() {
            self.touch(back.iter().copied().collect());
        }
        self.returned.extend(back);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::ids::Incarnation;

    const CHUNKING: Chunking = Chunking {
        epoch_samples: 10,
        chunk_samples: 4,
        sets: 1,
    };
    const LIFE: Incarnation = Incarnation(1);

    fn lease(ledger: &mut Ledger, group: u32, finished: &[u64], holds: &[u64]) -> u64 {
        let owner = (GroupId(group), LIFE);
        ledger.finish(owner, finished, |_| 3);
        ledger.lease(owner, holds, |_| vec![0]).unwrap().number
    }

    #[test]
    fn unfinished_chunks_return_and_lost_answers_are_repeated() {
        let mut ledger = Ledger::new(CHUNKING);
        assert_eq!(lease(&mut ledger, 0, &[], &[]), 0);
        assert_eq!(lease(&mut ledger, 0, &[], &[]), 0, "the answer was lost");
        assert_eq!(lease(&mut ledger, 0, &[], &[0]), 1);
        assert_eq!(lease(&mut ledger, 1, &[], &[]), 2);
        assert_eq!(lease(&mut ledger, 0, &[0], &[1]), 3);
        ledger.give_back(GroupId(0));
        assert_eq!(lease(&mut ledger, 1, &[], &[2]), 1);
        assert_eq!(lease(&mut ledger, 1, &[2], &[1]), 3);
        assert_eq!(lease(&mut ledger, 1, &[2], &[1, 3]), 4);
        assert_eq!(
            ledger.unused(),
            4 % 3 + 2,
            "chunk 0 has four samples, chunk 2 two; batches of 3"
        );
    }

    #[test]
    fn refused() {
        let mut ledger = Ledger::new(CHUNKING);
        let mut holds = vec![];
        for _ in 0..CHUNKS_HELD_MAX {
            holds.push(lease(&mut ledger, 0, &[], &holds));
        }
        let ask = |ledger: &mut Ledger, holds: &[u64]| {
            ledger.lease((GroupId(0), LIFE), holds, |_| vec![0])
        };
        assert_eq!(
            ask(&mut ledger, &holds),
            Err(LeaseRefused::TooMany { group: GroupId(0) })
        );
        assert_eq!(
            ask(&mut ledger, &[99]),
            Err(LeaseRefused::NotHeld {
                group: GroupId(0),
                chunk: 99
            })
        );
    }

    #[test]
    fn a_ledger_goes_on_with_chunks_of_another_size() {
        let ledger = |samples, epoch| {
            let position = DataPosition { epoch, samples };
            Ledger::from_position(CHUNKING, position).position()
        };
        assert_eq!(
            ledger(0, 1),
            DataPosition {
                epoch: 1,
                samples: 0
            }
        );
        assert_eq!(
            ledger(5, 1),
            DataPosition {
                epoch: 1,
                samples: 8
            }
        );
        assert_eq!(
            ledger(9, 1),
            DataPosition {
                epoch: 2,
                samples: 0
            }
        );
        assert_eq!(
            ledger(99, 1),
            DataPosition {
                epoch: 2,
                samples: 0
            }
        );
    }

    #[test]
    fn what_is_out_returns_at_once() {
        let mut before = Ledger::new(CHUNKING);
        lease(&mut before, 0, &[], &[]);
        lease(&mut before, 0, &[], &[0]);
        lease(&mut before, 1, &[], &[]);
        lease(&mut before, 1, &[2], &[]);
        let mut after = before.all_returned();
        let next = [0, 1, 3, 4].map(|want| (lease(&mut after, want as u32 + 5, &[], &[]), want));
        assert!(next.iter().all(|(got, want)| got == want), "{next:?}");
    }

    #[test]
    fn a_successor_asks_groups_what_was_forgotten() {
        let mut written = Ledger::new(CHUNKING);
        assert_eq!(lease(&mut written, 0, &[], &[]), 0);
        let mut former = written.clone();
        assert_eq!(lease(&mut former, 1, &[], &[]), 1);
        assert_eq!(lease(&mut former, 0, &[0], &[]), 2);
        assert_eq!(lease(&mut former, 1, &[1], &[]), 3);

        let mut ledger = written;
        ledger.take_over();
        // Nobody is given what somebody may have.
        assert_eq!(lease(&mut ledger, 2, &[], &[]), 1 + FORGOTTEN_MAX);
        ledger.believe((GroupId(1), LIFE), &[3]);
        ledger.believe((GroupId(0), LIFE), &[2, 1_000_000]);
        assert_eq!(lease(&mut ledger, 1, &[], &[3]), 2 + FORGOTTEN_MAX);
        let far = ledger.check((GroupId(0), LIFE), &[], &[1_000_000]);
        assert!(far.is_err(), "what cannot be is not believed");
        ledger.settle();
        let next = lease(&mut ledger, 2, &[], &[1 + FORGOTTEN_MAX]);
        assert_eq!(
            next, 4,
            "1 is finished, 2 and 3 are held, 4 never was leased"
        );
        // Chunk 0 is still out to group 0, which has not said that it is finished.
        let lost = lease(&mut ledger, 0, &[], &[2]);
        assert_eq!(lost, 0);
    }

    /// Ten samples in three sets of 3, 3 and 4, chunks of 2.
    const SETS: Chunking = Chunking {
        epoch_samples: 10,
        chunk_samples: 2,
        sets: 3,
    };

    /// What a group leases and finishes until an epoch is over, as (set, first position).
    fn passed(
        ledger: &mut Ledger,
        group: u32,
        first: &[u32],
        chunks: usize,
    ) -> Vec<(u64, u32, u64)> {
        let owner = (GroupId(group), LIFE);
        let chunks = (0..chunks).map(|_| {
            let chunk = ledger.lease(owner, &[], |_| first.to_vec()).unwrap();
            ledger.finish(owner, &[chunk.number], |_| 2);
            let (set, _) = ledger.chunking.place(chunk.number);
            (chunk.epoch, set, chunk.positions.start)
        });
        chunks.collect()
    }

    #[test]
    fn a_group_takes_its_own_sets_first_and_then_what_others_have_left() {
        let mut ledger = Ledger::new(SETS);
        assert_eq!(passed(&mut ledger, 0, &[1], 1), [(0, 1, 3)]);
        assert_eq!(
            passed(&mut ledger, 1, &[2, 0], 3),
            [(0, 2, 6), (0, 2, 8), (0, 0, 0)]
        );
        // Its own are passed, and nobody's has more than one left: the lowest.
        assert_eq!(passed(&mut ledger, 1, &[2], 1), [(0, 0, 2)]);
        assert_eq!(passed(&mut ledger, 1, &[2], 1), [(0, 1, 5)]);
        // The next epoch begins when nothing of this one is left.
        assert_eq!(passed(&mut ledger, 0, &[1], 2), [(1, 1, 3), (1, 1, 5)]);
        let others: Vec<_> = passed(&mut ledger, 0, &[1], 4)
            .iter()
            .map(|(_, set, _)| *set)
            .collect();
        assert_eq!(
            others,
            [0, 0, 2, 2],
            "it stays with a set that it has taken from"
        );
        assert_eq!(
            ledger.position(),
            DataPosition {
                epoch: 2,
                samples: 0
            }
        );
    }

    #[test]
    fn most_is_left_of_the_set_of_a_group_that_is_gone() {
        let chunking = Chunking {
            epoch_samples: 30,
            ..SETS
        };
        let mut ledger = Ledger::new(chunking);
        passed(&mut ledger, 0, &[0], 5);
        passed(&mut ledger, 1, &[1], 2);
        assert_eq!(passed(&mut ledger, 0, &[0], 2), [(0, 2, 20), (0, 2, 22)]);
        // It stays there though of another one more is left now.
        passed(&mut ledger, 2, &[2], 1);
        ledger.takers.insert(2, GroupId(0));
        assert_eq!(passed(&mut ledger, 0, &[0], 1), [(0, 2, 26)]);
    }

    #[test]
    fn what_comes_back_is_leased_in_its_own_epoch() {
        let mut ledger = Ledger::new(SETS);
        let owner = |group| (GroupId(group), LIFE);
        let lost = ledger.lease(owner(1), &[], |_| vec![1]).unwrap();
        passed(&mut ledger, 0, &[0], 5);
        assert_eq!(
            passed(&mut ledger, 0, &[0], 1),
            [(1, 0, 0)],
            "all else is leased"
        );
        ledger.give_back(GroupId(1));
        let again = ledger.lease(owner(0), &[], |_| vec![0]).unwrap();
        assert_eq!(again, lost);
        assert_eq!(
            ledger.position(),
            DataPosition {
                epoch: 1,
                samples: 2
            }
        );
    }

    /// Groups come and go, coordinators too; after all, each chunk of each epoch was passed once.
    #[test]
    fn every_chunk_of_every_set_is_passed_once_an_epoch() {
        for seed in 0..200u64 {
            let chunking = Chunking {
                epoch_samples: 17 + seed % 40,
                chunk_samples: 1 + seed % 5,
                sets: 1 + (seed % 7) as u32,
            };
            let mut ledger = Ledger::new(chunking);
            let mut held: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            let mut passed: BTreeMap<u64, u32> = BTreeMap::new();
            let mut state = seed;
            let mut draw = |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % below
            };
            let (mut written, mut leases) = (ledger.clone(), 0);
            let mut finished = VecDeque::new();
            // As somebody has it who is told of changes.
            let mut told = ledger.clone();
            for _ in 0..400 {
                let group = draw(4) as u32;
                let owner = (GroupId(group), LIFE);
                let mine = held.entry(group).or_default();
                match draw(12) {
                    0 => {
                        ledger.give_back(GroupId(group));
                        mine.clear();
                        (written, leases) = (ledger.clone(), 0);
                    }
                    1..4 if !mine.is_empty() => {
                        let done = mine.remove(0);
                        finished.push_back((owner, done));
                        finished.drain(..finished.len().saturating_sub(FORGOTTEN_MAX as usize));
                        ledger.finish(owner, &[done], |_| 1);
                        *passed.entry(done).or_default() += 1;
                    }
                    4 if leases < FORGOTTEN_MAX => {
                        // A successor, that knows what was written down, and hears what groups hold and
                        // have finished.
                        ledger = written.clone();
                        told = written.clone();
                        ledger.take_over();
                        for (owner, done) in &finished {
                            ledger.finish(*owner, &[*done], |_| 1);
                        }
                        for (group, holds) in &held {
                            ledger.believe((GroupId(*group), LIFE), holds);
                        }
                        ledger.settle();
                        (written, leases) = (ledger.clone(), 0);
                    }
                    5 => (written, leases) = (ledger.clone(), 0),
                    _ if mine.len() < CHUNKS_HELD_MAX => {
                        let chunk = ledger.lease(owner, mine, |_| vec![group % chunking.sets]);
                        let chunk = chunk.unwrap();
                        assert!(!chunk.positions.is_empty(), "seed {seed}: {chunk:?}");
                        mine.push(chunk.number);
                        leases += 1;
                    }
                    _ => {}
                }
                let text = serde_json::to_string(&ledger).unwrap();
                assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
                if let Some(change) = ledger.take_change() {
                    let text = serde_json::to_string(&change).unwrap();
                    told.change(serde_json::from_str(&text).unwrap());
                }
                assert_eq!(told, ledger, "seed {seed}: a change is not told");
            }
            assert!(
                passed.values().all(|times| *times == 1),
                "seed {seed}: {passed:?}"
            );
            // All that is out comes back: what was never passed is leased, epoch by epoch.
            let mut ledger = ledger.all_returned();
            let last = passed
                .keys()
                .map(|n| chunking.chunk(*n).epoch)
                .max()
                .unwrap_or(0);
            loop {
                let owner = (GroupId(9), LIFE);
                let chunk = ledger.lease(owner, &[], |_| vec![0]).unwrap();
                assert!(!chunk.positions.is_empty(), "seed {seed}: {chunk:?}");
                if chunk.epoch > last {
                    break;
                }
                ledger.finish(owner, &[chunk.number], |_| 1);
                *passed.entry(chunk.number).or_default() += 1;
            }
            let mut want = 0;
            for (number, times) in &passed {
                assert_eq!(*times, 1, "seed {seed}: chunk {number}");
                let positions = chunking.chunk(*number).positions;
                want += positions.end - positions.start;
            }
            assert_eq!(want, (last + 1) * chunking.epoch_samples, "seed {seed}");
        }
    }

    #[test]
    fn what_was_written_before_there_were_sets_is_read() {
        let text = r#"{"chunking":{"epoch_samples":10,"chunk_samples":4},"next":4,"held":{"3":[1,1]},"returned":[2],"unused":1,"forgotten":{"chunks":{"start":2,"end":4},"claimed":3}}"#;
        let mut ledger: Ledger = serde_json::from_str(text).unwrap();
        assert_eq!(
            ledger.position(),
            DataPosition {
                epoch: 1,
                samples: 4
            }
        );
        ledger.settle();
        assert_eq!(lease(&mut ledger, 0, &[], &[]), 2);
        assert_eq!(lease(&mut ledger, 0, &[2], &[]), 4);
        let text = serde_json::to_value(Ledger::new(CHUNKING)).unwrap();
        assert_eq!(text["next"], 0, "as before, where there is one set");
    }

    #[test]
    fn a_successor_leaves_no_more_of_an_epoch_out_than_may_have_been_leased() {
        let chunking = Chunking {
            epoch_samples: 6 * 35,
            chunk_samples: 1,
            sets: 6,
        };
        let mut ledger = Ledger::new(chunking);
        passed(&mut ledger, 0, &[0], 5);
        ledger.take_over();
        // Of 205 chunks 64 may have been leased, by whichever groups: of each set all that is left, but none of
        // the next epoch.
        assert_eq!(passed(&mut ledger, 1, &[3], 1), [(1, 3, 3 * 35)]);
        ledger.settle();
        assert_eq!(passed(&mut ledger, 1, &[3], 1), [(0, 3, 3 * 35)]);
    }
}
