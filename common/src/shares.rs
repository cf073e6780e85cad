//! Which samples are whose under `sync`: they follow from (clock, rank), with nobody asked.
//!
//! The training data are the epochs one after the other; a *position* counts samples through all of
//! them. An epoch's incomplete last global batch is dropped.

use std::ops::Range;

use crate::batch::Batches;
use crate::clock::Clock;
use crate::ids::{GroupId, Rank};

/// The first step of a clock as the others of this module count them, where a group takes so many
/// steps between two exchanges: whatever their number, the same samples come in the same order.
pub fn first_step(clock: Clock, local_steps: u32) -> Clock {
    Clock(clock.0 * u64::from(local_steps))
}

/// The samples of one rank at one clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncShare {
    /// The epoch.
    pub epoch: u64,
    /// Positions in the epoch's permutation.
    pub positions: Range<u64>,
}

/// The share of `rank` of `group` at `clock`, which counts steps, when every rank of all groups takes
/// a batch.
/// Ranks and sizes are the configured ones: whoever is missing leaves its share out. The data of
/// the clock `origin.0` begin at the position `origin.1`: at (0, 0), unless the run was resumed.
/// `None` if an epoch has not one global batch.
pub fn sync_share(
    group_sizes: &[u32],
    batches: Batches<'_>,
    epoch_samples: u64,
    origin: (Clock, u64),
    (clock, group, rank): (Clock, GroupId, Rank),
) -> Option<SyncShare> {
    let (batch, position) = at_clock(group_sizes, batches, epoch_samples, origin, clock)?;
    let batch = u64::from(batch);
    let before = ranks(&group_sizes[..group.0 as usize]) + u64::from(rank.0);
    let begin = position % epoch_samples + before * batch;
    Some(SyncShare {
        epoch: position / epoch_samples,
        positions: begin..begin + batch,
    })
}

/// The position at which the data of `clock` begin: what a run that is resumed at that clock, with
/// other groups maybe, has for its origin. Arguments are those of [`sync_share`].
pub fn sync_position(
    group_sizes: &[u32],
    batches: Batches<'_>,
    epoch_samples: u64,
    origin: (Clock, u64),
    clock: Clock,
) -> Option<u64> {
    let (_, position) = at_clock(group_sizes, batches, epoch_samples, origin, clock)?;
    Some(position)
}

/// The size of batches at a clock, and the position at which its data begin. A batch has the size
/// that is due at the position where it would have begun with the size before.
fn at_clock(
    group_sizes: &[u32],
    batches: Batches<'_>,
    epoch_samples: u64,
    mut origin: (Clock, u64),
    clock: Clock,
) -> Option<(u32, u64)> {
    let ranks = ranks(group_sizes);
    let mut batch = batches.first;
    for step in batches.ramp {
        let global = ranks * u64::from(batch);
        let at = |clock| global_batch(global, epoch_samples, origin, Clock(clock));
        if at(clock.0)? < step.samples {
            break;
        }
        // Positions grow with clocks: the first clock that is so far.
        let (mut before, mut first) = (origin.0.0, clock.0.max(origin.0.0));
        while before < first {
            let middle = before.midpoint(first);
            match at(middle)? < step.samples {
                true => before = middle + 1,
                false => first = middle,
            }
        }
        origin = (Clock(first), at(first)?);
        batch = step.batch;
    }
    let global = ranks * u64::from(batch);
    Some((batch, global_batch(global, epoch_samples, origin, clock)?))
}

/// The position at which the data of a clock begin, with `global` samples a clock from the origin on.
/// Clocks before the origin count as the origin.
fn global_batch(
    global: u64,
    epoch_samples: u64,
    (origin, passed): (Clock, u64),
    clock: Clock,
) -> Option<u64> {
    let steps = epoch_samples
        .checked_div(global)
        .filter(|steps| *steps > 0)?;
    let after = clock.0.saturating_sub(origin.0);
    let (epoch, begin) = (passed / epoch_samples, passed % epoch_samples);
    let left = (epoch_samples - begin) / global;
    let (epoch, begin) = match after.checked_sub(left) {
        None => (epoch, begin + after * global),
        Some(after) => (epoch + 1 + after / steps, after % steps * global),
    };
    Some(epoch * epoch_samples + begin)
}

