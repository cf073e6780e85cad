//! The one place of the server that reads a clock.

use std::time::{Instant, SystemTime};

/// Time since the process began to serve; handed to the cores as `now`.
#[derive(Clone, Copy, Debug)]
pub struct Origin(Instant);

impl Origin {
    /// Starts to count.
    #[expect(clippy::disallowed_methods, reason = "the shell's clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds since the start.
    pub fn now_ms(self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }

    /// Microseconds since the start.
    pub fn now_us(self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

/// Seconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the shell's clock")]
pub fn wall() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
