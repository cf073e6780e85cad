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
mod ordered;
mod policies;
mod recovery;
mod refusals;
mod restored;
mod resume;
mod shard;
mod snapshots;
mod takeover;

use tradewind_common::spec::{ConsistencySpec, FaultSpec, OnLoss, RunSpec};
use tradewind_common::{TensorKind, TensorSpec};

/// A run of plain SGD with rate 1 on two blocks: block 0 is a parameter of three values, block
/// 1 a buffer of two.
pub(crate) fn spec(group_sizes: &[u32], consistency: ConsistencySpec) -> RunSpec {
    let tensor = |name: &str, elements, kind| TensorSpec {
        name: name.into(),
        shape: vec![elements],
        kind,
    };
    let tensors = vec![
        tensor("weight", 3, TensorKind::Parameter),
        tensor("mean", 2, TensorKind::Buffer),
    ];
    RunSpec {
        consistency,
        faults: FaultSpec {
            on_loss: OnLoss::Continue,
            ..FaultSpec::default()
        },
        ..RunSpec::plain(group_sizes.to_vec(), tensors, 16)
    }
}
