//! When a shard applies a group's gradient, as all processes of a run must agree on it. The rule of each
//! is in `server/core/src/consistency/`.

use serde::{Deserialize, Serialize};

use crate::choice::{Field, Kind};
use crate::choices;
use crate::staleness::StalenessBound;

choices! {
    /// When a shard applies a group's gradient.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    "consistency policy" is ConsistencySpec {
        /// The gradients of all live groups at a clock are averaged and applied once.
        "sync" ("together with the gradients of all groups, as one batch") is Sync,
        /// On arrival, under the staleness bound.
        "bounded" ("on arrival, while the group is at most `train.staleness_bound` exchanges ahead of the slowest one") is Bounded {
            /// `s`, in exchanges.
            staleness_bound: u64 = BOUND,
        },
        /// On arrival.
        "async" ("on arrival") is Async,
    }
}

const BOUND: Field = Field {
    key: "train.staleness_bound",
    kind: Kind::Count {
        min: 0,
        max: 1_000_000,
    },
    default: "3",
    meaning: "Number of exchanges by which a group may be ahead of the slowest live group. A group that is further ahead waits.",
};

impl ConsistencySpec {
    /// The bound of rule 1, for the policies that have one.
    pub fn bound(self) -> StalenessBound {
        match self {
            Self::Sync => StalenessBound::Finite(0),
            Self::Bounded { staleness_bound } => StalenessBound::Finite(staleness_bound),
            Self::Async => StalenessBound::Unbounded,
        }
    }

    /// Whether an update is made of the gradients of all groups at a clock, so that the data of a step
    /// follow from its number and no group computes on older values than another.
    pub fn waits_for_all(self) -> bool {
        match self {
            Self::Sync => true,
            Self::Bounded { .. } | Self::Async => false,
        }
    }

    /// Whether one contribution may let others in, so that an answer shows their updates, too.
    pub fn lets_others_in(self) -> bool {
        match self {
            Self::Sync | Self::Bounded { .. } => true,
            Self::Async => false,
        }
    }
}
