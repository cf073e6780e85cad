//! Which samples are whose: epochs cut into numbered chunks, leased to groups as they ask.
//!
//! Positions are those in the epoch's permutation, which follows from (seed, epoch) and is known
//! to every rank; so a chunk is a range, and a lease is a number. Where the data are cut into
//! [sets](DataSets), each is permuted within itself, and a chunk lies in one of them.

mod held;
mod ledger;
mod sets;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use self::ledger::{CHUNKS_HELD_MAX, FORGOTTEN_MAX, LeaseRefused, Ledger, LedgerChange};
pub use self::sets::{DataSets, SETS_MAX};

/// A numbered piece of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// From 0 through all epochs.
    pub number: u64,
    /// The epoch it lies in.
    pub epoch: u64,
    /// Positions in the epoch's permutation. The last chunk of a set may be shorter.
    pub positions: Range<u64>,
}

/// Most steps of the largest group in a chunk that is to leave no group a rest.
const STEPS_MAX: u64 = 16;

/// How an epoch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunking {
    /// Samples in an epoch; more than 0.
    pub epoch_samples: u64,
    /// Samples in a chunk; more than 0.
    pub chunk_samples: u64,
    /// Sets of samples, of which a chunk has one; from 1 to the samples in an epoch.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub sets: u32,
}

/// Sets of what was written before there were any.
fn one() -> u32 {
    1
}

fn is_one(sets: &u32) -> bool {
    *sets == 1
}

impl Chunking {
    /// Samples in a chunk that groups of so many ranks, with `batch` samples each, take in whole
    /// steps: the least common multiple of their steps, and at least two steps of the largest group.
    /// Where that would be more than 16 of its steps it is two, and groups of another size
    /// leave a rest of each chunk. Steps of a batch that `batch` is a multiple of leave none, either. It is a
    /// multiple of that where ranks ask for `ahead` batches before they use them, which all but one of the
    /// [`CHUNKS_HELD_MAX`] chunks are to hold.
    pub fn fitting(groups: &[u32], batch: u32, ahead: u64) -> u64 {
        let largest = u64::from(groups.iter().copied().max().unwrap_or(1));
        let multiple = groups.iter().try_fold(1u64, |all, ranks| {
            let all = lcm(all, u64::from(*ranks));
            (all <= STEPS_MAX * largest).then_some(all)
        });
        let ranks = multiple.unwrap_or(largest).max(2 * largest);
        let steps = ranks / largest * (CHUNKS_HELD_MAX as u64 - 1);
        let times = (ahead + 1).div_ceil(steps);
        times * ranks * u64::from(batch)
    }

    /// The fewest steps of `step` samples in so many chunks that follow one another: the last chunk of a set may be
    /// shorter, and one without a whole step counts for none.
    pub fn fewest_steps(&self, chunks: u64, step: u64) -> u64 {
        let set = self.epoch_samples / u64::from(self.sets);
        let (whole, rest) = (set / self.chunk_samples, set % self.chunk_samples);
        let (of_whole, of_rest) = (self.chunk_samples / step, rest / step);
        if of_rest == 0 {
            return if whole == 0 { 0 } else { chunks * of_whole };
        }
        let rests = chunks.div_ceil(whole + 1);
        (chunks - rests) * of_whole + rests * of_rest
    }

    /// The chunk of this number.
    pub fn chunk(&self, number: u64) -> Chunk {
        let (set, place) = self.place(number);
        let (slots, set) = (self.slots(), self.set(set));
        let begin = set.start + place % slots * self.chunk_samples;
        let end = begin.saturating_add(self.chunk_samples).min(set.end);
        Chunk {
            number,
            epoch: place / slots,
            positions: begin..end,
        }
    }
}

/// The least common multiple, of numbers more than 0 that are less than 2³² and 2³⁷.
fn lcm(a: u64, b: u64) -> u64 {
    let (mut gcd, mut rest) = (a, b);
    while rest > 0 {
        (gcd, rest) = (rest, gcd % rest);
    }
    (a / gcd).saturating_mul(b)
}

/// How far the training data have been passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPosition {
    /// Whole epochs.
    pub epoch: u64,
    /// Samples of the epoch after them.
    pub samples: u64,
}

impl DataPosition {
    /// The position that many samples in, all epochs counted whole.
    pub fn after(samples: u64, epoch_samples: u64) -> Self {
        Self {
            epoch: samples / epoch_samples,
            samples: samples % epoch_samples,
        }
    }

    /// Samples up to here, all epochs counted whole; a position past the end of its epoch, which
    /// had more samples once, is the beginning of the next one.
    pub fn passed(self, epoch_samples: u64) -> u64 {
        self.epoch * epoch_samples + self.samples.min(epoch_samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_tile_every_epoch() {
        let chunking = Chunking {
            epoch_samples: 10,
            chunk_samples: 4,
            sets: 1,
        };
        let ranges: Vec<_> = (0..4)
            .map(|n| chunking.chunk(n))
            .map(|c| (c.epoch, c.positions))
            .collect();
        assert_eq!(ranges, [(0, 0..4), (0, 4..8), (0, 8..10), (1, 0..4)]);
    }

    #[test]
    fn chunks_in_a_row_have_so_many_steps_at_least() {
        for (epoch_samples, chunk_samples) in
            [(2, 16), (2, 1), (100, 16), (96, 16), (40, 16), (8, 16)]
        {
            let chunking = Chunking {
                epoch_samples,
                chunk_samples,
                sets: 1,
            };
            for step in [1, 2, 3, 4, 16] {
                let steps = (0..100).map(|n| chunking.chunk(n).positions);
                let steps = steps.map(|positions| (positions.end - positions.start) / step);
                let steps: Vec<u64> = steps.filter(|steps| *steps > 0).collect();
                for chunks in 1..5 {
                    let in_a_row = steps.windows(chunks).map(|row| row.iter().sum::<u64>());
                    let fewest = in_a_row.min().unwrap_or(0);
                    let told = chunking.fewest_steps(chunks as u64, step);
                    assert_eq!(
                        told, fewest,
                        "{chunking:?}, {chunks} chunks, steps of {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn chunks_fit_the_steps_of_all_groups() {
        let check = |groups: &[u32], batch, want| {
            let got = Chunking::fitting(groups, batch, 2);
            assert_eq!(got, want, "{groups:?} of {batch}");
            let largest = u64::from(*groups.iter().max().unwrap() * batch);
            assert!((2 * largest..=16 * largest).contains(&got) && got.is_multiple_of(largest));
        };
        check(&[1], 8, 16);
        check(&[4, 4], 8, 64);
        check(&[4, 2, 1], 8, 64);
        check(&[4, 3], 8, 96);
        check(&[6, 4], 1, 12);
        check(&[16, 15], 2, 480);
        check(&[2, 3, 5, 6], 1, 30);
        // 7 times 17 and 8 times 9 times 7: more than 16 steps.
        check(&[17, 7, 3], 1, 34);
        check(&[9, 8, 7], 4, 72);
        check(&[u16::MAX.into(), 65_534], 1, 131_070);

        // Three chunks hold what is read ahead and the batch at hand.
        let ahead = |groups: &[u32], ahead| Chunking::fitting(groups, 8, ahead);
        assert_eq!([5, 6, 11, 12].map(|n| ahead(&[1], n)), [16, 32, 32, 48]);
        assert_eq!(ahead(&[4, 2], 16), 3 * 64);
    }
}
