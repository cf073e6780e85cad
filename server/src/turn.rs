//! Taking turns: a task that moves many bytes lets others go first from time to time.

/// Bytes that a task moves before it lets others go first. Less costs throughput, because the task
/// goes on where its values are in no cache; more keeps other runs waiting (`docs/performance.md`).
const BYTES: u64 = 2 << 20;

/// What a task has moved since it last let others go first. One run's flood of blocks must not keep
/// another's waiting, and Tokio's own budget counts messages, whatever they hold.
#[derive(Debug, Default)]
pub struct Turn(u64);

impl Turn {
    /// Counts so many bytes as moved, and lets other tasks go first when there are enough.
    pub async fn spend(&mut self, bytes: u64) {
        self.0 += bytes;
        if self.0 >= BYTES {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Whether others go first when so many more bytes have moved.
    fn yields(turn: &mut Turn, bytes: u64) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut spent = pin!(turn.spend(bytes));
        let waits = spent.as_mut().poll(&mut context).is_pending();
        assert!(!waits || spent.poll(&mut context).is_ready(), "once");
        waits
    }

    #[test]
    fn others_go_first_whenever_enough_has_moved() {
        let mut turn = Turn::default();
        for _ in 0..3 {
            assert!(!yields(&mut turn, BYTES - 1));
            assert!(yields(&mut turn, 1));
        }
        assert!(yields(&mut turn, 40 * BYTES));
    }
}
