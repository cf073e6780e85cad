//! Optimizers whose steps follow from the norms of tensors, wherever these lie.

use tradewind_common::optimizer::{Larc, Lars};
use tradewind_common::pieces::{Cut, Norms, Piece, Source, norm};
use tradewind_common::policy::momentum::{ClosedLoop, Lowered};
use tradewind_common::policy::staleness::{Compensate, Scale};
use tradewind_common::policy::{MomentumSpec, Policies, StalenessSpec};
use tradewind_common::schedule::{Schedule, Seen};
use tradewind_common::spec::ConsistencySpec::Sync;
use tradewind_common::spec::{DecayExempt, OptimizerSpec, RunSpec};
use tradewind_common::{BlockId, Generation};

use super::holders::Stage;
use super::optimizers::run;
use super::shard::push;
use crate::block::Gradient;
use crate::optimizer::{Step, from_spec};
use crate::shard::Action;

const TRUST: f64 = 0.2;
const BETA: f64 = 0.125;
const MOMENTUM: f64 = 0.5;
const RATE: f64 = 0.5;

fn lars(momentum: f64) -> OptimizerSpec {
    OptimizerSpec::Lars(Lars {
        momentum,
        weight_decay: BETA,
        trust: TRUST,
    })
}

fn larc(momentum: f64) -> OptimizerSpec {
    OptimizerSpec::Larc(Larc {
        momentum,
        weight_decay: BETA,
        trust: TRUST,
    })
}

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

