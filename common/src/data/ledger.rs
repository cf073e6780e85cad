//! Which chunks are out, and to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Chunk, Chunking, DataPosition};
use crate::ids::{GroupId, Incarnation};

/// At most this many chunks are out to one group.
pub const CHUNKS_HELD_MAX: usize = 4;

/// A keeper of a ledger writes it down before it has leased so many more chunks.
pub const FORGOTTEN_MAX: u64 = 64;

/// Chunks that a former keeper may have leased without writing it down.
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

/// Which chunks are out, and to whom. Its size is bounded by groups × [`CHUNKS_HELD_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    chunking: Chunking,
    next: u64,
    held: BTreeMap<u64, (GroupId, Incarnation)>,
    /// Of what is held: when it was leased, counted in leases.
    #[serde(default)]
    leased: BTreeMap<u64, u64>,
    #[serde(default)]
    leases: u64,
    returned: BTreeSet<u64>,
    unused: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forgotten: Option<Forgotten>,
}

impl Ledger {
    /// A ledger from which nothing has been leased.
    pub fn new(chunking: Chunking) -> Self {
        Self {
            chunking,
            next: 0,
            held: BTreeMap::new(),
            leased: BTreeMap::new(),
            leases: 0,
            returned: BTreeSet::new(),
            unused: 0,
            forgotten: None,
        }
    }

    /// A ledger that goes on where another run or form of the data has come to, so many samples
    /// of whole epochs and positions in; a chunk that begins before is not leased.
    pub fn from_position(chunking: Chunking, position: DataPosition) -> Self {
        let per_epoch = chunking.epoch_samples.div_ceil(chunking.chunk_samples);
        let within = position.samples.min(chunking.epoch_samples);
        Self {
            next: position.epoch * per_epoch + within.div_ceil(chunking.chunk_samples),
            ..Self::new(chunking)
        }
    }

    /// How epochs are cut.
    pub fn chunking(&self) -> Chunking {
        self.chunking
    }

    /// Where the first chunk begins that was never leased.
    pub fn position(&self) -> DataPosition {
        let chunk = self.chunking.chunk(self.next);
        DataPosition {
            epoch: chunk.epoch,
            samples: chunk.positions.start,
        }
    }

    /// The same with everything returned that is out, for a time in which nobody holds anything.
    #[must_use]
    pub fn all_returned(&self) -> Self {
        let mut ledger = self.clone();
        let held = std::mem::take(&mut ledger.held);
        ledger.returned.extend(held.into_keys());
        ledger.settle();
        ledger
    }

    /// Samples of finished chunks that did not fill a batch of the group that had them.
    pub fn unused(&self) -> u64 {
        self.unused
    }

    /// Begins for somebody who follows a keeper that is gone, and that may have leased up to
    /// [`FORGOTTEN_MAX`] more chunks than are written here. Those are leased to nobody until
    /// [`settle`](Self::settle); meanwhile groups say which of them they hold.
    pub fn take_over(&mut self) {
        let forgotten = self.forgotten.take();
        let begin = forgotten.map_or(self.next, |forgotten| forgotten.chunks.start);
        self.next += FORGOTTEN_MAX;
        self.forgotten = Some(Forgotten {
            chunks: begin..self.next,
            claimed: None,
        });
    }

    /// Believes a group that it holds chunks which may have been leased to it and forgotten.
    pub fn believe(&mut self, owner: (GroupId, Incarnation), holds: &[u64]) {
        let Some(forgotten) = &mut self.forgotten else {
            return;
        };
        for number in holds.iter().filter(|n| forgotten.chunks.contains(n)) {
            forgotten.claimed = forgotten.claimed.max(Some(*number));
            self.held.entry(*number).or_insert(owner);
        }
    }

    /// Every group has had its say: of the chunks that may have been forgotten, those before the last
    /// one that somebody holds were leased and are finished; the others never were.
    pub fn settle(&mut self) {
        if let Some(forgotten) = self.forgotten.take() {
            let first = forgotten.claimed.map_or(forgotten.chunks.start, |n| n + 1);
            let never = first..forgotten.chunks.end;
            if never.end == self.next {
                self.next = never.start;
            } else {
                self.returned.extend(never);
            }
        }
    }

    /// Refuses a group that names a chunk as held which it does not hold, or has finished.
    pub fn check(
        &self,
        owner: (GroupId, Incarnation),
        finished: &[u64],
        holds: &[u64],
    ) -> Result<(), LeaseRefused> {
        let lacks =
            |chunk: &&u64| self.held.get(*chunk) != Some(&owner) || finished.contains(chunk);
        let group = owner.0;
        match holds.iter().find(lacks) {
            Some(&chunk) => Err(LeaseRefused::NotHeld { group, chunk }),
            None => Ok(()),
        }
    }

    /// Takes note of `finished` chunks of a group whose ranks together take `group_batch` samples
    /// a step of a chunk that begins at this position. A retry may name them again; then they are
    /// nobody's.
    pub fn finish(
        &mut self,
        owner: (GroupId, Incarnation),
        finished: &[u64],
        group_batch: impl Fn(u64) -> u64,
    ) {
        for number in finished {
            if self.held.get(number) == Some(&owner) {
                self.held.remove(number);
                self.leased.remove(number);
                let chunk = self.chunking.chunk(*number);
                let batch = group_batch(chunk.begins(self.chunking.epoch_samples));
                self.unused += (chunk.positions.end - chunk.positions.start) % batch;
            }
        }
    }

    /// Leases the next chunk to a group that holds `holds`. A chunk that is out to this incarnation
    /// and that it does not hold is given again, in the order of leases: it was lost with an earlier answer, or
    /// another rank has asked before.
    pub fn lease(
        &mut self,
        owner: (GroupId, Incarnation),
        holds: &[u64],
    ) -> Result<Chunk, LeaseRefused> {
        self.check(owner, &[], holds)?;
        let group = owner.0;
        let mine: Vec<u64> = self
            .held
            .iter()
            .filter(|(_, holder)| **holder == owner)
            .map(|(c, _)| *c)
            .collect();
        let unseen = mine.iter().filter(|chunk| !holds.contains(chunk));
        if let Some(lost) = unseen.min_by_key(|chunk| self.leased.get(chunk)) {
            return Ok(self.chunking.chunk(*lost));
        }
        if mine.len() >= CHUNKS_HELD_MAX {
            return Err(LeaseRefused::TooMany { group });
        }
        let number = self.returned.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.held.insert(number, owner);
        self.leases += 1;
        self.leased.insert(number, self.leases);
        Ok(self.chunking.chunk(number))
    }

    /// Takes back what a group holds, for others to lease.
    pub fn give_back(&mut self, group: GroupId) {
        let (back, kept) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(_, (holder, _))| *holder == group);
        self.held = kept;
        self.leased.retain(|chunk, _| self.held.contains_key(chunk));
        let back: BTreeMap<_, _> = back;
        self.returned.extend(back.into_keys());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKING: Chunking = Chunking {
        epoch_samples: 10,
        chunk_samples: 4,
    };
    const LIFE: Incarnation = Incarnation(1);

    fn lease(ledger: &mut Ledger, group: u32, finished: &[u64], holds: &[u64]) -> u64 {
        let owner = (GroupId(group), LIFE);
        ledger.finish(owner, finished, |_| 3);
        ledger.lease(owner, holds).unwrap().number
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
        let ask = |ledger: &mut Ledger, holds: &[u64]| ledger.lease((GroupId(0), LIFE), holds);
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
}
