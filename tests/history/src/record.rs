//! What is written down: one line of JSON each.

use serde::{Deserialize, Serialize};

/// A line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// What the run is; the first line.
    Run(Run),
    /// Something that was asked.
    Operation(Operation),
    /// A loss as it was told.
    Loss(Loss),
    /// For how long a life of a group was certainly live.
    Life(Life),
}

/// What the run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Groups there may be; element g of a block's values belongs to group g.
    pub groups: u32,
    /// The shard of each block.
    pub shards: Vec<u32>,
    /// When contributions are applied.
    pub policy: Policy,
    /// Whether an update may merge several contributions, by a mean whose weights add up to 1: under
    /// `sync`, and where updates wait for more. Otherwise each update is one contribution.
    #[serde(default)]
    pub merged: bool,
    /// Servers that hold each shard.
    pub replication: u32,
    /// Samples of every contribution; 0 if they differ, or nobody says.
    #[serde(default)]
    pub samples: u64,
}

/// When contributions are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// On arrival.
    Async,
    /// On arrival while the group's clock leads the slowest by at most so much.
    Bounded(u64),
    /// When all live groups have contributed.
    Sync,
}

/// A frame that was sent once, and its answer. A frame that is sent again is another operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Names it; no other one has it.
    pub number: u64,
    /// Right before it left, by a clock that never goes back; microseconds.
    pub start_us: u64,
    /// Who sent it.
    pub group: u32,
    /// In which life; 0 for a pull of nobody in particular.
    pub incarnation: u64,
    /// The group's clock; 0 for pulls.
    pub clock: u64,
    /// About which block.
    pub block: u32,
    /// What it asks for.
    pub action: Action,
    /// Of the values that a gradient was computed on; absent if nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed_on: Option<Version>,
    /// Absent if none came, or a refusal: what became of it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// What an operation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// −1 at the group's element, 0 at the others.
    Contribute,
    /// Nothing at this clock.
    Skip,
    /// The values.
    Pull,
}

/// A state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// When its values were last restored: later ones are greater; 0 if never.
    pub lineage: u64,
    /// Updates applied.
    pub version: u64,
}

/// What an operation was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Right after it was there, by the clock of the starts.
    pub end_us: u64,
    /// What was decided.
    pub verdict: Verdict,
    /// It had been decided before.
    #[serde(default)]
    pub repeated: bool,
    /// Of the values.
    #[serde(flatten)]
    pub of: Version,
    /// Updates between the values that the gradient was computed on and its own application.
    #[serde(default)]
    pub delay: u64,
    /// Samples applied to the block.
    #[serde(default)]
    pub samples: u64,
    /// Of the values' bytes, in any form; equal where they are.
    #[serde(default)]
    pub digest: String,
    /// The values with their signs changed, one for each group: how often it is in them. Absent if
    /// no values came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Vec<f64>>,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The contribution is in the values.
    Applied,
    /// It was left out.
    Dropped,
    /// There was none.
    Skipped,
    /// Nothing: the values were asked for.
    Read,
}

/// A loss as it was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Of which shard.
    pub shard: u32,
    /// The lineage that lacks what was lost: the new one.
    pub lineage: u64,
    /// Updates that are missing, summed over the shard's blocks. What is told of a lineage in
    /// several records adds up.
    pub updates: u64,
    /// Samples that are missing, the most of any block.
    #[serde(default)]
    pub samples: u64,
    /// By how much the updates may be too high, where more than processes died.
    #[serde(default)]
    pub too_high_max: u64,
}

/// For how long a life of a group was certainly live: whoever decides for a block counts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// The group.
    pub group: u32,
    /// Its life.
    pub incarnation: u64,
    /// The clock of its first contribution.
    pub start_clock: u64,
    /// When it was told that it may push.
    pub from_us: u64,
    /// The last time before which it was surely live: when the last heartbeat that was answered had
    /// been sent. Absent: to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_us: Option<u64>,
}
