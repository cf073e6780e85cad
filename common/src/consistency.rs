//! When a shard applies a group's gradient, as all processes of a run must agree on it.

use serde::{Deserialize, Serialize};

use crate::staleness::StalenessBound;

/// When a shard applies a group's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConsistencySpec {
    /// The gradients of all live groups at a clock are averaged and applied once.
    Sync,
    /// On arrival, under the staleness bound.
    Bounded {
        /// `s`, in exchanges.
        staleness_bound: u64,
    },
    /// On arrival.
    Async,
}

impl ConsistencySpec {
    /// The bound of rule 1, for the policies that have one.
    pub fn bound(self) -> StalenessBound {
        match self {
            Self::Sync => StalenessBound::Finite(0),
            Self::Bounded { staleness_bound } => StalenessBound::Finite(staleness_bound),
            Self::Async => StalenessBound::Unbounded,
        }
    }
}
