//! How waiting contributions become an update, besides the consistency policy and the optimizer:
//! what all processes of a run must agree on. docs/policies.md says what each policy is for, and
//! [`exclusions`](crate::exclusions) what they cannot be beside.

pub mod momentum;
pub mod staleness;

use serde::{Deserialize, Serialize};

pub use momentum::MomentumSpec;
pub use staleness::StalenessSpec;

use crate::choice::{Field, Kind};
use crate::{choices, settings};

/// How an update comes about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// Under `sync`: so many of the groups are not waited for.
    #[serde(default)]
    pub backup_groups: u32,
    /// How much each of several contributions counts.
    pub weights: Weights,
    /// What is done about gradients that were computed on old values.
    pub staleness: StalenessSpec,
    /// Where the momentum of an update comes from.
    #[serde(default)]
    pub momentum: MomentumSpec,
    /// Under `bounded` and `async`: contributions that arrive about the same time become one
    /// update; without it each is one of its own.
    #[serde(default)]
    pub merge: Option<MergeSpec>,
}

choices! {
    /// How much a contribution counts in an update that merges several.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    "way to weigh" is Weights {
        /// As many times as it has samples: the update is that of the union of their batches.
        #[default]
        "samples" ("its number of samples, so that the update is that of the union of the batches") is Samples,
        /// Once, whatever the group's size.
        "groups" ("the same for each") is Groups,
    }
}

impl Weights {
    /// What a contribution of so many samples weighs.
    pub fn of(self, samples: u32) -> f64 {
        match self {
            Self::Samples => f64::from(samples),
            Self::Groups => 1.0,
        }
    }
}

settings! {
    /// For how long a block waits for more contributions.
    MergeSpec {
        /// Contributions that it waits for, at least 1.
        min_groups: u32 = Field {
            key: "merge.min_groups",
            kind: Kind::Count { min: 1, max: 65_536 },
            default: "1",
            meaning: "Number of groups whose gradients a server waits for, to make one update of them; at most the number of groups. Under `train.consistency = \"sync\"` only 1 is accepted.",
        },
        /// How long it waits for more when those are there, at most; milliseconds.
        grace_ms_max: u64 = Field {
            key: "merge.grace_ms_max",
            kind: MERGE_MS,
            default: "0",
            meaning: "Longest time in milliseconds that a server waits for the gradients of further groups, once those of `merge.min_groups` are there. It stops earlier when twice the usual time between two arrivals has passed. 0 does not wait. Under `train.consistency = \"sync\"` only 0 is accepted.",
        },
        /// How long it waits for those, at most; milliseconds.
        wait_ms_max: u64 = Field {
            key: "merge.wait_ms_max",
            kind: MERGE_MS,
            default: "1000",
            meaning: "Longest time in milliseconds that a server waits for the gradients of `merge.min_groups` groups, counted from the first arrival.",
        },
    }
}

/// A wait of a block, at most ten minutes.
const MERGE_MS: Kind = Kind::Count {
    min: 0,
    max: 600_000,
};

impl MergeSpec {
    /// Whether a block waits for anybody.
    pub fn waits(&self) -> bool {
        self.min_groups > 1 || self.grace_ms_max > 0
    }
}
