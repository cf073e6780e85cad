//! Which samples are whose under `sync`: they follow from (clock, rank), with nobody asked.
//!
//! The training data are the epochs one after the other; a *position* counts samples through all of
//! them. An epoch's incomplete last global batch is dropped.

use std::ops::Range;

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

/// The share of `rank` of `group` at `clock`, which counts steps, when every rank of all groups takes `batch` samples.
/// Ranks and sizes are the configured ones: whoever is missing leaves its share out. The data of
/// the clock `origin.0` begin at the position `origin.1`: at (0, 0), unless the run was resumed.
/// `None` if an epoch has not one global batch.
pub fn sync_share(
    group_sizes: &[u32],
    batch: u32,
    epoch_samples: u64,
    origin: (Clock, u64),
    (clock, group, rank): (Clock, GroupId, Rank),
) -> Option<SyncShare> {
    let (epoch, begin) = global_batch(group_sizes, batch, epoch_samples, origin, clock)?;
    let batch = u64::from(batch);
    let before = ranks(&group_sizes[..group.0 as usize]) + u64::from(rank.0);
    let begin = begin + before * batch;
    Some(SyncShare {
        epoch,
        positions: begin..begin + batch,
    })
}

/// The position at which the data of `clock` begin: what a run that is resumed at that clock, with
/// other groups maybe, has for its origin. Arguments are those of [`sync_share`].
pub fn sync_position(
    group_sizes: &[u32],
    batch: u32,
    epoch_samples: u64,
    origin: (Clock, u64),
    clock: Clock,
) -> Option<u64> {
    let (epoch, begin) = global_batch(group_sizes, batch, epoch_samples, origin, clock)?;
    Some(epoch * epoch_samples + begin)
}

/// Epoch of the global batch of a clock, and where in the epoch it begins. Clocks before the origin
/// count as the origin.
fn global_batch(
    group_sizes: &[u32],
    batch: u32,
    epoch_samples: u64,
    (origin, passed): (Clock, u64),
    clock: Clock,
) -> Option<(u64, u64)> {
    let global = ranks(group_sizes) * u64::from(batch);
    let steps = epoch_samples
        .checked_div(global)
        .filter(|steps| *steps > 0)?;
    let after = clock.0.saturating_sub(origin.0);
    let (epoch, begin) = (passed / epoch_samples, passed % epoch_samples);
    let left = (epoch_samples - begin) / global;
    Some(match after.checked_sub(left) {
        None => (epoch, begin + after * global),
        Some(after) => (epoch + 1 + after / steps, after % steps * global),
    })
}

fn ranks(sizes: &[u32]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGINNING: (Clock, u64) = (Clock(0), 0);

    /// Epoch and positions of all ranks of groups of 1 and 2 at a clock, batches of 2, epochs of 20.
    fn at(origin: (Clock, u64), clock: u64) -> (u64, Vec<u64>) {
        let (mut epoch, mut seen) = (0, vec![]);
        for (group, rank) in [(0, 0), (1, 0), (1, 1)] {
            let who = (Clock(clock), GroupId(group), Rank(rank));
            let share = sync_share(&[1, 2], 2, 20, origin, who).unwrap();
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
        assert_eq!(sync_share(&[1, 2], 2, 5, BEGINNING, who), None);
        assert_eq!(sync_share(&[1, 2], 2, 0, BEGINNING, who), None);
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
            let position = sync_position(&[1, 2], 2, 20, BEGINNING, resumed).unwrap();
            for clock in resumed.0..20 {
                assert_eq!(at((resumed, position), clock), at(BEGINNING, clock));
            }
        }
    }
}
