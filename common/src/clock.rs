//! Logical clocks: the number of a group's next exchange. Never wall time.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a group's next exchange, from 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Clock(pub u64);

impl Clock {
    /// The clock after this exchange.
    #[must_use]
    pub fn tick(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How far a group at clock `own` is behind the fastest of `all` live groups, its own among them,
/// in exchanges. Derived from the clocks, never counted up and down by hand.
pub fn lag(own: Clock, all: impl Iterator<Item = Clock>) -> u64 {
    all.max()
        .map_or(0, |fastest| fastest.0.saturating_sub(own.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_measured_from_the_fastest() {
        let all = [Clock(7), Clock(3), Clock(5)];
        let lags = all.map(|own| lag(own, all.into_iter()));
        assert_eq!(lags, [0, 4, 2]);
        assert_eq!(lag(Clock(9), [Clock(9)].into_iter()), 0);
    }
}
