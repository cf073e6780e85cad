//! What a run's optimizer does to the pieces of its blocks, seen from outside a shard.

use tradewind_common::pieces::{Cut, Norms, Piece, Source, norm};
use tradewind_common::schedule::{Decay, Scaling, Schedule, Seen, Unit};
use tradewind_common::spec::ConsistencySpec::{Async, Sync};
use tradewind_common::spec::{DecayExempt, OptimizerSpec, RunSpec};
use tradewind_common::{BlockId, Generation, TensorKind, TensorSpec};

use super::holders::Stage;
use super::shard::{WEIGHT, gradient, push};
use super::spec;
use crate::core::block::Gradient;
use crate::core::log::{Entry, Record};
use crate::core::optimizer::from_spec;
use crate::core::shard::Action;

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

/// The rates of an update of 4 samples and one of 8, by two groups, under `sync`.
fn rates(schedule: Schedule) -> Vec<f64> {
    let spec = RunSpec {
        schedule,
        ..spec(&[1, 1], Sync)
    };
    let mut stage = Stage::ready(spec, &[1], &[(0, 0), (1, 0)]);
    let mut push_at = |group, clock, samples, seen| {
        let contribution = Gradient {
            values: vec![1.0; 3],
            samples,
            pulled_version: 0,
            lineage: Generation(0),
            seen,
            norms: Vec::new(),
        };
        let action = Action::Contribute(Some(contribution));
        stage.push(push(group, clock, WEIGHT, action), 0);
    };
    let seen = |samples, updates| Seen { samples, updates };
    push_at(0, 0, 1, seen(10, 1));
    push_at(1, 0, 3, seen(20, 0));
    push_at(0, 1, 4, seen(24, 2));
    push_at(1, 1, 4, seen(24, 2));
    let record = |record: Record| match record.entry {
        Entry::Update(update) => Some(update.applied.unwrap().rate),
        _ => None,
    };
    stage.wire(1).drain(..).filter_map(record).collect()
}

#[test]
fn the_rate_follows_what_the_best_informed_group_knows() {
    let plain = Schedule::constant(1.0);
    let step = |unit, milestones: &[u64]| Schedule {
        unit,
        decay: Decay::Step {
            milestones: milestones.to_vec(),
            gamma: 0.5,
        },
        ..plain.clone()
    };
    assert_eq!(rates(plain.clone()), [1.0, 1.0]);
    assert_eq!(rates(step(Unit::Samples, &[20, 24])), [0.5, 0.25]);
    assert_eq!(rates(step(Unit::Updates { end: 0 }, &[1, 2])), [0.5, 0.25]);
    let scaled = |scaling| Schedule {
        scaling,
        ..plain.clone()
    };
    let reference = 2;
    assert_eq!(rates(scaled(Scaling::Linear { reference })), [2.0, 4.0]);
    let roots = rates(scaled(Scaling::Sqrt { reference }));
    assert_eq!(roots, [2f64.sqrt(), 2.0]);
}

const TRUST: f64 = 0.2;
const BETA: f64 = 0.125;
const MOMENTUM: f64 = 0.5;
const RATE: f64 = 0.5;

/// The bias and the matrix of [`run`] in the flat vector.
const TENSORS: [std::ops::Range<usize>; 2] = [0..3, 3..7];

const GRADIENTS: [[f32; 7]; 3] = [
    [0.5, -0.25, 1.0, 0.1, 0.2, -0.3, 4.0],
    [-0.5, 2.0, 0.75, 0.01, 0.02, 0.03, -0.04],
    [1.0, 1.0, -1.0, 3.0, 0.0, -0.5, 0.25],
];

