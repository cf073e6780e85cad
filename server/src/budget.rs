//! How many bytes a server holds for messages that are still arriving, of all connections together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tradewind_core::refusal::Refusal;

use crate::limits::{Limit, Notices};

/// Bytes of records that are arriving, together: four of the largest at once, and of usual ones as many as a
/// machine receives.
const ARRIVING_BYTES_MAX: usize = 1 << 30;

/// How long a message waits for room, and how often it looks. Room comes with every record that is complete.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// The room that there is for what arrives.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
    notices: Arc<Notices>,
}

/// Room that was taken; it is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    of: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// All of it is free.
    pub(crate) fn new(notices: Arc<Notices>) -> Arc<Self> {
        Self::of(ARRIVING_BYTES_MAX, notices)
    }

    fn of(max: usize, notices: Arc<Notices>) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            max,
            notices,
        })
    }

    /// Takes room for so many bytes; refused when there is none for too long.
    pub(crate) async fn take(self: &Arc<Self>, bytes: usize) -> Result<Taken, Refusal> {
        let taken = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(taken) = self.try_take(bytes) {
                    return taken;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        match self.try_take(bytes) {
            Some(taken) => Ok(taken),
            None => taken.await.map_err(|_| {
                self.notices.reached(Limit::ArrivingBytes);
                Refusal::Busy
            }),
        }
    }

    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max);
        let order = Ordering::Relaxed;
        let taken = self.used.fetch_update(order, order, more);
        taken.is_ok().then(|| Taken {
            of: self.clone(),
            bytes,
        })
    }

    /// What a limit that is reached is told to.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Origin;
    use tradewind_common::ServerId;

    #[test]
    fn room_that_is_taken_comes_back() {
        let notices = Notices::new(ServerId(0), Origin::start(), None);
        let budget = Budget::of(100, Arc::new(notices));
        let first = budget.try_take(60).unwrap();
        assert!(budget.try_take(41).is_none());
        let second = budget.try_take(40).unwrap();
        assert!(budget.try_take(1).is_none());
        drop(first);
        assert!(budget.try_take(usize::MAX).is_none());
        let third = budget.try_take(60).unwrap();
        drop((second, third));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
