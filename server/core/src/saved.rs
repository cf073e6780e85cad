//! What is left of runs that are not on the fleet: their snapshots, and what they had come to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tradewind_common::data::Ledger;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId};

use super::order::ShardFile;

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
    /// Updates of blocks that were acknowledged and are missing.
    pub lost: u64,
    /// And samples.
    #[serde(default)]
    pub lost_samples: u64,
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
    /// Newer ones that could not be used, and what is wrong with each.
    #[serde(default)]
    pub damaged: Vec<String>,
    /// The last lineage of which anything was recorded; 0 if nothing was.
    #[serde(default)]
    pub recorded: Generation,
}
