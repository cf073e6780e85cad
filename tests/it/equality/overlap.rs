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
use tradewind_tests::cluster::run::Ended;

use super::distance;
use super::plain::{
    Keys, Plain, RATE, STEP_SAMPLES, STEPS, SYNC, by_hand, by_libtorch, complete, divided,
    plain_loop, trained, values,
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

/// The plain loop on parameters that are one update behind those that `optimizer` moves.
fn one_step_late(optimizer: nn::Sgd) -> Plain {
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
        for (own, parameter) in servers.iter().zip(model) {
            let gradient = parameter.grad();
            tch::no_grad(|| parameter.shallow_clone().copy_(own));
            own.shallow_clone().zero_grad();
            // The gradient of Σ θg is g.
            (own * gradient).sum(Kind::Float).backward();
        }
        optimizer.step().unwrap();
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

fn check(late: &Plain, in_time: &Plain, groups: &[u32], keys: Keys<'_>) {
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
    let (late, in_time) = (one_step_late(nn::Sgd::default()), by_hand());
    for policy in ["\"sync\"", "\"bounded\"", "\"async\""] {
        check(&late, &in_time, &[1], &[("train.consistency", policy)]);
    }
}

#[test]
fn momentum_and_decay_are_the_shards_own() {
    let late = one_step_late(with_momentum());
    check(&late, &by_libtorch(with_momentum()), &[1], &MOMENTUM);
}

#[test]
fn ranks_and_groups_equal_one_rank_on_the_union_of_their_batches() {
    let late = one_step_late(with_momentum());
    let in_time = by_libtorch(with_momentum());
    let mut keys = vec![SYNC, ("cluster.servers", "2")];
    keys.extend(MOMENTUM);
    for groups in [&[2][..], &[1, 1], &[2, 2], &[1, 3]] {
        check(&late, &in_time, groups, &keys);
    }
}
