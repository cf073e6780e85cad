//! The specification of a simulated run.

use tradewind_common::compress::Compression;
use tradewind_common::policy::Policies;
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{FaultSpec, OnLoss, RunSpec};
use tradewind_common::{TensorKind, TensorSpec};

use super::clocks::CLOCKS;
use super::{BATCH, LEASE_MS, Sabotage, Scenario};

/// Snapshots that are kept.
pub const SNAPSHOTS_KEPT: u32 = 3;

impl Scenario {
    /// The run's specification: a few tensors cut into small blocks. In flat order a matrix that
    /// ends in the second block, which has a vector and another matrix whole, and one that begins
    /// there; then statistics.
    pub fn spec(&self) -> RunSpec {
        let tensor = |name: &str, shape: &[u64], kind| TensorSpec {
            name: name.into(),
            shape: shape.to_vec(),
            kind,
        };
        let parameter = TensorKind::Parameter;
        RunSpec {
            seed: self.seed,
            group_sizes: self.groups.iter().map(|g| g.size).collect(),
            tensors: match self.clocks {
                true => vec![tensor("clocks", &[5 * CLOCKS as u64], parameter)],
                false => vec![
                    tensor("first", &[5, 1], parameter),
                    tensor("mean", &[3], TensorKind::Buffer),
                    tensor("scale", &[1, 1], parameter),
                    tensor("bias", &[1], parameter),
                    tensor("second", &[5, 1], parameter),
                ],
            },
            bucket_bytes: None,
            block_bytes: 4 * CLOCKS,
            consistency: self.consistency,
            policies: self.possible(),
            optimizer: self.optimizer,
            decay_exempt: self.decay_exempt,
            schedule: Schedule {
                learning_rate: self.rate,
                ..self.schedule.clone()
            },
            samples: self.samples,
            epoch_samples: 1 << 20,
            batch: BATCH,
            batch_ramp: self.batch_ramp.clone(),
            local: self.local_steps > 1,
            local_steps: self.local_steps,
            chunk_samples: 64,
            sets: Default::default(),
            lease_ms: LEASE_MS,
            milestone_samples: 0,
            frozen: Vec::new(),
            start_grace_ms: self.start_grace_ms,
            up: Compression::None,
            down: self.down,
            faults: FaultSpec {
                replication: self.replication,
                reform_grace_ms: self.reform_grace_ms,
                snapshot_ms: self.snapshot_ms,
                snapshots_kept: SNAPSHOTS_KEPT,
                patience_ms: match self.sabotage {
                    Some(Sabotage::Impatient) => LEASE_MS + 1,
                    _ => self.patience_ms,
                },
                on_loss: match self.stops_on_loss {
                    true => OnLoss::Stop,
                    false => OnLoss::Continue,
                },
                ..FaultSpec::default()
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
