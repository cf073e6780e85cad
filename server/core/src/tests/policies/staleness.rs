//! What becomes of gradients that were computed on old values.

use tradewind_common::optimizer::{Adam, AdamW, DelayedNesterov, Sgd};
use tradewind_common::policy::staleness::{Compensate, Drop, Scale};
use tradewind_common::policy::{MergeSpec, Policies, StalenessSpec};
use tradewind_common::spec::ConsistencySpec::{Async, Bounded};
use tradewind_common::spec::{OptimizerSpec, RunSpec};

use super::super::shard::{MEAN, follow, only, ready_as, replies, view};
use super::{LIVE, decided, pull, send, send_to, stale, with};
use crate::decided::{Decided, Verdict};
use crate::shard::Answer;

#[test]
fn a_stale_gradient_counts_one_over_its_delay() {
    let mut shard = ready_as(with(Async, stale(StalenessSpec::Scale(Scale {}))), &LIVE);
    let mut value = 1.0;
    for (clock, (on, delay)) in [(0, 0), (0, 1), (0, 2), (0, 3), (3, 1)]
        .into_iter()
        .enumerate()
    {
        send(&mut shard, (0, clock as u64), 0.75, on, 2);
        let reply = only(&mut shard).unwrap();
        assert_eq!(
            (decided(&reply).verdict, decided(&reply).delay),
            (Verdict::Applied, delay)
        );
        value -= 0.75 / delay.max(1) as f64;
        let got = f64::from(reply.fresh.values()[2]);
        assert!((got - value).abs() < 1e-6, "{got}, not {value}");
        assert_eq!(
            reply.samples_applied,
            2 * (clock as u64 + 1),
            "all are seen"
        );
    }
}

/// A value under an optimizer with its rate 1: itself, what is kept for it, and how often it moved.
#[derive(Default)]
struct Moved {
    x: f64,
    kept: [f64; 2],
    updates: i32,
}

const MU: f64 = 0.75;
const LAMBDA: f64 = 0.25;
const BETAS: (f64, f64) = (0.9, 0.99);

/// v ← μv + s(g + λθ), θ ← θ − v, or with Nesterov's look ahead.
fn sgd(nesterov: bool) -> impl Fn(&mut Moved, f64, f64) {
    move |at, s, g| {
        let g = s * (g + LAMBDA * at.x);
        at.kept[0] = MU * at.kept[0] + g;
        at.x -= if nesterov {
            g + MU * at.kept[0]
        } else {
            at.kept[0]
        };
    }
}

/// Only the first moment has s; decay is L2, which s weighs with the gradient, or beside it.
fn adam(decoupled: bool) -> impl Fn(&mut Moved, f64, f64) {
    move |at, s, g| {
        let (l2, beside) = if decoupled {
            (0.0, LAMBDA)
        } else {
            (LAMBDA, 0.0)
        };
        let g = g + l2 * at.x;
        let [m, v] = &mut at.kept;
        *m = BETAS.0 * *m + (1.0 - BETAS.0) * s * g;
        *v = BETAS.1 * *v + (1.0 - BETAS.1) * g * g;
        let first = *m / (1.0 - BETAS.0.powi(at.updates));
        let second = *v / (1.0 - BETAS.1.powi(at.updates));
        at.x -= s * beside * at.x + first / (second.sqrt() + 1e-8);
    }
}

