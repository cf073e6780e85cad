//! The ranks of a group, as far as they agree on something: whoever computes the gradients knows how.

use tradewind_common::{Clock, Rank};

use crate::core::session::Summary;

/// A peer is gone, or this rank has failed alone and the peers cannot know. The group can no longer be
/// used: form another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the group is broken: {message}")]
pub struct Broken {
    /// What is known of it.
    pub message: String,
}

/// Ranks that step together. All of them make the same calls in the same order, with slices of equal
/// lengths; a call returns when this rank's part is done.
pub trait Ranks {
    /// This process's rank in the group.
    fn rank(&self) -> Rank;

    /// How many ranks there are.
    fn size(&self) -> u32;

    /// Sums over the ranks, in place: for small control messages such as loss sums and flags.
    fn all_reduce_sum(&self, values: &mut [f64]) -> Result<(), Broken>;

    /// Copies the values of rank 0 to all ranks.
    fn broadcast(&self, values: &mut [i64]) -> Result<(), Broken>;
}

/// What an exchange came to over the blocks of all ranks, this one's to `own`; `leave` says whether this
/// rank has been asked to leave. What one rank was asked, all of them do.
///
/// Every rank puts its own numbers into its slots of a sum, and all take the largest, or of what is counted
/// the sum. Counts stay exact below 2^53.
pub fn over(ranks: &dyn Ranks, own: Summary, leave: bool) -> Result<Summary, Broken> {
    const FIELDS: usize = 9;
    let mut slots = vec![0.0; FIELDS * ranks.size() as usize];
    let at = FIELDS * ranks.rank().0 as usize;
    slots[at..at + FIELDS].copy_from_slice(&[
        own.updates as f64,
        own.delay.map_or(0.0, |delay| delay as f64 + 1.0),
        own.lag as f64,
        own.waited_us as f64,
        own.samples_applied as f64,
        f64::from(u8::from(own.stop)),
        own.dropped as f64,
        own.next.0 as f64,
        f64::from(u8::from(leave)),
    ]);
    ranks.all_reduce_sum(&mut slots)?;
    let of_ranks = |field: usize| slots.iter().skip(field).step_by(FIELDS);
    let largest = |field: usize| of_ranks(field).fold(0.0, |a, b| f64::max(a, *b));
    Ok(Summary {
        updates: largest(0) as u64,
        delay: (largest(1) as u64).checked_sub(1),
        lag: largest(2) as u64,
        waited_us: largest(3) as u64,
        samples_applied: largest(4) as u64,
        stop: largest(5) > 0.0,
        dropped: of_ranks(6).sum::<f64>() as u64,
        next: Clock(largest(7) as u64),
        leave: largest(8) > 0.0,
    })
}

/// A group of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> u32 {
        1
    }

    fn all_reduce_sum(&self, _values: &mut [f64]) -> Result<(), Broken> {
        Ok(())
    }

    fn broadcast(&self, _values: &mut [i64]) -> Result<(), Broken> {
        Ok(())
    }
}
