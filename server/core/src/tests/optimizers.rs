//! What a run's optimizer does to the pieces of its blocks, seen from outside a shard.

use tradewind_common::optimizer::{Adam, AdamW, Larc, Sgd};
use tradewind_common::schedule::{Decay, Scaling, Schedule, Seen, Unit};
use tradewind_common::spec::ConsistencySpec::{Async, Sync};
use tradewind_common::spec::{DecayExempt, OptimizerSpec, RunSpec};
use tradewind_common::{Generation, TensorKind, TensorSpec};

use super::holders::Stage;
use super::shard::{WEIGHT, gradient, push};
use super::spec;
use crate::block::Gradient;
use crate::log::{LogEntry, Record};
use crate::shard::Action;

fn tensor(name: &str, shape: &[u64]) -> TensorSpec {
    TensorSpec {
        name: name.into(),
        shape: shape.to_vec(),
        kind: TensorKind::Parameter,
    }
}

/// A run of one group whose flat vector is a bias of 3, then a matrix of 4, in blocks of `block`
/// values.
pub(super) fn run(optimizer: OptimizerSpec, block: usize) -> RunSpec {
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
    let sgd = OptimizerSpec::Sgd(Sgd {
        momentum: 0.5,
        nesterov: false,
        weight_decay: 0.25,
    });
    let adamw = OptimizerSpec::AdamW(AdamW {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.25,
    });
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

/// Three equal values, the mean over so many samples.
fn contribution(value: f32, samples: u32, seen: Seen) -> Action {
    Action::Contribute(Some(Gradient {
        values: vec![value; 3],
        samples,
        pulled_version: 0,
        lineage: Generation(0),
        seen,
        norms: Vec::new(),
    }))
}

/// The rates and the weights of an update of 4 samples and one of 8, by two groups, under `sync`.
fn steps(schedule: Schedule, optimizer: OptimizerSpec) -> Vec<(f64, f32)> {
    let spec = RunSpec {
        schedule,
        optimizer,
        ..spec(&[1, 1], Sync)
    };
    let mut stage = Stage::ready(spec, &[1], &[(0, 0), (1, 0)]);
    let mut push_at = |group, clock, samples, seen| {
        let action = contribution(1.0, samples, seen);
        stage.push(push(group, clock, WEIGHT, action), 0);
    };
    let seen = |samples, updates| Seen { samples, updates };
    push_at(0, 0, 1, seen(10, 1));
    push_at(1, 0, 3, seen(20, 0));
    push_at(0, 1, 4, seen(24, 2));
    push_at(1, 1, 4, seen(24, 2));
    let record = |record: Record| match record.entry {
        LogEntry::Update(update) => {
            let applied = update.applied.unwrap();
            Some((applied.rate, applied.weight))
        }
        _ => None,
    };
    stage.wire(1).drain(..).filter_map(record).collect()
}

#[test]
fn the_rate_follows_what_the_best_informed_group_knows() {
    let sgd = spec(&[1], Sync).optimizer;
    let rates = |schedule| {
        let steps = steps(schedule, sgd).into_iter();
        steps.map(|(rate, _)| rate).collect::<Vec<_>>()
    };
    let plain = Schedule::constant(1.0);
    let step = |unit, milestones: &[u64]| Schedule {
        unit,
        decay: Decay::Step {
            milestones: milestones.to_vec(),
            gamma: 0.5,
            factors: vec![],
        },
        ..plain.clone()
    };
    assert_eq!(rates(plain.clone()), [1.0, 1.0]);
    assert_eq!(rates(step(Unit::Samples, &[20, 24])), [0.5, 0.25]);
    assert_eq!(rates(step(Unit::Updates { end: 0 }, &[1, 2])), [0.5, 0.25]);
}

/// Where the length of a gradient says how far it moves values the gradient is scaled, and the rate
/// elsewhere.
#[test]
fn an_update_counts_by_its_samples() {
    let sgd = spec(&[1], Sync).optimizer;
    let larc = OptimizerSpec::Larc(Larc {
        momentum: 0.0,
        weight_decay: 0.0,
        trust: 1.0,
    });
    let adam = OptimizerSpec::Adam(Adam {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.0,
    });
    let reference = 2;
    let root = 2f64.sqrt();
    for (scaling, factors) in [
        (Scaling::None, [1.0, 1.0]),
        (Scaling::Linear { reference }, [2.0, 4.0]),
        (Scaling::Sqrt { reference }, [root, 2.0]),
    ] {
        let scaled = Schedule {
            scaling,
            ..Schedule::constant(1.0)
        };
        let weights = factors.map(|factor| (1.0, factor as f32));
        assert_eq!(steps(scaled.clone(), sgd), weights);
        let rates = factors.map(|factor| (factor, 1.0));
        for optimizer in [adam, larc] {
            assert_eq!(steps(scaled.clone(), optimizer), rates, "{optimizer:?}");
        }
    }
}

/// Long after, six samples have moved the values by as much whether they came in one update or in
/// three of other sizes, with momentum too: η/(1 − μ) Σ(samples · gradient)/r.
#[test]
fn every_sample_weighs_the_same_however_contributions_were_merged() {
    let (momentum, reference) = (0.5, 4);
    let optimizer = OptimizerSpec::Sgd(Sgd {
        momentum,
        nesterov: false,
        weight_decay: 0.0,
    });
    for parts in [
        &[(6, 2.0)][..],
        &[(1, 2.0), (4, 2.0), (1, 2.0)],
        &[(2, 0.0), (4, 3.0)],
    ] {
        let run = RunSpec {
            optimizer,
            schedule: Schedule {
                scaling: Scaling::Linear { reference },
                ..Schedule::constant(0.125)
            },
            samples: 1_000,
            ..spec(&[1], Async)
        };
        let mut stage = Stage::ready(run, &[1], &[(0, 0)]);
        // Those that only let the velocity run out are small, as is their weight.
        let all = parts.iter().copied().chain([(1, 0.0); 40]);
        for (clock, (samples, g)) in (0..).zip(all) {
            let action = contribution(g, samples, Seen::default());
            stage.push(push(0, clock, WEIGHT, action), 0);
        }
        stage.settle();
        stage.assert_equal();
        let moved = 0.125 / (1.0 - momentum) * 12.0 / reference as f64;
        let got = f64::from(stage.states(0)[0].values[0]);
        assert!((got - (1.0 - moved)).abs() < 1e-6, "{parts:?}: {got}");
    }
}
