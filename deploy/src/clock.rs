//! The command's clock.

use std::time::{Duration, Instant};

pub(crate) use tradewind_server::clock::wall;

/// Counts from when it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a shell's clock")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn now_ms(self) -> u64 {
        self.elapsed().as_millis() as u64
    }
}