fn ranks(sizes: &[u32]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchStep;

    const BEGINNING: (Clock, u64) = (Clock(0), 0);

    const TWO: Batches<'_> = Batches {
        first: 2,
        ramp: &[],
    };

    /// Epoch and positions of all ranks of groups of 1 and 2 at a clock, batches of 2, epochs of 20.
    fn at(origin: (Clock, u64), clock: u64) -> (u64, Vec<u64>) {
        let (mut epoch, mut seen) = (0, vec![]);
        for (group, rank) in [(0, 0), (1, 0), (1, 1)] {
            let who = (Clock(clock), GroupId(group), Rank(rank));
            let share = sync_share(&[1, 2], TWO, 20, origin, who).unwrap();
            epoch = share.epoch;
            seen.extend(share.positions);
        }
        (epoch, seen)
    }

    #[test]
    fn shares_tile_the_epoch_and_drop_its_rest() {
        let seen: Vec<_> = (0..3).flat_map(|clock| at(BEGINNING, clock).1).collect();
        assert_eq!(seen, (0..18).collect::<Vec<_>>());
        assert_eq!(at(BEGINNING, 2).0, 0);
        assert_eq!(at(BEGINNING, 3), (1, (0..6).collect()));
        assert_eq!(at(BEGINNING, 7), (2, (6..12).collect()));
        let who = (Clock(0), GroupId(0), Rank(0));
        assert_eq!(sync_share(&[1, 2], TWO, 5, BEGINNING, who), None);
        assert_eq!(sync_share(&[1, 2], TWO, 0, BEGINNING, who), None);
    }

    #[test]
    fn a_resumed_run_goes_on_behind_what_was_passed() {
        // 27 were passed: 7 of epoch 1. Two global batches of 6 fit behind them.
        let origin = (Clock(40), 27);
        assert_eq!(at(origin, 40), (1, (7..13).collect()));
        assert_eq!(at(origin, 41), (1, (13..19).collect()));
        assert_eq!(at(origin, 42), (2, (0..6).collect()));
        assert_eq!(at(origin, 45), (3, (0..6).collect()));
        // Less than a global batch is left: it is dropped.
        assert_eq!(at((Clock(40), 37), 40), (2, (0..6).collect()));
    }

    #[test]
    fn a_run_that_is_resumed_with_the_same_groups_takes_the_same_samples() {
        for resumed in 0..9 {
            let resumed = Clock(resumed);
            let position = sync_position(&[1, 2], TWO, 20, BEGINNING, resumed).unwrap();
            for clock in resumed.0..20 {
                assert_eq!(at((resumed, position), clock), at(BEGINNING, clock));
            }
        }
    }
    const RAMP: [BatchStep; 3] = [
        BatchStep {
            samples: 7,
            batch: 2,
        },
        BatchStep {
            samples: 17,
            batch: 4,
        },
        BatchStep {
            samples: 19,
            batch: 8,
        },
    ];

    /// Size and position of the clocks from the origin on, one after the other.
    fn by_hand(ranks: u64, epoch: u64, origin: u64, clocks: usize) -> Vec<(u32, u64)> {
        let (mut batch, mut position) = (1, origin);
        let mut all = Vec::new();
        for _ in 0..clocks {
            loop {
                // A rest that fills no global batch is dropped.
                if epoch - position % epoch < ranks * u64::from(batch) {
                    position = (position / epoch + 1) * epoch;
                }
                let due = RAMP
                    .iter()
                    .find(|s| s.batch > batch && s.samples <= position);
                match due {
                    Some(step) => batch = step.batch,
                    None => break,
                }
            }
            all.push((batch, position));
            position += ranks * u64::from(batch);
        }
        all
    }

    #[test]
    fn batches_grow_with_the_position() {
        let batches = Batches {
            first: 1,
            ramp: &RAMP,
        };
        for (sizes, epoch) in [(&[1][..], 8), (&[1, 2], 24), (&[1, 2], 25), (&[2, 2], 37)] {
            let ranks: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
            let want = by_hand(ranks, epoch, 0, 60);
            for (clock, want) in (0..).zip(&want) {
                let got = at_clock(sizes, batches, epoch, BEGINNING, Clock(clock));
                assert_eq!(got.as_ref(), Some(want), "{sizes:?} {epoch} clock {clock}");
            }
            // Whoever goes on at a clock takes the same ones from there.
            for from in 0..20usize {
                let origin = (Clock(from as u64), want[from].1);
                for (clock, want) in (0..).zip(&want).skip(from) {
                    let got = at_clock(sizes, batches, epoch, origin, Clock(clock));
                    assert_eq!(
                        got.as_ref(),
                        Some(want),
                        "{sizes:?} {epoch} {from}: {clock}"
                    );
                }
            }
        }
        assert_eq!(at_clock(&[4], batches, 31, BEGINNING, Clock(60)), None);
        let who = (Clock(7), GroupId(1), Rank(1));
        let share = sync_share(&[1, 2], batches, 24, BEGINNING, who).unwrap();
        assert_eq!((share.epoch, share.positions), (3, 16..24));
    }
}
