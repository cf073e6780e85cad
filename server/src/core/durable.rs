//! What the coordinator writes down before it acts, and reads when it takes over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tradewind_common::data::Ledger;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ServerId};

use super::fleet::Known;
use super::order::ShardFile;
use super::run::Run;

/// Everything that a coordinator must know to go on for another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Durable {
    pub(super) servers: BTreeMap<ServerId, Known>,
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) resuming: BTreeMap<RunId, Saved>,
    pub(super) passed: Passed,
}

impl Durable {
    /// Whether the run is there, or shall be resumed.
    pub fn knows(&self, run: &RunId) -> bool {
        self.runs.contains_key(run) || self.resuming.contains_key(run)
    }
}

/// What runs that were forgotten had come to, all together: one of the same name begins past it, so that
/// nobody of the former one is taken for its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    pub(super) generation: Generation,
    pub(super) incarnation: Incarnation,
}

impl Passed {
    /// The further of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            generation: self.generation.max(other.generation),
            incarnation: self.incarnation.max(other.incarnation),
        }
    }
}

/// What the manifest of a snapshot says: enough to resume the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestData {
    /// The run.
    pub run: RunId,
    /// The number of the snapshot.
    pub number: u64,
    /// The run's generation when it was taken.
    pub generation: Generation,
    /// The run's specification.
    pub spec: RunSpec,
    /// The highest clock known of any group; `None` before the first exchange.
    pub clock: Option<Clock>,
    /// Every block is as after the clocks before this one; `None` where blocks may differ.
    pub at_clock: Option<Clock>,
    /// Where the data of `sync` began: at this clock so many samples had been passed.
    pub origin: (Clock, u64),
    /// The groups there were.
    pub groups: BTreeMap<GroupId, SavedGroup>,
    /// Groups that are not among them begin past this life.
    pub lives_before: Incarnation,
    /// Least and most samples applied to a block.
    pub samples: (u64, u64),
    /// The file of each shard, in shard order.
    pub files: Vec<ShardFile>,
    /// The shard of each block, in block order.
    pub shards: Vec<u32>,
    /// Which training data were out; those that groups still worked on are returned.
    pub ledger: Ledger,
    /// Contributions lost by restoring.
    pub lost: u64,
}

/// A group in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedGroup {
    /// Its life.
    pub incarnation: Incarnation,
    /// Its clock, by its heartbeats.
    pub clock: Clock,
}

/// A run that is on disk and shall go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The newest snapshot that is whole in all files.
    pub manifest: ManifestData,
    /// The numbers of all snapshots of the run on disk, whole or not.
    pub numbers: Vec<u64>,
}

/// A value behind an `Arc`, written as itself.
pub(super) mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::core) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(serializer)
    }

    pub(in crate::core) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}
