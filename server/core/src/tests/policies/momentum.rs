//! The momentum of updates.

use tradewind_common::optimizer::Sgd;
use tradewind_common::policy::momentum::{ClosedLoop, Lowered};
use tradewind_common::policy::staleness::Compensate;
use tradewind_common::policy::{MomentumSpec, Policies, StalenessSpec};
use tradewind_common::schedule::{Scaling, Schedule};
use tradewind_common::spec::ConsistencySpec::Async;
use tradewind_common::spec::{DecayExempt, OptimizerSpec, RunSpec};
use tradewind_common::{BlockId, TensorKind, TensorSpec};

use super::super::shard::{follow, only, push, ready_as, view};
use super::{LIVE, decided, send, send_to, with};
use crate::ReplyTo;
use crate::shard::Action;

fn heavy(momentum: f64, policy: MomentumSpec) -> RunSpec {
    let policies = Policies {
        momentum: policy,
        ..Policies::default()
    };
    RunSpec {
        optimizer: OptimizerSpec::Sgd(Sgd {
            momentum,
            nesterov: false,
            weight_decay: 0.0,
        }),
        ..with(Async, policies)
    }
}

#[test]
fn momentum_is_lowered_by_the_groups_that_are_live() {
    let mut shard = ready_as(heavy(0.75, MomentumSpec::Lowered(Lowered {})), &LIVE);
    let (mut value, mut velocity, mut clock) = (1.0f64, 0.0f64, 0);
    let views: [&[(u32, u64)]; 3] = [&LIVE, &LIVE[..2], &LIVE[..1]];
    for (number, live) in views.into_iter().enumerate() {
        follow(&mut shard, view(3 + number as u64, live, &[], None));
        // 3 updates late on average, of which all others but one are asynchrony's.
        let held = 3.0 - (live.len() as f64 - 1.0);
        for _ in 0..3 {
            send(&mut shard, (0, clock), 1.0, clock, 1);
            velocity = held / (1.0 + held) * velocity + 1.0;
            value -= velocity;
            clock += 1;
            let got = f64::from(only(&mut shard).unwrap().fresh.values()[0]);
            assert!((got - value).abs() < 1e-4, "{got}, not {value}");
        }
    }
}

/// A group alone has the momentum that the optimizer was told, and nothing besides: so what is
/// missing to the target shrinks by the gain, update by update; with weight decay too, whether it
/// applies to the values or spares them, as one dimension is all they have.
#[test]
fn the_loop_brings_a_group_alone_to_the_target() {
    for (weight_decay, decay_exempt, decay) in [
        (0.0, DecayExempt::None, 0.0),
        (0.5, DecayExempt::None, 0.5),
        (0.5, DecayExempt::Vectors, 0.0),
    ] {
        let mut spec = heavy(0.75, MomentumSpec::ClosedLoop(ClosedLoop { gain: 0.25 }));
        spec.optimizer = OptimizerSpec::Sgd(Sgd {
            momentum: 0.75,
            nesterov: false,
            weight_decay,
        });
        spec.decay_exempt = decay_exempt;
        check_the_loop(spec, decay);
    }
}

fn check_the_loop(mut spec: RunSpec, decay: f64) {
    let (target, gain) = (0.75, 0.25);
    spec.schedule.learning_rate = 0.125;
    let mut shard = ready_as(spec, &LIVE[..1]);
    let (mut value, mut velocity, mut momentum) = (1.0f64, 0.0f64, 0.0f64);
    for clock in 0..20 {
        let gradient = 1.0 + (clock % 3) as f64;
        send(&mut shard, (0, clock), gradient as f32, clock, 1);
        velocity = momentum * velocity + gradient + decay * value;
        value -= 0.125 * velocity;
        let got = f64::from(only(&mut shard).unwrap().fresh.values()[0]);
        assert!((got - value).abs() < 1e-4, "at {clock}: {got}, not {value}");
        // Before the first update nothing had moved.
        if clock > 0 {
            momentum += gain * (target - momentum);
        }
    }
    assert!(momentum > 0.99 * target);
}

const TARGET: f64 = 0.75;
const GAIN: f64 = 0.25;
const RATE: f64 = 0.125;
const DECAY: f64 = 0.25;
/// Samples of an update that counts once.
const REFERENCE: u64 = 2;
const BLOCKS: usize = 2;

/// A shard of two blocks of parameters, of three values each, whose updates count by their samples.
fn measured(staleness: StalenessSpec) -> RunSpec {
    let tensor = |name: &str| TensorSpec {
        name: name.into(),
        shape: vec![3],
        kind: TensorKind::Parameter,
    };
    let mut spec = heavy(TARGET, MomentumSpec::ClosedLoop(ClosedLoop { gain: GAIN }));
    spec.optimizer = OptimizerSpec::Sgd(Sgd {
        momentum: TARGET,
        nesterov: false,
        weight_decay: DECAY,
    });
    spec.policies.staleness = staleness;
    spec.schedule = Schedule {
        scaling: Scaling::Linear {
            reference: REFERENCE,
        },
        ..Schedule::constant(RATE)
    };
    // A block holds one of the tensors.
    spec.tensors = vec![tensor("first"), tensor("second")];
    spec
}

