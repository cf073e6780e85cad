//! Logical clocks: the number of a group's next exchange. Never wall time.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::GroupId;

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

/// The clocks of the live groups, from which staleness and lag are derived. They are never
/// counted up and down by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorClock(BTreeMap<GroupId, Clock>);

impl VectorClock {
    /// The smallest clock; `None` while there is no live group.
    pub fn min(&self) -> Option<Clock> {
        self.0.values().min().copied()
    }

    /// The largest clock; `None` while there is no live group.
    pub fn max(&self) -> Option<Clock> {
        self.0.values().max().copied()
    }

    /// How far `group` is behind the fastest live group, in exchanges; `None` if it is unknown.
    pub fn lag(&self, group: GroupId) -> Option<u64> {
        Some(self.max()?.0 - self.0.get(&group)?.0)
    }
}

impl FromIterator<(GroupId, Clock)> for VectorClock {
    fn from_iter<I: IntoIterator<Item = (GroupId, Clock)>>(clocks: I) -> Self {
        Self(clocks.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_measured_from_the_fastest() {
        let clocks: VectorClock = [(GroupId(0), Clock(7)), (GroupId(1), Clock(3))]
            .into_iter()
            .collect();
        assert_eq!(clocks.min(), Some(Clock(3)));
        assert_eq!(clocks.lag(GroupId(0)), Some(0));
        assert_eq!(clocks.lag(GroupId(1)), Some(4));
        assert_eq!(clocks.lag(GroupId(2)), None);
        assert_eq!(VectorClock::default().min(), None);
    }
}
