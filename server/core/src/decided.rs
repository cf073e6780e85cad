//! What has been decided about a contribution.

use tradewind_common::Clock;

/// What was decided about one (group, clock, block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gradient is in the values.
    Applied,
    /// A policy left it out.
    Dropped,
    /// The group had none.
    Skipped,
}

/// A verdict with the delay that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The clock that was decided.
    pub clock: Clock,
    /// How.
    pub verdict: Verdict,
    /// Updates between the pull that it was computed on and its application.
    pub delay: u64,
}