/// The flat vector after the updates of [`GRADIENTS`], at the primary and at its copy; those of group
/// 0 alone, computed on the values before them, or all on the first if they are `stale`.
fn trained(spec: &RunSpec, stale: bool) -> Vec<f32> {
    let live: Vec<_> = (0..spec.group_sizes.len() as u32)
        .map(|group| (group, 0))
        .collect();
    let mut stage = Stage::ready(spec.clone(), &[1], &live);
    let layout = spec.layout().unwrap();
    let mut flat = vec![1.0f32; 7];
    for (clock, gradient) in (0u64..).zip(GRADIENTS) {
        for block in &layout.blocks {
            let contribution = Gradient {
                values: gradient[block.elements.clone()].to_vec(),
                samples: 2,
                pulled_version: if stale { 0 } else { clock },
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

/// A step: its weight, the rate of LARS unless the tensor is exempt, what it moves (θ, v), and a
/// decayed gradient.
type Move = fn(f64, Option<f64>, (&mut f64, &mut f64), f64);

/// The same in f64, tensor by tensor, with these weights of the updates.
fn reference(exempt: DecayExempt, weights: [f64; 3], step: Move) -> Vec<f64> {
    let (mut values, mut velocity) = (vec![1.0f64; 7], vec![0.0f64; 7]);
    for (gradient, weight) in GRADIENTS.into_iter().zip(weights) {
        let gradient = gradient.map(f64::from);
        for (index, tensor) in TENSORS.into_iter().enumerate() {
            let spared = exempt == DecayExempt::Vectors && index == 0;
            let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let of_values = length(&mut tensor.clone().map(|at| values[at]));
            let of_gradient = length(&mut tensor.clone().map(|at| gradient[at]));
            let local = TRUST * of_values / (of_gradient + BETA * of_values);
            let local = (!spared).then_some(local);
            let decay = if spared { 0.0 } else { BETA };
            for x in tensor {
                let g = gradient[x] + decay * values[x];
                step(weight, local, (&mut values[x], &mut velocity[x]), g);
            }
        }
    }
    values
}

const AS_IT_IS: [f64; 3] = [1.0; 3];

fn lars_moves(weight: f64, local: Option<f64>, (x, v): (&mut f64, &mut f64), g: f64) {
    *v = MOMENTUM * *v + weight * RATE * local.unwrap_or(1.0) * g;
    *x -= *v;
}

fn larc_moves(weight: f64, local: Option<f64>, (x, v): (&mut f64, &mut f64), g: f64) {
    let clip = local.map_or(1.0, |local| (local / RATE).min(1.0));
    *v = MOMENTUM * *v + weight * clip * g;
    *x -= RATE * *v;
}

fn close(got: &[f32], want: &[f64], what: &str) {
    for (got, want) in got.iter().zip(want) {
        let close = (f64::from(*got) - want).abs() < 1e-6;
        assert!(close, "{what}: {got}, not {want}");
    }
}

fn check(optimizer: OptimizerSpec, step: Move) {
    for exempt in [DecayExempt::None, DecayExempt::Vectors] {
        let want = reference(exempt, AS_IT_IS, step);
        for block in [2, 3, 4, 7] {
            let spec = RunSpec {
                decay_exempt: exempt,
                schedule: Schedule::constant(RATE),
                ..run(optimizer, block)
            };
            let what = format!("{optimizer:?} {exempt:?} {block}");
            close(&trained(&spec, false), &want, &what);
        }
    }
}

#[test]
fn lars_takes_the_norms_of_whole_tensors() {
    check(lars(MOMENTUM), lars_moves);
}

#[test]
fn larc_only_shortens_steps() {
    // Of the three gradients of the matrix the first and the last are clipped.
    check(larc(MOMENTUM), larc_moves);
    let optimizer = from_spec(larc(MOMENTUM));
    let norms = |values, gradient| Norms { values, gradient };
    let clipped = TRUST / (1.0 + BETA) / RATE;
    assert_eq!(optimizer.scale(RATE, norms(1.0, 1.0)), clipped);
    assert_eq!(optimizer.scale(0.01, norms(1.0, 1.0)), 1.0, "never longer");
    assert_eq!(optimizer.scale(0.0, norms(1.0, 1.0)), 1.0);
    assert_eq!(optimizer.scale(RATE, norms(0.0, 1.0)), 1.0);
}

/// As in NVIDIA's LARC: with the whole rate instead of a part of it, decay alone would move a tensor
/// by far more than a gradient may.
#[test]
fn a_tensor_without_a_gradient_does_not_decay() {
    for optimizer in [lars(MOMENTUM), larc(MOMENTUM), lars(0.0), larc(0.0)] {
        let optimizer = from_spec(optimizer);
        for (rate, values) in [(RATE, 1.0), (RATE, 0.0), (0.0, 1.0)] {
            let gradient = 0.0;
            let scale = optimizer.scale(rate, Norms { values, gradient });
            let step = Step {
                scale: scale as f32,
                ..Step::new(rate, 1)
            };
            let (mut values, mut velocity) = ([values as f32; 2], [0.0; 2]);
            let slots = optimizer.slots();
            let mut slots: Vec<&mut [f32]> = [&mut velocity[..]].into_iter().take(slots).collect();
            let before = values;
            optimizer.apply(step, &mut values, &mut slots, &[0.0; 2]);
            assert_eq!((values, velocity), (before, [0.0; 2]));
        }
    }
}

/// With two groups a total of 2/3 leaves [`MOMENTUM`]: 2 updates late, of which asynchrony has one.
#[test]
fn their_momentum_is_lowered_with_the_live_groups() {
    let total = 2.0 / 3.0;
    let cases: [(OptimizerSpec, Move); 2] = [(lars(total), lars_moves), (larc(total), larc_moves)];
    for (optimizer, step) in cases {
        let mut spec = RunSpec {
            group_sizes: vec![1, 1],
            schedule: Schedule::constant(RATE),
            ..run(optimizer, 3)
        };
        spec.policies.momentum = MomentumSpec::Lowered(Lowered {});
        spec.check().unwrap();
        let want = reference(DecayExempt::None, AS_IT_IS, step);
        close(&trained(&spec, false), &want, &format!("{optimizer:?}"));
    }
}

/// Of the matrix the third gradient is stale and clipped: it counts half of the clipped step.
#[test]
fn a_stale_gradient_counts_less_whatever_its_length() {
    let weights = [1.0, 1.0, 0.5];
    let cases = [
        (lars(MOMENTUM), lars_moves as Move),
        (larc(MOMENTUM), larc_moves),
    ];
    for (optimizer, step) in cases {
        for block in [3, 7] {
            let mut spec = RunSpec {
                decay_exempt: DecayExempt::Vectors,
                schedule: Schedule::constant(RATE),
                ..run(optimizer, block)
            };
            spec.policies.staleness = StalenessSpec::Scale(Scale {});
            let want = reference(DecayExempt::Vectors, weights, step);
            let what = format!("{optimizer:?} {block}");
            close(&trained(&spec, true), &want, &what);
        }
    }
}

#[test]
fn what_goes_with_no_norms_is_refused() {
    let staleness = StalenessSpec::Compensate(Compensate { lambda: 1.0 });
    let compensate = Policies {
        staleness,
        ..Policies::default()
    };
    let closed_loop = Policies {
        momentum: MomentumSpec::ClosedLoop(ClosedLoop { gain: 0.25 }),
        ..Policies::default()
    };
    let cases = [
        (compensate, "staleness.policy excludes"),
        (closed_loop, "momentum.policy excludes"),
    ];
    for (optimizer, name) in [(lars(MOMENTUM), "lars"), (larc(MOMENTUM), "larc")] {
        for (policies, want) in cases {
            let want = format!("{want} optimizer.name = {name:?}");
            let spec = RunSpec {
                policies,
                ..run(optimizer, 7)
            };
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains(&want), "{error}");
        }
    }
}

/// Under `sync` the norms of parts of tensors are averaged by samples: an upper bound of the norm of
/// the averaged gradient.
#[test]
fn norms_of_several_groups_are_averaged() {
    let lars = OptimizerSpec::Lars(Lars {
        momentum: 0.0,
        weight_decay: 0.0,
        trust: 1.0,
    });
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
    let lars = OptimizerSpec::Lars(Lars {
        momentum: 0.0,
        weight_decay: 0.0,
        trust: 1.0,
    });
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

/// A gradient next to nothing would make the step infinite.
#[test]
fn a_ratio_beyond_f32_is_none() {
    let optimizer = from_spec(OptimizerSpec::Lars(Lars {
        momentum: 0.0,
        weight_decay: 0.0,
        trust: TRUST,
    }));
    let scale = |gradient| {
        let values = 10.0;
        optimizer.scale(RATE, Norms { values, gradient })
    };
    assert_eq!(scale(1e-41), 1.0);
    assert_eq!(scale(4.0), TRUST * 10.0 / 4.0);
}
