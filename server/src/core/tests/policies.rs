//! What a shard does with contributions besides waiting for them: against a few lines of f64.

use tradewind_common::policy::{MergeSpec, MomentumSpec, Policies, StalenessSpec, Weights};
use tradewind_common::schedule::Seen;
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_common::spec::{OptimizerSpec, RunSpec};
use tradewind_common::{BlockId, Clock, Compression, Generation};

use super::shard::{MEAN, WEIGHT, follow, only, push, ready_as, replies, view};
use super::spec;
use crate::core::ReplyTo;
use crate::core::block::{Decided, Gradient, Verdict};
use crate::core::shard::{Action, Answer, Reply, Shard};

fn with(consistency: ConsistencySpec, policies: Policies) -> RunSpec {
    RunSpec {
        policies,
        ..spec(&[1, 1, 1], consistency)
    }
}

fn stale(staleness: StalenessSpec) -> Policies {
    Policies {
        staleness,
        ..Policies::default()
    }
}

const LIVE: [(u32, u64); 3] = [(0, 0), (1, 0), (2, 0)];

/// Pushes a gradient of three equal values that was computed on a version.
fn send(shard: &mut Shard, (group, clock): (u32, u64), value: f32, on: u64, samples: u32) {
    send_to(shard, WEIGHT, (group, clock), (&[value; 3], samples), on);
}

fn send_to(
    shard: &mut Shard,
    block: BlockId,
    (group, clock): (u32, u64),
    (values, samples): (&[f32], u32),
    on: u64,
) {
    let action = contribution(values, samples, on);
    shard.handle_push(push(group, clock, block, action), ReplyTo(0), 0);
}

fn contribution(values: &[f32], samples: u32, on: u64) -> Action {
    Action::Contribute(Some(Gradient {
        values: values.to_vec(),
        samples,
        pulled_version: on,
        lineage: Generation(0),
        seen: Seen::default(),
        norms: Vec::new(),
    }))
}

fn pull(shard: &mut Shard, group: u32) {
    shard.handle_push(push(group, 0, WEIGHT, Action::Pull), ReplyTo(0), 0);
    only(shard).unwrap();
}

