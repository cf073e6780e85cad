//! The one place of this package that reads a clock.

use std::time::{Duration, Instant, SystemTime};

/// Seconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the shell's clock")]
pub fn wall() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

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
