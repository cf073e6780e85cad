//! Why training ends before the budget.

use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::feed::FeedError;
use tradewind_client::membership::{LeaseLost, NoneFinite};
use tradewind_client::ranks::Broken;

use crate::c10d::C10dError;
use crate::data::DataError;
use crate::group::GroupError;
use crate::host::HostError;

/// Why training ended before the budget.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// No samples for the next batch.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The batch cannot be read, or not brought to the device.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A batch could not be put into the device's order of work.
    #[error(transparent)]
    Copy(C10dError),
    /// The group broke.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// A shard refused, or is gone.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// libtorch has no such precision here.
    #[error(transparent)]
    Precision(C10dError),
    /// Values did not come from where the model is, or not there.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The coordinator has taken the group out, or has not been heard for too long.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// The training has diverged, or the data are not finite.
    #[error(transparent)]
    Diverged(#[from] NoneFinite),
}

impl From<Broken> for TrainError {
    fn from(error: Broken) -> Self {
        GroupError::from(error).into()
    }
}