/// By its weight in all that it does: not only to the values now, but also by what it leaves in the
/// velocity or the first moment, and by the decay that goes with it.
#[test]
fn a_stale_gradient_counts_less_under_every_optimizer() {
    let check = |optimizer, step: &dyn Fn(&mut Moved, f64, f64)| {
        let spec = RunSpec {
            optimizer,
            ..with(Async, stale(StalenessSpec::Scale(Scale {})))
        };
        let mut shard = ready_as(spec, &LIVE);
        let mut want = Moved {
            x: 1.0,
            ..Moved::default()
        };
        let pushes = [
            (0, 1.0),
            (0, 1.0),
            (0, 0.5),
            (0, 1.0 / 3.0),
            (4, 1.0),
            (1, 0.25),
        ];
        for (clock, (on, weight)) in (0..).zip(pushes) {
            let g = 0.5 + clock as f64;
            send(&mut shard, (0, clock), g as f32, on, 1);
            want.updates += 1;
            step(&mut want, weight, g);
            let got = f64::from(only(&mut shard).unwrap().fresh.values()[0]);
            let near = (got - want.x).abs() < 1e-5;
            assert!(near, "{optimizer:?} at {clock}: {got}, not {}", want.x);
        }
    };
    let momentum = |nesterov| {
        OptimizerSpec::Sgd(Sgd {
            momentum: MU,
            nesterov,
            weight_decay: LAMBDA,
        })
    };
    check(momentum(false), &sgd(false));
    check(momentum(true), &sgd(true));
    let plain = OptimizerSpec::Sgd(Sgd {
        momentum: 0.0,
        nesterov: false,
        weight_decay: LAMBDA,
    });
    check(plain, &|at, s, g| at.x -= s * (g + LAMBDA * at.x));
    let (beta1, beta2) = BETAS;
    let l2 = OptimizerSpec::Adam(Adam {
        beta1,
        beta2,
        epsilon: 1e-8,
        weight_decay: LAMBDA,
    });
    check(l2, &adam(false));
    let beside = OptimizerSpec::AdamW(AdamW {
        beta1,
        beta2,
        epsilon: 1e-8,
        weight_decay: LAMBDA,
    });
    check(beside, &adam(true));
    let every_second = OptimizerSpec::DelayedNesterov(DelayedNesterov {
        momentum: MU,
        every: 2,
        activation: 0.0,
    });
    check(every_second, &|at, s, g| {
        let [m, sum] = &mut at.kept;
        *sum += s * g;
        at.x -= s * g / 2.0;
        if at.updates % 2 == 0 {
            *m = MU * *m + *sum / 2.0;
            at.x -= MU * *m;
            *sum = 0.0;
        }
    });
}

/// Of several the fresh ones count whole beside the stale ones, and the update as much as they on
/// average.
#[test]
fn merged_gradients_count_each_by_its_own_delay() {
    let policies = Policies {
        staleness: StalenessSpec::Scale(Scale {}),
        merge: Some(MergeSpec {
            min_groups: 3,
            grace_ms_max: 0,
            wait_ms_max: 100,
        }),
        ..Policies::default()
    };
    let spec = RunSpec {
        optimizer: OptimizerSpec::Sgd(Sgd {
            momentum: MU,
            nesterov: false,
            weight_decay: LAMBDA,
        }),
        ..with(Async, policies)
    };
    let mut shard = ready_as(spec, &LIVE);
    let mut want = Moved {
        x: 1.0,
        ..Moved::default()
    };
    // Of 1, 2 and 3 samples, with the gradients 1, 2 and 3.
    for (clock, on) in [[0, 0, 0], [1, 0, 0], [2, 2, 0], [1, 0, 3]]
        .into_iter()
        .enumerate()
    {
        let (mut weighed, mut samples) = (0.0, 0.0);
        let mut sum = 0.0;
        for (group, on) in on.into_iter().enumerate() {
            let n = group as u32 + 1;
            send(&mut shard, (group as u32, clock as u64), n as f32, on, n);
            let s = f64::from(n) / (clock as f64 - on as f64).max(1.0);
            weighed += s;
            samples += f64::from(n);
            sum += s * f64::from(n);
        }
        want.updates += 1;
        sgd(false)(&mut want, weighed / samples, sum / weighed);
        for (_, reply) in replies(&mut shard) {
            let got = f64::from(reply.unwrap().fresh.values()[0]);
            assert!((got - want.x).abs() < 1e-5, "{got}, not {}", want.x);
        }
    }
}

#[test]
fn what_is_too_stale_is_dropped_and_its_group_told() {
    let policy = stale(StalenessSpec::Drop(Drop { beyond: 2 }));
    let mut shard = ready_as(with(Async, policy), &LIVE);
    for clock in 0..2 {
        send(&mut shard, (0, clock), 1.0, clock, 1);
        only(&mut shard).unwrap();
    }
    for repeat in [false, true] {
        send(&mut shard, (1, 0), 100.0, 0, 5);
        let reply = only(&mut shard).unwrap();
        let want = Decided {
            clock: decided(&reply).clock,
            verdict: Verdict::Dropped,
            delay: 2,
        };
        assert_eq!(reply.answer, Answer::Decided(want, repeat));
        assert_eq!(reply.fresh.values(), [-1.0; 3], "the present values");
        assert_eq!((reply.version, reply.samples_applied), (2, 2));
    }
    send(&mut shard, (1, 1), 1.0, 2, 5);
    let reply = only(&mut shard).unwrap();
    assert_eq!(
        (decided(&reply).verdict, reply.fresh.values()[0]),
        (Verdict::Applied, -2.0)
    );
    // Changes of buffers are no gradients, but their samples must not count where others' do not.
    for (clock, want) in [Verdict::Applied, Verdict::Applied, Verdict::Dropped]
        .into_iter()
        .enumerate()
    {
        send_to(&mut shard, MEAN, (0, clock as u64), (&[3.0; 2], 1), 0);
        let reply = only(&mut shard).unwrap();
        assert_eq!(decided(&reply).verdict, want);
        assert!(reply.samples_applied <= 2);
    }
    let counters = shard.counters();
    assert_eq!((counters.dropped, counters.applied), (2, 5));
}

