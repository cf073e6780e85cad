//! Virtual time: whole nanoseconds, so that the same plan gives the same answer on every machine.

/// Nanoseconds.
pub(crate) type Nanos = u64;

/// Nanoseconds of a second.
pub(crate) const SECOND: f64 = 1e9;

/// Seconds as nanoseconds, at most some hundreds of years.
pub(crate) fn nanos(seconds: f64) -> Nanos {
    (seconds * SECOND).round().clamp(0.0, 9e18) as Nanos
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND
}
