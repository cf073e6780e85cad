//! How long somebody has been out of reach.

use std::time::Duration;

use crate::stopwatch::Stopwatch;

/// Time without a connection. What one waits for on a connection is no failure, however long that
/// takes.
#[derive(Debug, Default)]
pub(crate) struct Away {
    before: Duration,
    since: Option<Stopwatch>,
}

impl Away {
    /// There is none from now on, if there was one.
    pub(crate) fn begin(&mut self) {
        self.since.get_or_insert_with(Stopwatch::start);
    }

    /// There is one now.
    pub(crate) fn end(&mut self) {
        self.before = self.so_far();
        self.since = None;
    }

    /// All the time without one.
    pub(crate) fn so_far(&self) -> Duration {
        let now = self.since.as_ref().map(Stopwatch::elapsed);
        self.before + now.unwrap_or_default()
    }
}
