//! The cores from outside: inputs go in, outputs are compared.

mod attach;
mod captures;
mod chaos;
mod compressed;
mod copies;
mod crowded;
mod failover;
mod filling;
mod harness;
mod holders;
mod layerwise;
mod membership;
mod milestones;
mod optimizers;
mod policies;
mod recovery;
mod refusals;
mod restored;
mod resume;
mod shard;
mod snapshots;
mod takeover;

use tradewind_common::compress::Compression;
use tradewind_common::optimizer::Sgd;
use tradewind_common::policy::Policies;
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{
    ConsistencySpec, DecayExempt, FaultSpec, OnLoss, OptimizerSpec, RunSpec,
};
use tradewind_common::{TensorKind, TensorSpec};

/// A run of plain SGD with rate 1 on two blocks: block 0 is a parameter of three values, block
/// 1 a buffer of two.
pub(crate) fn spec(group_sizes: &[u32], consistency: ConsistencySpec) -> RunSpec {
    let tensor = |name: &str, elements, kind| TensorSpec {
        name: name.into(),
        shape: vec![elements],
        kind,
    };
    RunSpec {
        seed: 1,
        group_sizes: group_sizes.to_vec(),
        tensors: vec![
            tensor("weight", 3, TensorKind::Parameter),
            tensor("mean", 2, TensorKind::Buffer),
        ],
        bucket_bytes: None,
        block_bytes: 16,
        consistency,
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
        sets: Default::default(),
        lease_ms: 100,
        milestone_samples: 0,
        frozen: Vec::new(),
        start_grace_ms: 150,
        up: Compression::None,
        down: Compression::None,
        faults: FaultSpec {
            on_loss: OnLoss::Continue,
            ..FaultSpec::default()
        },
    }
}
