//! What all processes of a run must agree on.

use serde::{Deserialize, Serialize};

use crate::batch::{BatchStep, Batches, RampError};
use crate::choice::{Settings, Unfit, all_in_range};
use crate::compress::Compression;
pub use crate::consistency::ConsistencySpec;
use crate::data::{Chunking, DataSets};
use crate::exclusions::Chosen;
pub use crate::faults::{FaultSpec, OnLoss};
use crate::layout::{Layout, LayoutError, TensorSpec};
use crate::optimizer::Sgd;
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
    /// Blocks lie in buckets of this size: of runs that were begun when they did. A rank learns it when it
    /// joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_bytes: Option<usize>,
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
    /// Sets that the training data are cut into.
    #[serde(default)]
    pub sets: DataSets,
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
    /// What belongs to the model and is not trained: it stays with the ranks, and is the same on all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<Frozen>,
    /// What keeps the run going when something fails.
    #[serde(default)]
    pub faults: FaultSpec,
}

/// A tensor that is not trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// The model's own name.
    pub name: String,
    /// Follows from its type, shape and values.
    pub digest: u64,
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
            sets: spec.sets.count,
            policies: &spec.policies,
            optimizer: spec.optimizer,
            up: spec.up,
            down: spec.down,
            ranks: None,
        }
    }
}

impl RunSpec {
    /// The simplest run of these groups and tensors, in blocks of so many bytes: asynchronous, by plain SGD at a
    /// constant rate of 1, with nothing that is compressed, merged or frozen. Tests and benchmarks change what they
    /// are about.
    pub fn plain(group_sizes: Vec<u32>, tensors: Vec<TensorSpec>, block_bytes: usize) -> Self {
        Self {
            seed: 1,
            group_sizes,
            tensors,
            bucket_bytes: None,
            block_bytes,
            consistency: ConsistencySpec::Async,
            policies: Policies::default(),
            optimizer: OptimizerSpec::Sgd(Sgd {
                momentum: 0.0,
                nesterov: false,
                weight_decay: 0.0,
            }),
            decay_exempt: DecayExempt::None,
            schedule: Schedule::constant(1.0),
            samples: 100,
            epoch_samples: 50,
            batch: 1,
            batch_ramp: Vec::new(),
            local: false,
            local_steps: 1,
            chunk_samples: 10,
            sets: DataSets::default(),
            lease_ms: 100,
            start_grace_ms: 150,
            milestone_samples: 0,
            up: Compression::None,
            down: Compression::None,
            frozen: Vec::new(),
            faults: FaultSpec::default(),
        }
    }

