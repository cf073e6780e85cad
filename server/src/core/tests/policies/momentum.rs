//! The momentum of updates.

use tradewind_common::policy::{MomentumSpec, Policies};
use tradewind_common::spec::ConsistencySpec::Async;
use tradewind_common::spec::{DecayExempt, OptimizerSpec, RunSpec};

use super::super::shard::{follow, only, ready_as, view};
use super::{LIVE, send, with};

fn heavy(momentum: f64, policy: MomentumSpec) -> RunSpec {
    let policies = Policies {
        momentum: policy,
        ..Policies::default()
    };
    RunSpec {
        optimizer: OptimizerSpec::Sgd {
            momentum,
            nesterov: false,
            weight_decay: 0.0,
        },
        ..with(Async, policies)
    }
}

#[test]
fn momentum_is_lowered_by_the_groups_that_are_live() {
    let mut shard = ready_as(heavy(0.75, MomentumSpec::Lowered), &LIVE);
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
        let mut spec = heavy(0.75, MomentumSpec::ClosedLoop { gain: 0.25 });
        spec.optimizer = OptimizerSpec::Sgd {
            momentum: 0.75,
            nesterov: false,
            weight_decay,
        };
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
