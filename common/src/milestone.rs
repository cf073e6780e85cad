//! Milestones: the parameters of a run as they were when a number of samples had been applied, saved
//! for an evaluation after the run. A file for each shard, in the folder of the fleet:
//! `milestones/RUN/SAMPLES/shard-NNNN.safetensors`, with a tensor for each block under its number,
//! and what follows here in the metadata. Complete when all blocks of the run are there.

use std::path::{Path, PathBuf};

use crate::ids::{RunId, ShardId};

/// Most milestones that one update of a block leaves, the last that it passes, and that a shard waits for its
/// last block with. Blocks apply the same pushes, so they are hardly ever apart.
pub const PASSED_MAX: u64 = 16;

/// Metadata: when the shard's last block had come so far, seconds since the Unix epoch.
pub const WALL: &str = "wall";
/// Metadata: updates of the block that had most.
pub const UPDATES: &str = "updates";
/// Metadata: samples applied to the block that had least.
pub const SAMPLES_MIN: &str = "samples_min";
/// Metadata: samples applied to the block that had most.
pub const SAMPLES_MAX: &str = "samples_max";

/// Where all milestones of a run are.
pub fn folder(fleet: &Path, run: &RunId) -> PathBuf {
    fleet.join("milestones").join(run.as_str())
}

/// The folder of one milestone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone(PathBuf);

impl Milestone {
    /// That of `samples`.
    pub fn new(fleet: &Path, run: &RunId, samples: u64) -> Self {
        Self(folder(fleet, run).join(format!("{samples:012}")))
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file of a shard.
    pub fn shard(&self, shard: ShardId) -> PathBuf {
        self.0.join(format!("shard-{:04}.safetensors", shard.0))
    }
}
