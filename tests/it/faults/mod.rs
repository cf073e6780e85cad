//! Servers, ranks, ways and disks that fail, one fault at a time; the runs go on, and nothing that
//! was acknowledged is lost.
//!
//! Gradients are small whole numbers and the rate is a power of two, so f32 sums are exact in any
//! order: what the shards must hold is computed from who has pushed how often, to the last bit.

mod coordinator;
mod disk;
mod ending;
mod failover;
mod files;
mod groups;
mod leases;
mod log;
mod partition;
mod pushing;
mod restored;
mod resume;
mod shut_out;
mod trained;
mod watch;

use std::sync::Arc;
use tradewind_common::optimizer::Sgd;

use tradewind_common::compress::Compression;
use tradewind_common::policy::Policies;
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{
    ConsistencySpec, DecayExempt, FaultSpec, OnLoss, OptimizerSpec, RunSpec,
};
use tradewind_common::{Layout, TensorKind, TensorSpec};

/// The run of these tests.
const RUN: &str = "faulty";

const RATE: f32 = 0.5;

/// Longer than any test.
const LONG_MS: u64 = 600_000;

/// A lease that a test waits for: short, but longer than a busy machine lets a beat wait.
const LEASE_MS: u64 = 2_000;

/// An `async` run of plain SGD on 90 blocks of 8 values. A group waits for all its ranks at first,
/// and for replacements not at all. Leases outlast any test, and no snapshot is taken but the first.
fn spec(group_sizes: &[u32], replication: u32) -> RunSpec {
    RunSpec {
        seed: 1,
        group_sizes: group_sizes.to_vec(),
        tensors: vec![TensorSpec {
            name: "weight".into(),
            shape: vec![720],
            kind: TensorKind::Parameter,
        }],
        bucket_bytes: None,
        block_bytes: 32,
        consistency: ConsistencySpec::Async,
        policies: Policies::default(),
        optimizer: OptimizerSpec::Sgd(Sgd {
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }),
        decay_exempt: DecayExempt::None,
        schedule: Schedule::constant(RATE.into()),
        samples: 1 << 40,
        epoch_samples: 1_000,
        batch: 4,
        batch_ramp: Vec::new(),
        local: false,
        local_steps: 1,
        chunk_samples: 40,
        sets: Default::default(),
        lease_ms: LONG_MS,
        milestone_samples: 0,
        frozen: Vec::new(),
        start_grace_ms: if group_sizes.iter().all(|size| *size == 1) {
            0
        } else {
            LONG_MS
        },
        up: Compression::None,
        down: Compression::None,
        faults: FaultSpec {
            replication,
            reform_grace_ms: 0,
            snapshot_ms: 0,
            snapshots_kept: 3,
            patience_ms: 2 * LONG_MS,
            on_loss: OnLoss::Continue,
            ..FaultSpec::default()
        },
    }
}

fn layout(spec: &RunSpec) -> Arc<Layout> {
    Arc::new(spec.check().expect("a specification that can be followed"))
}

/// What the group that creates creates.
fn initial(elements: usize) -> Vec<f32> {
    (0..elements).map(|i| (i % 17) as f32).collect()
}

/// A group's gradient at a clock.
fn gradient(group: u32, clock: u64, elements: usize) -> Vec<f32> {
    let of = |i: usize| (i as u64 * 7 + clock * 5 + u64::from(group) * 3) % 11;
    (0..elements).map(|i| of(i) as f32 - 5.0).collect()
}

/// The flat vector after these gradients: (group, clocks) each.
fn after(elements: usize, pushed: &[(u32, std::ops::Range<u64>)]) -> Vec<f32> {
    let mut values = initial(elements);
    for (group, clocks) in pushed {
        for clock in clocks.clone() {
            let gradient = gradient(*group, clock, elements);
            for (value, by) in values.iter_mut().zip(gradient) {
                *value -= RATE * by;
            }
        }
    }
    values
}