    /// How many samples a rank takes a step.
    pub fn batches(&self) -> Batches<'_> {
        Batches {
            first: self.batch,
            ramp: &self.batch_ramp,
        }
    }

    /// How the training data are cut.
    pub fn chunking(&self) -> Chunking {
        Chunking {
            epoch_samples: self.epoch_samples,
            chunk_samples: self.chunk_samples,
            sets: self.sets.count,
        }
    }

    /// The flat vector that follows from the tensors.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        self.layout_within(self.bucket_bytes)
    }

    /// The same, with the `bucket_bytes` that a coordinator has told.
    pub fn layout_within(&self, bucket_bytes: Option<usize>) -> Result<Layout, LayoutError> {
        match bucket_bytes {
            None => Layout::new(&self.tensors, self.block_bytes),
            Some(size) => Layout::within_buckets(&self.tensors, size, self.block_bytes),
        }
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
        all_in_range(DataSets::FIELDS, &self.sets.settings())?;
        ranged(
            u64::from(self.sets.count) <= self.epoch_samples,
            "sets",
            self.sets.count,
            "at most epoch_samples",
        )?;
        positive(self.lease_ms, "lease_ms")?;
        all_in_range(FaultSpec::FIELDS, &self.faults.settings())?;
        let patience = self.faults.patience_ms;
        let longer = patience > self.lease_ms;
        ranged(longer, "patience_ms", patience, "longer than lease_ms")?;
        positive(self.bucket_bytes.unwrap_or(1) as u64, "bucket_bytes")?;
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

    /// The first field in which `other` differs, for a joiner that brought another configuration. Which
    /// cuts there are between blocks it does not bring.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let groups = self.group_sizes != other.group_sizes;
        let besides = || self.difference_besides_groups(other);
        groups.then(|| "group_sizes".into()).or_else(besides)
    }

    /// The same, whatever groups there are.
    pub fn difference_besides_groups(&self, other: &Self) -> Option<String> {
        let differs = [
            (self.seed != other.seed, "seed"),
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
            (self.sets != other.sets, "sets"),
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
        let besides = || differs.into_iter().find(|(differs, _)| *differs);
        let besides = || besides().map(|(_, field)| field.into());
        self.other_tensor(other).or_else(besides)
    }

    /// The first tensor in which `other` differs, in words.
    pub fn other_tensor(&self, other: &Self) -> Option<String> {
        let trained = |of: &TensorSpec| format!("{:?} {} {:?}", of.kind, of.name, of.shape);
        let frozen = |of: &Frozen| format!("{} of digest {:016x}", of.name, of.digest);
        let which = first_difference(&self.tensors, &other.tensors, trained);
        let tensors = which.map(|which| format!("list of tensors: {which}"));
        let which = || first_difference(&self.frozen, &other.frozen, frozen);
        tensors.or_else(|| Some(format!("list of frozen tensors: {}", which()?)))
    }
}

/// The first place in which two lists differ, in words.
fn first_difference<T: PartialEq>(
    first: &[T],
    second: &[T],
    word: impl Fn(&T) -> String,
) -> Option<String> {
    let at = (0..first.len().max(second.len())).find(|at| first.get(*at) != second.get(*at))?;
    let word = |list: &[T]| list.get(at).map_or("nothing".into(), &word);
    let (there, here) = (word(first), word(second));
    Some(format!("number {at} is {there} there and {here} here"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::TensorKind;

    /// As snapshots and states of coordinators have it.
    #[test]
    fn blocks_of_a_written_specification_are_those_that_it_was_written_for() {
        let tensor = |name: &str, elements| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind: TensorKind::Parameter,
        };
        let tensors = vec![tensor("a", 10), tensor("b", 7), tensor("c", 100)];
        let now = RunSpec::plain(vec![1], tensors, 160);
        let mut written = serde_json::to_value(&now).unwrap();
        assert_eq!(written.get("bucket_bytes"), None);
        let check = |written: &serde_json::Value, want: &[usize]| {
            let spec: RunSpec = serde_json::from_value(written.clone()).unwrap();
            let blocks = spec.check().unwrap().blocks;
            let ends: Vec<_> = blocks.iter().map(|block| block.elements.end).collect();
            assert_eq!(ends, want);
            assert_eq!(now.difference(&spec), None, "whoever joins does not say it");
        };
        check(&written, &[39, 78, 117]);
        written["bucket_bytes"] = 64.into();
        check(&written, &[33, 66, 100, 117]);

        let differs = |change: fn(&mut RunSpec), want: &str| {
            let mut other = now.clone();
            change(&mut other);
            assert_eq!(now.difference(&other).as_deref(), Some(want));
        };
        differs(|spec| spec.seed = 2, "seed");
        differs(
            |spec| spec.tensors[1].shape = vec![1, 7],
            "list of tensors: number 1 is Parameter b [7] there and Parameter b [1, 7] here",
        );
        differs(
            |spec| spec.tensors.truncate(2),
            "list of tensors: number 2 is Parameter c [100] there and nothing here",
        );
        let base = |spec: &mut RunSpec| {
            spec.frozen.push(Frozen {
                name: "base".into(),
                digest: 10,
            });
        };
        differs(
            base,
            "list of frozen tensors: number 0 is nothing there and base of digest 000000000000000a here",
        );
    }
}