/// Norms of whole tensors for each piece of a block that is part of one.
fn norms(spec: &RunSpec, block: BlockId, values: &[f32], gradient: &[f32]) -> Vec<Norms> {
    let layout = spec.layout().unwrap();
    let pieces = Cut::of(spec).pieces(&layout, layout.block(block).unwrap());
    let of = |piece: Piece| match piece.norms {
        Source::Push { tensor } => Some(Norms {
            values: norm(&values[tensor.clone()]),
            gradient: norm(&gradient[tensor]),
        }),
        Source::Here | Source::Nowhere => None,
    };
    pieces.into_iter().filter_map(of).collect()
}

/// The flat vector after the updates of [`GRADIENTS`], at the primary and at its copy.
fn trained(spec: &RunSpec) -> Vec<f32> {
    let mut stage = Stage::ready(spec.clone(), &[1], &[(0, 0)]);
    let layout = spec.layout().unwrap();
    let mut flat = vec![1.0f32; 7];
    for (clock, gradient) in (0u64..).zip(GRADIENTS) {
        for block in &layout.blocks {
            let contribution = Gradient {
                values: gradient[block.elements.clone()].to_vec(),
                samples: 2,
                pulled_version: clock,
                lineage: Generation(0),
                seen: Seen::default(),
                norms: norms(spec, block.id, &flat, &gradient),
            };
            let action = Action::Contribute(Some(contribution));
            stage.push(push(0, clock, block.id, action), clock);
        }
        let states = stage.states(0);
        flat = states.iter().flat_map(|s| s.values.to_vec()).collect();
    }
    stage.settle();
    stage.assert_equal();
    flat
}

/// The same in f64, tensor by tensor: `step` is told the rate of LARS of a tensor, or nothing of one
/// that is exempt, and moves (θ, v) by a decayed gradient.
fn reference(exempt: DecayExempt, step: fn(Option<f64>, (&mut f64, &mut f64), f64)) -> Vec<f64> {
    let (mut values, mut velocity) = (vec![1.0f64; 7], vec![0.0f64; 7]);
    for gradient in GRADIENTS {
        for (index, tensor) in TENSORS.into_iter().enumerate() {
            let spared = exempt == DecayExempt::Vectors && index == 0;
            let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let of_values = length(&mut tensor.clone().map(|at| values[at]));
            let of_gradient = length(&mut tensor.clone().map(|at| f64::from(gradient[at])));
            let local = TRUST * of_values / (of_gradient + BETA * of_values);
            for at in tensor {
                let decay = if spared { 0.0 } else { BETA };
                let g = f64::from(gradient[at]) + decay * values[at];
                let local = (!spared).then_some(local);
                step(local, (&mut values[at], &mut velocity[at]), g);
            }
        }
    }
    values
}

fn check_layerwise(optimizer: OptimizerSpec, step: fn(Option<f64>, (&mut f64, &mut f64), f64)) {
    for exempt in [DecayExempt::None, DecayExempt::Vectors] {
        let want = reference(exempt, step);
        for block in [2, 3, 4, 7] {
            let spec = RunSpec {
                decay_exempt: exempt,
                schedule: Schedule::constant(RATE),
                ..run(optimizer, block)
            };
            for (got, want) in trained(&spec).into_iter().zip(&want) {
                let close = (f64::from(got) - want).abs() < 1e-6;
                assert!(close, "{optimizer:?} {exempt:?} {block}: {got}, not {want}");
            }
        }
    }
}

#[test]
fn lars_takes_the_norms_of_whole_tensors() {
    let lars = OptimizerSpec::Lars {
        momentum: MOMENTUM,
        weight_decay: BETA,
        trust: TRUST,
    };
    check_layerwise(lars, |local, (x, v), g| {
        *v = MOMENTUM * *v + RATE * local.unwrap_or(1.0) * g;
        *x -= *v;
    });
}

