//! How many bytes a server holds for messages that are still arriving, of all connections together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tradewind_core::refusal::Refusal;

use crate::limits::{Limit, Notices};

/// Bytes of records that are arriving, together: four of the largest at once, and of usual ones as many as a
/// machine receives.
const ARRIVING_BYTES_MAX: usize = 1 << 30;

/// How long a message waits for room. Room comes with every record that is complete.
const PATIENCE: Duration = Duration::from_secs(5);

/// The room that there is for what arrives.
#[derive(Debug)]
pub(crate) struct Budget {
    /// A permit for each byte.
    room: Arc<Semaphore>,
    patience: Duration,
    notices: Arc<Notices>,
}

/// Room that was taken; it is given back when this is dropped.
pub(crate) type Taken = OwnedSemaphorePermit;

impl Budget {
    /// All of it is free.
    pub(crate) fn new(notices: Arc<Notices>) -> Arc<Self> {
        Self::of(ARRIVING_BYTES_MAX, PATIENCE, notices)
    }

    fn of(max: usize, patience: Duration, notices: Arc<Notices>) -> Arc<Self> {
        Arc::new(Self {
            room: Arc::new(Semaphore::new(max)),
            patience,
            notices,
        })
    }

    /// Takes room for so many bytes, in the order in which it is asked for; refused when there is none for too long.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Taken, Refusal> {
        // For so many there never is any.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let taken = timeout(self.patience, self.room.clone().acquire_many_owned(bytes)).await;
        // Nobody closes it.
        taken.ok().and_then(Result::ok).ok_or_else(|| {
            self.notices.reached(Limit::ArrivingBytes);
            Refusal::Busy
        })
    }

    /// What a limit that is reached is told to.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Origin;
    use tradewind_common::ServerId;

    #[tokio::test]
    async fn room_that_is_taken_comes_back() {
        let notices = Notices::new(ServerId(0), Origin::start(), None);
        let budget = Budget::of(100, Duration::from_millis(20), Arc::new(notices));
        let first = budget.take(60).await.unwrap();
        assert!(matches!(budget.take(41).await, Err(Refusal::Busy)));
        let second = budget.take(40).await.unwrap();
        assert!(matches!(budget.take(1).await, Err(Refusal::Busy)));
        drop(first);
        assert!(matches!(budget.take(usize::MAX).await, Err(Refusal::Busy)));
        let third = budget.take(60).await.unwrap();
        drop((second, third));
        assert_eq!(budget.room.available_permits(), 100);
    }
}
