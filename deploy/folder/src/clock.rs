//! The command's clock.

use std::time::{Duration, Instant};

pub use tradewind_server::clock::wall;

/// Counts from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Begins now.
    #[expect(clippy::disallowed_methods, reason = "a shell's clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since it began.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Milliseconds since it began.
    pub fn now_ms(self) -> u64 {
        self.elapsed().as_millis() as u64
    }
}