#[test]
fn a_stale_gradient_is_brought_to_the_present_values() {
    let (lambda, decay) = (0.25, 0.5);
    for mean_square_decay in [None, Some(decay)] {
        let policy = stale(StalenessSpec::compensating(lambda, mean_square_decay));
        let mut shard = ready_as(with(Bounded { staleness_bound: 9 }, policy), &LIVE);
        for group in 0..3 {
            pull(&mut shard, group);
        }
        let mut values = vec![1.0f64];
        let mut mean_square = 0.0;
        // Group 2 computes on version 0 all the time, as with overlap the first two steps do.
        let pushes = [
            (0, 0, 0),
            (1, 0, 0),
            (0, 1, 1),
            (2, 0, 0),
            (2, 1, 0),
            (1, 1, 2),
        ];
        for (number, (group, clock, on)) in pushes.into_iter().enumerate() {
            let g = 0.5 + 0.25 * number as f64;
            send(&mut shard, (group, clock), g as f32, on, 1);
            let reply = only(&mut shard).unwrap();
            mean_square = decay * mean_square + (1.0 - decay) * g * g;
            let lambda = match mean_square_decay {
                None => lambda,
                Some(_) => lambda / (mean_square + 1e-7f64).sqrt(),
            };
            let now = values[number];
            values.push(now - (g + lambda * g * g * (now - values[on as usize])));
            let got = f64::from(reply.fresh.values()[1]);
            assert!(
                (got - values[number + 1]).abs() < 1e-5,
                "{got}, not {values:?}"
            );
        }
        assert_eq!(shard.counters().bare, 0);
    }
}

/// Nobody but the primary that sent them has the values of old.
#[test]
fn what_was_sent_by_nobody_here_is_applied_as_it_is_and_counted() {
    let policy = stale(StalenessSpec::Compensate(Compensate { lambda: 0.5 }));
    let mut shard = ready_as(with(Async, policy), &LIVE);
    pull(&mut shard, 0);
    send(&mut shard, (0, 0), 2.0, 0, 1);
    only(&mut shard).unwrap();
    send(&mut shard, (1, 0), 2.0, 0, 1);
    assert_eq!(only(&mut shard).unwrap().fresh.values(), [-3.0; 3]);
    assert_eq!(shard.counters().bare, 1);
    // Its answer was kept; those of a life that is over are not.
    send(&mut shard, (0, 1), 1.0, 1, 1);
    let moved = -3.0 - -1.0;
    assert_eq!(
        only(&mut shard).unwrap().fresh.values(),
        [-3.0 - (1.0 + 0.5 * moved); 3]
    );
    follow(&mut shard, view(3, &[(0, 0)], &[], None));
    follow(&mut shard, view(4, &[(0, 0), (1, 1)], &[], None));
    send(&mut shard, (1, 1), 1.0, 2, 1);
    only(&mut shard).unwrap();
    assert_eq!(shard.counters().bare, 2);
}

/// Squares overflow long before gradients do: what was finite is applied as it is.
#[test]
fn what_cannot_be_compensated_is_finite_all_the_same() {
    for mean_square_decay in [None, Some(0.5)] {
        let policy = stale(StalenessSpec::compensating(0.5, mean_square_decay));
        let mut shard = ready_as(with(Async, policy), &LIVE);
        pull(&mut shard, 0);
        pull(&mut shard, 1);
        send(&mut shard, (0, 0), 2.0, 0, 1);
        only(&mut shard).unwrap();
        send(&mut shard, (1, 0), 1e30, 0, 1);
        assert_eq!(only(&mut shard).unwrap().fresh.values(), [-1e30; 3]);
        // An old mean square that has overflowed would leave the next one alone for ever.
        send(&mut shard, (0, 1), 1.0, 1, 1);
        let next = only(&mut shard).unwrap();
        assert!(next.fresh.values().iter().all(|x| x.is_finite()));
    }
}
