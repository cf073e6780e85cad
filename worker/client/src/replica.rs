//! The model of a rank as its exchanges see it, and the ranks that have the same one between steps.

use crate::core::session::Summary;
use crate::exchange_error::ExchangeError;
use crate::ranks::{self, Broken, Ranks};

/// A rank's replica of the model, wherever its flat vector lies.
pub trait Replica {
    /// Why it could not do its part.
    type Error: From<ExchangeError> + From<Broken>;

    /// The ranks that step together.
    fn ranks(&self) -> &dyn Ranks;

    /// Whether this rank has been asked to leave by now.
    fn is_asked_to_leave(&self) -> bool;

    /// The blocks of this rank's slice are fresh; on return all blocks are, bit for bit: the ranks share
    /// their slices.
    fn gather(&mut self) -> Result<(), Self::Error>;

    /// The summary over the blocks of all ranks, of which this one's came to `own`.
    fn over_ranks(&self, own: Summary) -> Result<Summary, Broken> {
        ranks::over(self.ranks(), own, self.is_asked_to_leave())
    }

    /// Both: this rank's slice is fresh, and its exchange came to `own`.
    fn gathered(&mut self, own: Summary) -> Result<Summary, Self::Error> {
        self.gather()?;
        Ok(self.over_ranks(own)?)
    }
}
