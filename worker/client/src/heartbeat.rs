//! What a rank's beats tell of it, and what they bring.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tradewind_common::Clock;

/// Shared between whoever trains and whoever beats. Each value is by itself: none of them orders
/// anything.
#[derive(Debug, Default)]
pub struct HeartbeatState {
    clock: AtomicU64,
    /// Bits of f64, as the next.
    speed: AtomicU64,
    fastest: AtomicU64,
    leave: AtomicBool,
    streams_answered: AtomicU64,
    /// Microseconds.
    silent_longest: AtomicU64,
}

impl HeartbeatState {
    /// The group's clock.
    pub fn clock(&self) -> Clock {
        Clock(self.clock.load(Ordering::Relaxed))
    }

    /// From now on beats tell this clock.
    pub fn set_clock(&self, clock: Clock) {
        self.clock.store(clock.0, Ordering::Relaxed);
    }

    /// Steps a second of the group; 0 while that is not known.
    pub fn speed(&self) -> f64 {
        f64::from_bits(self.speed.load(Ordering::Relaxed))
    }

    /// From now on beats tell this speed.
    pub fn set_speed(&self, steps_per_second: f64) {
        let bits = steps_per_second.to_bits();
        self.speed.store(bits, Ordering::Relaxed);
    }

    /// Steps a second of the fastest other live group, as it was at the last beat; 0 while that is not
    /// known.
    pub fn fastest(&self) -> f64 {
        f64::from_bits(self.fastest.load(Ordering::Relaxed))
    }

    /// Whether the coordinator has asked the group to leave.
    pub fn leave(&self) -> bool {
        self.leave.load(Ordering::Relaxed)
    }

    /// Streams of beats of which one was answered: each later one is with another coordinator, or on another connection.
    pub fn streams_answered(&self) -> u64 {
        self.streams_answered.load(Ordering::Relaxed)
    }

    /// The longest time from one answer to the next.
    pub fn silent_longest(&self) -> Duration {
        Duration::from_micros(self.silent_longest.load(Ordering::Relaxed))
    }

    /// An answer has come after so long, the `first` of its stream or a later one.
    pub(crate) fn set_answered(&self, silent: Duration, first: bool) {
        let micros = u64::try_from(silent.as_micros()).unwrap_or(u64::MAX);
        self.silent_longest.fetch_max(micros, Ordering::Relaxed);
        self.streams_answered
            .fetch_add(first.into(), Ordering::Relaxed);
    }

    pub(crate) fn set_leave(&self, leave: bool) {
        self.leave.store(leave, Ordering::Relaxed);
    }

    pub(crate) fn set_fastest(&self, steps_per_second: f64) {
        let bits = steps_per_second.to_bits();
        self.fastest.store(bits, Ordering::Relaxed);
    }
}
