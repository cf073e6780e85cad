//! The model of a rank, and the ranks that have the same.

use tradewind_client::core::session::Summary;
use tradewind_common::Clock;

use crate::flat::Flat;
use crate::group::{Group, GroupError};

/// What exchanges read and write: the rank's replica of the model, and the group in which all have the
/// same one between steps.
pub struct Replica<'a> {
    /// The ranks that step together.
    pub group: &'a mut dyn Group,
    /// The model's values.
    pub flat: &'a mut Flat,
    /// Whether this rank has been asked to leave by now.
    pub leave: &'a dyn Fn() -> bool,
}

impl Replica<'_> {
    /// This rank's slice is fresh, and its exchange came to `own`: the ranks share their slices and find
    /// one summary. What one rank was asked, all of them do.
    pub(super) fn gather(&mut self, own: Summary) -> Result<Summary, GroupError> {
        self.group.gather(self.flat)?;
        self.over_ranks(own)
    }

    /// The summary over the blocks of all ranks: every rank puts its own numbers into its slots of a
    /// sum, and all take the largest, or of what is counted the sum. Counts stay exact below 2^53.
    pub(super) fn over_ranks(&self, own: Summary) -> Result<Summary, GroupError> {
        const FIELDS: usize = 9;
        let mut slots = vec![0.0; FIELDS * self.group.size() as usize];
        let at = FIELDS * self.group.rank().0 as usize;
        slots[at..at + FIELDS].copy_from_slice(&[
            own.updates as f64,
            own.delay.map_or(0.0, |delay| delay as f64 + 1.0),
            own.lag as f64,
            own.waited_us as f64,
            own.samples_applied as f64,
            f64::from(u8::from(own.stop)),
            own.dropped as f64,
            own.next.0 as f64,
            f64::from(u8::from((self.leave)())),
        ]);
        self.group.all_reduce_sum(&mut slots)?;
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
}
