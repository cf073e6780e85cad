//! With overlap the exchange of a step runs behind the next step: the forecaster trained by
//! `tradewind run` has the values of a plain loop whose gradients are one step late.
//!
//! θ_t are the servers' parameters after t updates, L_t the loss on the batch of step t. Step 0
//! computes on θ_0, and so does step 1: it begins when the exchange of step 0 has only been
//! started. At its end that exchange is over, so step 2 computes on θ_1, and so on:
//!
//! ```text
//! θ_{t+1} = update(θ_t, g_t)    g_0 = ∇L_0(θ_0)    g_t = ∇L_t(θ_{t−1}) for t ≥ 1
//! ```
//!
//! Momentum and weight decay see θ_t, because they are the shard's. So every gradient but the
//! first has a delay of one update.

use tch::nn::{self, OptimizerConfig};
use tch::{Kind, Tensor};
use tradewind_common::schedule::{Decay, Schedule, Seen, Unit};
use tradewind_tests::cluster::run::Ended;

use super::distance;
use super::plain::{
    Keys, Plain, RATE, STEP_SAMPLES, STEPS, SYNC, complete, divided, plain_loop, trained, values,
};

/// Of the parameters, relative, as an L2 norm.
const TOLERANCE: f64 = 1e-6;

/// Less of it than in time: late gradients and 0.9 make the training swing, and rounding grows.
const MOMENTUM: [(&str, &str); 3] = [
    ("optimizer.momentum", "0.5"),
    ("optimizer.nesterov", "true"),
    ("optimizer.weight_decay", "0.01"),
];

fn with_momentum() -> nn::Sgd {
    nn::Sgd {
        momentum: 0.5,
        dampening: 0.0,
        wd: 0.01,
        nesterov: true,
    }
}

/// The plain loop with an optimizer and its rate at every step; the model is one update behind the
/// parameters that they move, if it is `late`.
fn plain(optimizer: nn::Sgd, rate: impl Fn(usize) -> f64, late: bool) -> Plain {
    let mut step = 0;
    let mut optimizer = optimizer.build_copt(RATE).unwrap();
    let mut servers: Vec<Tensor> = Vec::new();
    let plain = plain_loop(|model| {
        if servers.is_empty() {
            for parameter in model {
                let own = parameter.detach().copy().set_requires_grad(true);
                optimizer.add_parameters(&own, 0).unwrap();
                servers.push(own);
            }
        }
        let before: Vec<Tensor> = servers.iter().map(|own| own.detach().copy()).collect();
        for (own, parameter) in servers.iter().zip(model) {
            own.shallow_clone().zero_grad();
            // The gradient of Σ θg is g.
            (own * parameter.grad()).sum(Kind::Float).backward();
        }
        optimizer.set_learning_rate(rate(step)).unwrap();
        optimizer.step().unwrap();
        let held = if late { &before } else { &servers };
        for (parameter, held) in model.iter().zip(held) {
            tch::no_grad(|| parameter.shallow_clone().copy_(held));
        }
        step += 1;
    });
    Plain {
        after: values(&servers),
        ..plain
    }
}

/// Every contribution is in the records once, in order, with the delay that the shards measured;
/// nothing was pushed past the budget.
fn check_steps(ended: &Ended, groups: &[u32]) {
    let (records, summary) = (ended.records(), ended.summary());
    for group in 0..groups.len() as u32 {
        let own = records.iter().filter(|r| r.group == group);
        let seen: Vec<_> = own.map(|r| (r.clock, r.delay)).collect();
        let want: Vec<_> = (0..STEPS as u64).map(|t| (t, Some(t.min(1)))).collect();
        assert_eq!(seen, want, "group {group}: clock and delay");
    }
    assert_eq!(summary["samples"]["applied"], STEPS * STEP_SAMPLES);
    assert_eq!(summary["shards"][0]["version_max"], STEPS);
    assert_eq!(summary["delay"]["max"], 1, "of any block");
}

/// The loops that are late and in time.
fn loops(optimizer: impl Fn() -> nn::Sgd, rate: impl Fn(usize) -> f64) -> [Plain; 2] {
    [true, false].map(|late| plain(optimizer(), &rate, late))
}

fn check([late, in_time]: &[Plain; 2], groups: &[u32], keys: Keys<'_>) {
    let apart = distance(&late.after, &in_time.after);
    assert!(apart > 100.0 * TOLERANCE, "too little to tell: {apart:.1e}");
    let ended = complete(divided(groups, keys).key("train.overlap", "1"));
    check_steps(&ended, groups);
    let difference = distance(&trained(&ended), &late.after);
    println!("{groups:?} {keys:?}: {difference:.1e}; without overlap {apart:.1e}");
    assert!(
        difference <= TOLERANCE,
        "{groups:?} {keys:?}: {difference:.1e}"
    );
}

#[test]
fn one_rank_equals_the_loop_with_late_gradients() {
    let loops = loops(nn::Sgd::default, |_| RATE);
    for policy in ["\"sync\"", "\"bounded\"", "\"async\""] {
        check(&loops, &[1], &[("train.consistency", policy)]);
    }
}

/// The exchange of a step begins when that of the step before has ended, so the schedule is where
/// it would be without overlap.
#[test]
fn the_rate_follows_from_what_was_applied_before_the_exchange() {
    let samples = |step: usize| (step * STEP_SAMPLES) as u64;
    let check = |unit, warmup, keys: &[(&'static str, &'static str)]| {
        let schedule = Schedule {
            unit,
            warmup,
            decay: Decay::Cosine { floor: 0.0 },
            ..Schedule::constant(RATE)
        };
        let seen = |step| Seen {
            samples: samples(step),
            updates: step as u64,
        };
        let rate = |step| schedule.rate(seen(step), samples(1), samples(STEPS));
        let keys = [&[("schedule.decay", "\"cosine\"")], keys].concat();
        check(&loops(nn::Sgd::default, rate), &[1], &keys);
    };
    check(Unit::Samples, 200, &[("schedule.warmup_samples", "200")]);
    let updates = [
        ("schedule.unit", "\"updates\""),
        ("schedule.warmup_updates", "7"),
        ("schedule.end_updates", "60"),
    ];
    check(Unit::Updates { end: 60 }, 7, &updates);
}

#[test]
fn momentum_and_decay_are_the_shards_own() {
    check(&loops(with_momentum, |_| RATE), &[1], &MOMENTUM);
}

#[test]
fn ranks_and_groups_equal_one_rank_on_the_union_of_their_batches() {
    let loops = loops(with_momentum, |_| RATE);
    let mut keys = vec![SYNC, ("cluster.servers", "2")];
    keys.extend(MOMENTUM);
    for groups in [&[2][..], &[1, 1], &[2, 2], &[1, 3]] {
        check(&loops, groups, &keys);
    }
}