fn decided(reply: &Reply) -> Decided {
    match reply.answer {
        Answer::Decided(decided, _) => decided,
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_count_by_their_samples_or_all_the_same() {
    let check = |weights, block: BlockId, want: f32| {
        let policies = Policies {
            weights,
            ..Policies::default()
        };
        let mut shard = ready_as(with(Sync, policies), &LIVE);
        let length = if block == MEAN { 2 } else { 3 };
        for (group, (value, samples)) in [(3.0, 1), (6.0, 1), (9.0, 4)].into_iter().enumerate() {
            let gradient = (&vec![value; length][..], samples);
            send_to(&mut shard, block, (group as u32, 0), gradient, 0);
        }
        for (_, reply) in replies(&mut shard) {
            let reply = reply.unwrap();
            let got = reply.fresh.values()[0];
            assert!((got - want).abs() < 1e-6, "{weights:?}: {got}, not {want}");
            assert_eq!(reply.samples_applied, 6);
        }
    };
    check(Weights::Samples, WEIGHT, 1.0 - 45.0 / 6.0);
    check(Weights::Groups, WEIGHT, 1.0 - 18.0 / 3.0);
    check(Weights::Samples, MEAN, 1.0 + 45.0 / 6.0);
    check(Weights::Groups, MEAN, 1.0 + 18.0 / 3.0);
}

#[test]
fn a_stale_gradient_counts_one_over_its_delay() {
    let mut shard = ready_as(with(Async, stale(StalenessSpec::Scale)), &LIVE);
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

/// Its step is as long for half of a gradient: so its rate is halved.
#[test]
fn adam_counts_a_stale_gradient_by_the_rate() {
    let adam = OptimizerSpec::Adam {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.0,
    };
    let spec = RunSpec {
        optimizer: adam,
        ..with(Async, stale(StalenessSpec::Scale))
    };
    let mut shard = ready_as(spec, &LIVE);
    let (mut x, mut m, mut v) = (1.0f64, 0.0f64, 0.0f64);
    for (clock, (on, weight)) in [(0, 1.0), (0, 1.0), (0, 0.5), (0, 1.0 / 3.0)]
        .into_iter()
        .enumerate()
    {
        let g = 0.5 + clock as f64;
        send(&mut shard, (0, clock as u64), g as f32, on, 1);
        let t = clock as i32 + 1;
        m = 0.9 * m + 0.1 * g;
        v = 0.99 * v + 0.01 * g * g;
        let (first, second) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.99f64.powi(t)));
        x -= weight * first / (second.sqrt() + 1e-8);
        let got = f64::from(only(&mut shard).unwrap().fresh.values()[0]);
        assert!((got - x).abs() < 1e-5, "update {t}: {got}, not {x}");
    }
}

#[test]
fn what_is_too_stale_is_dropped_and_its_group_told() {
    let policy = stale(StalenessSpec::Drop { beyond: 2 });
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
        let policy = stale(StalenessSpec::Compensate {
            lambda,
            mean_square_decay,
        });
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
    let policy = stale(StalenessSpec::Compensate {
        lambda: 0.5,
        mean_square_decay: None,
    });
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

#[test]
fn policies_that_no_run_can_follow() {
    let check = |spec: RunSpec, want: &str| {
        let error = spec.check().unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    let compensate = |lambda, mean_square_decay| {
        stale(StalenessSpec::Compensate {
            lambda,
            mean_square_decay,
        })
    };
    let drop = |beyond| stale(StalenessSpec::Drop { beyond });
    check(
        with(Async, drop(0)),
        "staleness.drop_beyond is not at least 1",
    );
    check(
        with(Async, compensate(f64::NAN, None)),
        "staleness.lambda is not a finite",
    );
    check(
        with(Async, compensate(1.0, Some(1.0))),
        "staleness.mean_square_decay is not in 0..1",
    );
    for policies in [drop(4), compensate(1.0, None), stale(StalenessSpec::Scale)] {
        let want = "staleness.policy excludes train.consistency = \"sync\"";
        check(with(Sync, policies), want);
    }
    let spec = RunSpec {
        down: Compression::Bf16,
        ..with(Async, compensate(1.0, None))
    };
    check(spec, "staleness.policy excludes exchange.down");
}

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
/// missing to the target shrinks by the gain, update by update.
#[test]
fn the_loop_brings_a_group_alone_to_the_target() {
    let (target, gain) = (0.75, 0.25);
    let mut spec = heavy(target, MomentumSpec::ClosedLoop { gain });
    spec.schedule.learning_rate = 0.125;
    let mut shard = ready_as(spec, &LIVE[..1]);
    let (mut value, mut velocity, mut momentum) = (1.0f64, 0.0f64, 0.0f64);
    for clock in 0..20 {
        let gradient = 1.0 + (clock % 3) as f64;
        send(&mut shard, (0, clock), gradient as f32, clock, 1);
        velocity = momentum * velocity + gradient;
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

fn told(shard: &mut Shard) -> Vec<(Verdict, u64, u64, f32)> {
    let told = |(_, reply): (u64, Result<Reply, _>)| {
        let reply = reply.unwrap();
        let Clock(next) = reply.next;
        let value = reply.fresh.values()[0];
        (decided(&reply).verdict, next, reply.version, value)
    };
    replies(shard).into_iter().map(told).collect()
}

#[test]
fn a_group_that_is_left_behind_goes_on_where_the_others_are() {
    use Verdict::{Applied, Dropped};
    let policies = Policies {
        backup_groups: 1,
        ..Policies::default()
    };
    let mut shard = ready_as(with(Sync, policies), &LIVE);
    send(&mut shard, (1, 0), 1.0, 0, 1);
    assert_eq!(told(&mut shard), []);
    send(&mut shard, (0, 0), 3.0, 0, 1);
    assert_eq!(
        told(&mut shard),
        [(Applied, 1, 1, -1.0); 2],
        "clock 1 is next"
    );
    for _ in 0..2 {
        send(&mut shard, (2, 0), 99.0, 0, 1);
        assert_eq!(told(&mut shard), [(Dropped, 1, 1, -1.0)]);
    }
    // So is a skip that comes late: nobody waited for it.
    for clock in 1..3 {
        send(&mut shard, (0, clock), 1.0, clock, 1);
        send(&mut shard, (1, clock), 1.0, clock, 1);
        assert_eq!(
            told(&mut shard),
            [(Applied, clock + 1, clock + 1, -1.0 - clock as f32); 2]
        );
    }
    let skip = push(2, 1, WEIGHT, Action::Contribute(None));
    shard.handle_push(skip, ReplyTo(0), 0);
    assert_eq!(told(&mut shard), [(Dropped, 3, 3, -3.0)]);
    // It goes on two clocks further, and one more where another shard is ahead.
    send(&mut shard, (2, 4), 2.0, 3, 1);
    send(&mut shard, (0, 3), 1.0, 3, 1);
    assert_eq!(told(&mut shard), [], "group 1 is needed at clock 3");
    send(&mut shard, (1, 3), 1.0, 3, 1);
    assert_eq!(told(&mut shard), [(Applied, 4, 4, -4.0); 2]);
    send(&mut shard, (1, 4), 4.0, 4, 1);
    assert_eq!(told(&mut shard), [(Applied, 5, 5, -7.0); 2]);
    let counters = shard.counters();
    assert_eq!(
        (counters.dropped, counters.applied),
        (2 + 2, 10),
        "clocks 2 and 3 of group 2"
    );
}

#[test]
fn without_backups_no_clock_may_leave_a_gap() {
    let mut shard = ready_as(with(Sync, Policies::default()), &LIVE);
    send(&mut shard, (0, 1), 1.0, 0, 1);
    assert!(only(&mut shard).is_err());
}

#[test]
fn what_comes_about_the_same_time_becomes_one_update() {
    let policies = Policies {
        merge: Some(MergeSpec {
            min_groups: 2,
            grace_ms_max: 10,
            wait_ms_max: 100,
        }),
        ..Policies::default()
    };
    let mut shard = ready_as(with(Async, policies), &LIVE);
    let arrive = |shard: &mut Shard, group, clock, value: f32, samples, on, now_us| {
        let action = contribution(&[value; 3], samples, on);
        shard.handle_push(push(group, clock, WEIGHT, action), ReplyTo(0), now_us);
        replies(shard).len()
    };
    assert_eq!(shard.poll_timeout(), None);
    assert_eq!(arrive(&mut shard, 0, 0, 1.0, 1, 0, 0), 0);
    assert_eq!(shard.poll_timeout(), Some(100_000), "for a second one");
    assert_eq!(arrive(&mut shard, 1, 0, 2.0, 3, 0, 4_000), 0);
    assert_eq!(
        shard.poll_timeout(),
        Some(12_000),
        "two gaps for a third one"
    );
    shard.handle_timeout(11_999);
    assert_eq!(replies(&mut shard).len(), 0);
    shard.handle_timeout(12_000);
    let merged: Vec<_> = replies(&mut shard)
        .into_iter()
        .map(|(_, r)| r.unwrap())
        .collect();
    let seen = |r: &Reply| {
        (
            r.version,
            r.fresh.values()[0],
            r.samples_applied,
            r.waited_us,
        )
    };
    let want = [
        (1, 1.0 - 7.0 / 4.0, 4, 12_000),
        (1, 1.0 - 7.0 / 4.0, 4, 8_000),
    ];
    assert_eq!(merged.iter().map(seen).collect::<Vec<_>>(), want);
    assert_eq!(shard.poll_timeout(), None);
    // Everybody: nothing to wait for. Each has a delay of its own.
    for (group, clock, on) in [(2, 0, 0), (0, 1, 1)] {
        assert_eq!(arrive(&mut shard, group, clock, 1.0, 1, on, 20_000), 0);
    }
    let last = push(1, 1, WEIGHT, contribution(&[1.0; 3], 1, 1));
    shard.handle_push(last, ReplyTo(0), 20_000);
    let delays: Vec<_> = replies(&mut shard)
        .into_iter()
        .map(|(_, reply)| decided(&reply.unwrap()).delay)
        .collect();
    assert_eq!(delays, [0, 0, 1], "in the order of the groups' numbers");
    // Nobody comes any more.
    assert_eq!(arrive(&mut shard, 0, 2, 1.0, 1, 2, 30_000), 0);
    assert_eq!(shard.poll_timeout(), Some(130_000));
    shard.handle_timeout(130_000);
    assert_eq!(only(&mut shard).unwrap().version, 3);
    // Whoever is alone waits for nobody.
    follow(&mut shard, view(3, &LIVE[..1], &[], None));
    assert_eq!(arrive(&mut shard, 0, 3, 1.0, 1, 3, 140_000), 1);
}

/// A merged change of a buffer moves it as far as the changes one by one.
#[test]
fn a_buffer_moves_by_each_groups_part_when_changes_are_merged() {
    let policies = Policies {
        merge: Some(MergeSpec {
            min_groups: 2,
            grace_ms_max: 0,
            wait_ms_max: 100,
        }),
        ..Policies::default()
    };
    let mut shard = ready_as(with(Async, policies), &LIVE);
    send_to(&mut shard, MEAN, (0, 0), (&[3.0; 2], 1), 0);
    send_to(&mut shard, MEAN, (1, 0), (&[6.0; 2], 1), 0);
    for (_, reply) in replies(&mut shard) {
        assert_eq!(reply.unwrap().fresh.values(), [1.0 + 9.0 / 3.0; 2]);
    }
}
