//! The model of a rank, and the ranks that have the same.

use tradewind_client::ranks::Ranks;
use tradewind_client::replica;

use crate::flat::Flat;
use crate::group::Group;
use crate::train_error::TrainError;

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

impl replica::Replica for Replica<'_> {
    type Error = TrainError;

    fn ranks(&self) -> &dyn Ranks {
        &*self.group
    }

    fn is_asked_to_leave(&self) -> bool {
        (self.leave)()
    }

    fn gather(&mut self) -> Result<(), TrainError> {
        Ok(self.group.gather(self.flat)?)
    }
}
