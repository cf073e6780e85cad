//! Why training ends before the budget.

use tradewind_client::exchange_error::ExchangeError;

use crate::c10d::C10dError;
use crate::data::DataError;
use crate::feed::FeedError;
use crate::group::GroupError;
use crate::host::HostError;

/// A group that has skipped so many exchanges in a row, or a part of each, gives up: something of
/// the model would never be trained.
pub(crate) const SKIPS_MAX: u32 = 100;

/// Why training ended before the budget.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// No next batch.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The batch cannot be brought to the device.
    #[error(transparent)]
    Data(#[from] DataError),
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
    #[error("the lease is lost")]
    LeaseLost,
    /// The training has diverged, or the data are not finite.
    #[error(
        "{SKIPS_MAX} exchanges in a row had no finite gradient, or not of all (the last at clock {clock}): training has diverged; lower optimizer.learning_rate or lengthen schedule.warmup_samples"
    )]
    Diverged {
        /// The last of them.
        clock: u64,
    },
}
