//! What a run's optimizer does to the pieces of its blocks, seen from outside a shard.

use tradewind_common::spec::ConsistencySpec::Async;
use tradewind_common::spec::{DecayExempt, OptimizerSpec, RunSpec};
use tradewind_common::{TensorKind, TensorSpec};

use super::holders::Stage;
use super::shard::{gradient, push};
use super::spec;

fn tensor(name: &str, shape: &[u64]) -> TensorSpec {
    TensorSpec {
        name: name.into(),
        shape: shape.to_vec(),
        kind: TensorKind::Parameter,
    }
}

/// A run of one group whose flat vector is a bias of 3, then a matrix of 4, in blocks of `block`
/// values.
fn run(optimizer: OptimizerSpec, block: usize) -> RunSpec {
    RunSpec {
        tensors: vec![tensor("weight", &[2, 2]), tensor("bias", &[3])],
        block_bytes: 4 * block,
        optimizer,
        ..spec(&[1], Async)
    }
}

/// The flat vector after one update of ones by a gradient of zeros, at the primary and at its copy.
fn after(spec: RunSpec) -> Vec<f32> {
    let mut stage = Stage::ready(spec, &[1], &[(0, 0)]);
    for (block, length) in stage.lengths() {
        stage.push(push(0, 0, block, gradient(&vec![0.0; length], 1)), 0);
    }
    stage.settle();
    stage.assert_equal();
    let states = stage.states(0);
    states
        .iter()
        .flat_map(|state| state.values.to_vec())
        .collect()
}

#[test]
fn weight_decay_spares_what_is_exempt() {
    let sgd = OptimizerSpec::Sgd {
        momentum: 0.5,
        nesterov: false,
        weight_decay: 0.25,
    };
    let adamw = OptimizerSpec::AdamW {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.25,
    };
    for optimizer in [sgd, adamw] {
        for block in [2, 3, 7] {
            let all = run(optimizer, block);
            assert_eq!(after(all.clone()), [0.75; 7], "{optimizer:?}, {block}");
            let spared = RunSpec {
                decay_exempt: DecayExempt::Vectors,
                ..all
            };
            let want = [1.0, 1.0, 1.0, 0.75, 0.75, 0.75, 0.75];
            assert_eq!(after(spared), want, "{optimizer:?}, {block}");
        }
    }
}
