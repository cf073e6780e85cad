//! What all processes of a run must agree on.

use serde::{Deserialize, Serialize};

use crate::batch::{BatchStep, Batches, RampError};
use crate::choice::{Settings, Unfit, all_in_range};
use crate::compress::Compression;
pub use crate::consistency::ConsistencySpec;
use crate::exclusions::Chosen;
pub use crate::faults::{FaultSpec, OnLoss};
use crate::layout::{Layout, LayoutError, TensorSpec};
pub use crate::optimizer::{DecayExempt, OptimizerSpec};
use crate::policy::Policies;
use crate::range::{RangeError, ranged};
use crate::schedule::Schedule;

/// A run as its servers need to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// All randomness follows from it.
    pub seed: u64,
    /// Ranks of each group.
    pub group_sizes: Vec<u32>,
    /// In the model's order of creation.
    pub tensors: Vec<TensorSpec>,
    /// A bucket is closed when it has reached this size.
    pub bucket_bytes: usize,
    /// Upper limit of a block.
    pub block_bytes: usize,
    /// When a gradient is applied.
    pub consistency: ConsistencySpec,
    /// What else there is between a gradient's arrival and its application.
    #[serde(default)]
    pub policies: Policies,
    /// How a gradient is applied.
    pub optimizer: OptimizerSpec,
    /// Which tensors weight decay spares.
    pub decay_exempt: DecayExempt,
    /// The learning rate.
    pub schedule: Schedule,
    /// The budget, in samples.
    pub samples: u64,
    /// Samples in an epoch.
    pub epoch_samples: u64,
    /// Samples per rank and step, at first.
    pub batch: u32,
    /// How that grows.
    #[serde(default)]
    pub batch_ramp: Vec<BatchStep>,
    /// Groups train by themselves between two exchanges, and push what that came to instead of gradients.
    #[serde(default)]
    pub local: bool,
    /// Steps of a group between two exchanges, at most; 1 where gradients are exchanged.
    #[serde(default = "one")]
    pub local_steps: u32,
    /// Samples in a leased chunk.
    pub chunk_samples: u64,
    /// Length of a rank's lease.
    pub lease_ms: u64,
    /// How long clock 0 waits for configured groups.
    pub start_grace_ms: u64,
    /// Applied samples between two savings of the parameters in the fleet's folder, for evaluations; 0
    /// for none.
    pub milestone_samples: u64,
    /// How gradients of parameters travel.
    pub up: Compression,
    /// How fresh parameters travel: if lossy, as differences to what the group holds.
    pub down: Compression,
    /// What keeps the run going when something fails.
    #[serde(default)]
    pub faults: FaultSpec,
}

/// What snapshots of runs without local steps leave out.
fn one() -> u32 {
    1
}

/// Largest block that may be configured.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Most groups a run may have.
pub const GROUPS_MAX: usize = 65_536;

/// Most ranks a group may have.
pub const GROUP_SIZE_MAX: u32 = 65_536;

/// A specification that no run can follow.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// The tensors have no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A ramp that cannot be followed.
    #[error("batch_ramp {0}")]
    Ramp(#[from] RampError),
    /// A setting is outside its range, or does not go together with others.
    #[error(transparent)]
    Setting(#[from] Unfit),
    /// A field is outside its range.
    #[error(transparent)]
    Range(#[from] RangeError),
}

impl<'a> From<&'a RunSpec> for Chosen<'a> {
    fn from(spec: &'a RunSpec) -> Self {
        Self {
            consistency: spec.consistency,
            groups: spec.group_sizes.len(),
            policies: &spec.policies,
            optimizer: spec.optimizer,
            up: spec.up,
            down: spec.down,
            ranks: None,
        }
    }
}

impl RunSpec {
    /// How many samples a rank takes a step.
    pub fn batches(&self) -> Batches<'_> {
        Batches {
            first: self.batch,
            ramp: &self.batch_ramp,
        }
    }

    /// The flat vector that follows from the tensors.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        Layout::new(&self.tensors, self.bucket_bytes, self.block_bytes)
    }

    /// Checks every field, and that the tensors have a layout.
    pub fn check(&self) -> Result<Layout, SpecError> {
        let groups = self.group_sizes.len();
        ranged(
            (1..=GROUPS_MAX).contains(&groups),
            "number of groups",
            groups,
            "1 to 65536",
        )?;
        for size in &self.group_sizes {
            ranged(
                (1..=GROUP_SIZE_MAX).contains(size),
                "group size",
                size,
                "1 to 65536",
            )?;
        }
        let positive = |n: u64, field| ranged(n > 0, field, n, "more than 0");
        positive(self.samples, "samples")?;
        positive(self.epoch_samples, "epoch_samples")?;
        positive(u64::from(self.batch), "batch")?;
        positive(u64::from(self.local_steps), "local_steps")?;
        positive(self.chunk_samples, "chunk_samples")?;
        positive(self.lease_ms, "lease_ms")?;
        all_in_range(FaultSpec::FIELDS, &self.faults.settings())?;
        let patience = self.faults.patience_ms;
        let longer = patience > self.lease_ms;
        ranged(longer, "patience_ms", patience, "longer than lease_ms")?;
        positive(self.bucket_bytes as u64, "bucket_bytes")?;
        let block = (4..=BLOCK_BYTES_MAX).contains(&self.block_bytes);
        ranged(block, "block_bytes", self.block_bytes, "4 bytes to 64 MiB")?;
        self.batches().check()?;
        let mut unfit = self.schedule.problems();
        unfit.extend(self.optimizer.check(&self.schedule).err());
        unfit.extend(Chosen::from(self).problems());
        match unfit.into_iter().next() {
            Some(unfit) => Err(unfit.into()),
            None => Ok(self.layout()?),
        }
    }

    /// The first field in which `other` differs, for a joiner that brought another configuration.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let groups = self.group_sizes != other.group_sizes;
        let besides = || self.difference_besides_groups(other);
        groups.then_some("group_sizes").or_else(besides)
    }

    /// The same, whatever groups there are.
    pub fn difference_besides_groups(&self, other: &Self) -> Option<&'static str> {
        let differs = [
            (self.seed != other.seed, "seed"),
            (self.tensors != other.tensors, "tensors"),
            (self.bucket_bytes != other.bucket_bytes, "bucket_bytes"),
            (self.block_bytes != other.block_bytes, "block_bytes"),
            (self.consistency != other.consistency, "consistency"),
            (self.policies != other.policies, "policies"),
            (self.optimizer != other.optimizer, "optimizer"),
            (self.decay_exempt != other.decay_exempt, "decay_exempt"),
            (self.schedule != other.schedule, "schedule"),
            (self.samples != other.samples, "samples"),
            (self.epoch_samples != other.epoch_samples, "epoch_samples"),
            (self.batch != other.batch, "batch"),
            (self.batch_ramp != other.batch_ramp, "batch_ramp"),
            (self.local != other.local, "local"),
            (self.local_steps != other.local_steps, "local_steps"),
            (self.chunk_samples != other.chunk_samples, "chunk_samples"),
            (self.lease_ms != other.lease_ms, "lease_ms"),
            (
                self.start_grace_ms != other.start_grace_ms,
                "start_grace_ms",
            ),
            (
                self.milestone_samples != other.milestone_samples,
                "milestone_samples",
            ),
            (self.up != other.up, "up"),
            (self.down != other.down, "down"),
            (!self.faults.same_as(&other.faults), "faults"),
        ];
        differs
            .into_iter()
            .find(|(differs, _)| *differs)
            .map(|(_, field)| field)
    }
}
