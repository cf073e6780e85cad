//! The specification of a simulated run.

use tradewind_common::compress::Compression;
use tradewind_common::policy::Policies;
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{DecayExempt, FaultSpec, OptimizerSpec, RunSpec};
use tradewind_common::{TensorKind, TensorSpec};

use super::{BATCH, LEASE_MS, Scenario};

/// Of the optimizer, where it keeps something; halves of whole numbers are exact for long enough.
pub const MOMENTUM: f64 = 0.5;

/// The same where asynchrony has a part in it: a gradient is held back by 7 updates.
pub const MOMENTUM_TOTAL: f64 = 0.875;

/// Part of the way that the centre of elastic averaging moves towards a group.
pub const ALPHA: f64 = 0.25;

/// Snapshots that are kept.
pub const SNAPSHOTS_KEPT: u32 = 3;

impl Scenario {
    /// The run's specification: a few tensors cut into small blocks, and plain SGD of rate 1, so
    /// that the values are the initial ones minus the sum of what was applied, if without momentum.
    pub fn spec(&self) -> RunSpec {
        let tensor = |name: &str, elements, kind| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind,
        };
        RunSpec {
            seed: self.seed,
            group_sizes: self.groups.iter().map(|g| g.size).collect(),
            tensors: vec![
                tensor("first", 5, TensorKind::Parameter),
                tensor("mean", 3, TensorKind::Buffer),
                tensor("second", 7, TensorKind::Parameter),
            ],
            bucket_bytes: 64,
            block_bytes: 16,
            consistency: self.consistency,
            policies: self.possible(),
            optimizer: match self.elastic {
                true => OptimizerSpec::Elastic,
                false => OptimizerSpec::Sgd {
                    momentum: self.momentum,
                    nesterov: false,
                    weight_decay: 0.0,
                },
            },
            decay_exempt: DecayExempt::None,
            schedule: Schedule::constant(if self.elastic { ALPHA } else { 1.0 }),
            samples: self.samples,
            epoch_samples: 1 << 20,
            batch: BATCH,
            batch_ramp: Vec::new(),
            local_steps: self.local_steps,
            chunk_samples: 64,
            lease_ms: LEASE_MS,
            milestone_samples: 0,
            start_grace_ms: self.start_grace_ms,
            up: Compression::None,
            down: self.down,
            faults: FaultSpec {
                replication: self.replication,
                reform_grace_ms: self.reform_grace_ms,
                snapshot_ms: self.snapshot_ms,
                snapshots_kept: SNAPSHOTS_KEPT,
            },
        }
    }

    /// The policies, as far as the groups that there are now can follow them.
    fn possible(&self) -> Policies {
        let groups = self.groups.len() as u32;
        let mut policies = self.policies;
        policies.backup_groups = policies.backup_groups.min(groups - 1);
        if let Some(merge) = &mut policies.merge {
            merge.min_groups = merge.min_groups.min(groups);
        }
        policies
    }
}
