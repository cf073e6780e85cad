//! The one place of this package that reads a clock.

use std::time::{Duration, Instant};

/// Time since it was made, or since the last lap.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts to count.
    #[expect(clippy::disallowed_methods, reason = "the shell's clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since it was made, or since the last lap.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// The time since the last lap; starts the next.
    pub fn lap(&mut self) -> Duration {
        let before = std::mem::replace(self, Self::start());
        self.0 - before.0
    }
}
