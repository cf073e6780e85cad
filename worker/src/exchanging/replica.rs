//! The model of a rank, and the ranks that have the same.

use tradewind_client::core::session::Summary;
use tradewind_client::ranks::{self, Broken};

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
        Ok(self.over_ranks(own)?)
    }

    /// The summary over the blocks of all ranks, of which this one's came to `own`.
    pub(super) fn over_ranks(&self, own: Summary) -> Result<Summary, Broken> {
        ranks::over(&*self.group, own, (self.leave)())
    }
}