/// A block as docs/policies.md has it: its values by version, and the rate of the update that made
/// each.
struct Traced {
    values: Vec<[f64; 3]>,
    rates: Vec<f64>,
    velocity: [f64; 3],
}

impl Traced {
    fn new() -> Self {
        Self {
            values: vec![[1.0; 3]],
            rates: vec![0.0],
            velocity: [0.0; 3],
        }
    }

    /// An update by a gradient that is brought from the values of version `on` to the present ones
    /// with λ.
    fn update(&mut self, gradient: [f64; 3], (on, samples): (usize, u32), mu: f64, lambda: f64) {
        let weight = f64::from(samples) / REFERENCE as f64;
        let (now, then) = (self.values[self.values.len() - 1], self.values[on]);
        let velocity: [f64; 3] = std::array::from_fn(|at| {
            let g = gradient[at];
            let g = g + lambda * g * g * (now[at] - then[at]);
            mu * self.velocity[at] + weight * (g + DECAY * now[at])
        });
        let new = std::array::from_fn(|at| now[at] - RATE * velocity[at]);
        self.velocity = velocity;
        self.values.push(new);
        self.rates.push(RATE * weight);
    }

    /// The total momentum around the version that a gradient was computed on; nothing had moved
    /// before the first one.
    fn total(&self, gradient: [f64; 3], on: usize) -> Option<f64> {
        let (before, then) = (self.values[on.checked_sub(1)?], self.values[on]);
        let (after, rate) = (self.values[on + 1], self.rates[on + 1]);
        let mut ratios: [f64; 3] = std::array::from_fn(|at| {
            let step = rate * (gradient[at] + DECAY * then[at]);
            (after[at] - then[at] + step) / (then[at] - before[at])
        });
        ratios.sort_by(f64::total_cmp);
        Some(ratios[1])
    }
}

/// Three groups, each of which computes on what it was answered last, so that their gradients are
/// up to four updates late: what counts are the values that they were computed on, the rate of the
/// update after those, and the gradient as it was pushed, whatever has become of it. Two blocks
/// correct one momentum, each by its half.
#[test]
fn the_loop_measures_where_gradients_were_computed() {
    let compensate = StalenessSpec::Compensate(Compensate { lambda: 0.25 });
    check_stale(StalenessSpec::default(), 0.0);
    check_stale(compensate, 0.25);
}

fn check_stale(staleness: StalenessSpec, lambda: f64) {
    const ORDER: [usize; 12] = [0, 1, 2, 0, 0, 2, 1, 0, 1, 2, 2, 1];
    let mut shard = ready_as(measured(staleness), &LIVE);
    for (group, _) in LIVE {
        for block in 0..BLOCKS as u32 {
            let pull = push(group, 0, BlockId(block), Action::Pull);
            shard.handle_push(pull, ReplyTo(0), 0);
            only(&mut shard).unwrap();
        }
    }
    let mut blocks: [Traced; BLOCKS] = std::array::from_fn(|_| Traced::new());
    // Of each group at each block: the next clock, and the version that it was answered last.
    let mut places = [[(0u64, 0usize); 3]; BLOCKS];
    let (mut momentum, mut latest) = (0.0f64, 0);
    for step in 0..48 {
        let (of, samples) = (step % BLOCKS, 1 + (step % 3) as u32);
        let group = ORDER[(step / BLOCKS + 5 * of) % ORDER.len()];
        let (clock, on) = places[of][group];
        let gradient: [f64; 3] =
            std::array::from_fn(|at| 0.5 + ((3 * step + 5 * at + step * at) % 7) as f64 / 4.0);
        let pushed = gradient.map(|g| g as f32);
        let id = BlockId(of as u32);
        let brought = (&pushed[..], samples);
        send_to(&mut shard, id, (group as u32, clock), brought, on as u64);
        let reply = only(&mut shard).unwrap();
        let block = &mut blocks[of];
        let delay = (block.values.len() - 1 - on) as u64;
        assert_eq!(decided(&reply).delay, delay);
        latest = delay.max(latest);
        block.update(gradient, (on, samples), momentum, lambda);
        let want = block.values[block.values.len() - 1];
        for (got, want) in reply.fresh.values().iter().zip(want) {
            let near = (f64::from(*got) - want).abs() < 1e-4;
            assert!(near, "{staleness:?} at {step}: {got}, not {want}");
        }
        if let Some(total) = block.total(gradient, on) {
            momentum += GAIN / BLOCKS as f64 * (TARGET - total);
        }
        places[of][group] = (clock + 1, block.values.len() - 1);
    }
    assert_eq!(latest, 4, "some were late");
    assert_eq!(shard.counters().bare, 0);
}