#[test]
fn larc_only_shortens_steps() {
    // Of the three gradients of the matrix the first and the last are clipped.
    let larc = OptimizerSpec::Larc {
        momentum: MOMENTUM,
        weight_decay: BETA,
        trust: TRUST,
    };
    check_layerwise(larc, |local, (x, v), g| {
        let clip = local.map_or(1.0, |local| (local / RATE).min(1.0));
        *v = MOMENTUM * *v + clip * g;
        *x -= RATE * *v;
    });
    let optimizer = from_spec(larc);
    let norms = |values, gradient| Norms { values, gradient };
    let clipped = TRUST / (1.0 + BETA) / RATE;
    assert_eq!(optimizer.scale(RATE, norms(1.0, 1.0)), clipped);
    assert_eq!(optimizer.scale(0.01, norms(1.0, 1.0)), 1.0, "never longer");
    assert_eq!(optimizer.scale(0.0, norms(1.0, 1.0)), 1.0);
    assert_eq!(optimizer.scale(RATE, norms(0.0, 1.0)), 1.0);
    assert_eq!(optimizer.scale(RATE, norms(1.0, 0.0)), 1.0);
}

/// Under `sync` the norms of parts of tensors are averaged by samples: an upper bound of the norm of
/// the averaged gradient.
#[test]
fn norms_of_several_groups_are_averaged() {
    let lars = OptimizerSpec::Lars {
        momentum: 0.0,
        weight_decay: 0.0,
        trust: 1.0,
    };
    let spec = RunSpec {
        group_sizes: vec![1, 1],
        consistency: Sync,
        ..run(lars, 2)
    };
    let part = Norms {
        values: 3.0,
        gradient: 1.0,
    };
    let mut stage = Stage::ready(spec, &[1], &[(0, 0), (1, 0)]);
    let contribute = |samples, norms: Vec<Norms>| {
        Action::Contribute(Some(Gradient {
            values: vec![1.0],
            samples,
            pulled_version: 0,
            lineage: Generation(0),
            seen: Seen::default(),
            norms,
        }))
    };
    let block = stage.lengths()[0];
    assert_eq!(block.1, 1, "seven values in blocks of at most two");
    let more = Norms {
        values: 3.0,
        gradient: 5.0,
    };
    stage.push(push(0, 0, block.0, contribute(3, vec![part])), 0);
    stage.push(push(1, 0, block.0, contribute(1, vec![more])), 1);
    stage.settle();
    // ‖g‖ = (3·1 + 1·5)/4 = 2, ‖θ‖ = 3: the step is 3/2 of a gradient of 1.
    assert_eq!(stage.states(0)[0].values[0], 1.0 - 1.5);
}

#[test]
fn a_push_without_the_norms_that_it_needs_is_refused() {
    let lars = OptimizerSpec::Lars {
        momentum: 0.0,
        weight_decay: 0.0,
        trust: 1.0,
    };
    let mut stage = Stage::ready(run(lars, 2), &[], &[(0, 0)]);
    let (block, length) = stage.lengths()[0];
    let mut ask = |norms: &[(f64, f64)]| {
        let pair = |(values, gradient): &(f64, f64)| Norms {
            values: *values,
            gradient: *gradient,
        };
        let contribution = Gradient {
            values: vec![1.0; length],
            samples: 1,
            pulled_version: 0,
            lineage: Generation(0),
            seen: Seen::default(),
            norms: norms.iter().map(pair).collect(),
        };
        let action = Action::Contribute(Some(contribution));
        stage.push(push(0, 0, block, action), 0);
        stage.answer()
    };
    let mut refused = |norms: &[(f64, f64)], want: &str| {
        let refusal = ask(norms).unwrap_err().to_string();
        assert!(refusal.contains(want), "{refusal}");
    };
    refused(&[], "norms: block 0 needs 1 of them, not 0");
    refused(&[(1.0, 1.0), (1.0, 1.0)], "needs 1 of them, not 2");
    refused(&[(f64::NAN, 1.0)], "not finite");
    refused(&[(1.0, -1.0)], "not finite numbers of at least 0");
    assert_eq!(ask(&[(1.0, 1.0)]).unwrap().version, 1);
}
