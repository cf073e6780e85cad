//! One shard: what it decides, refuses and answers.

use std::sync::Arc;

use tradewind_common::holders::Holders;
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, ServerId, ShardId};

use super::spec;
use crate::core::ReplyTo;
use crate::core::askers::{ASKERS_MAX, Wants};
use crate::core::block::{Gradient, Verdict};
use crate::core::refusal::Refusal;
use crate::core::shard::{Action, Answer, Output, Push, Reply, Shard};
use crate::core::view::{Acknowledge, View};

/// Two values, a buffer.
pub(super) const MEAN: BlockId = BlockId(0);
/// Three values, a parameter.
pub(super) const WEIGHT: BlockId = BlockId(1);

/// A view; groups in incarnation 5, those that are live with their first clocks.
pub(super) fn view(
    generation: u64,
    live: &[(u32, u64)],
    joined: &[u32],
    creator: Option<u32>,
) -> View {
    let life = Incarnation(5);
    let start = |(group, clock): &(u32, u64)| (GroupId(*group), (life, Clock(*clock)));
    View {
        generation: Generation(generation),
        live: live.iter().map(start).collect(),
        joined: joined.iter().map(|group| (GroupId(*group), life)).collect(),
        creator: creator.map(|group| (GroupId(group), life)),
    }
}

/// The shard's only holder follows a view.
pub(super) fn follow(shard: &mut Shard, view: View) -> Acknowledge {
    shard.handle_order(view, &Holders::alone(ServerId(0)), 0)
}

/// A shard with all blocks at 1.0 and the groups of `live`.
fn ready(consistency: ConsistencySpec, live: &[(u32, u64)]) -> Shard {
    ready_as(spec(&[1, 1, 1], consistency), live)
}

/// The same with another specification.
pub(super) fn ready_as(spec: RunSpec, live: &[(u32, u64)]) -> Shard {
    let layout = spec.check().unwrap();
    let mut shard = Shard::new(
        ServerId(0),
        ShardId(0),
        Arc::new(spec),
        &layout,
        [MEAN, WEIGHT],
    );
    follow(&mut shard, view(1, &[], &[0], Some(0)));
    for (block, length) in [(MEAN, 2), (WEIGHT, 3)] {
        let create = push(0, 0, block, Action::Create(vec![1.0; length]));
        shard.handle_push(create, ReplyTo(0), 0);
    }
    let made = outputs(&mut shard);
    let told = |o: &Output| matches!(o, Output::Report(seen) if seen.complete);
    assert_eq!(made.iter().filter(|o| told(o)).count(), 1);
    follow(&mut shard, view(2, live, &[], None));
    shard
}

pub(super) fn push(group: u32, clock: u64, block: BlockId, action: Action) -> Push {
    Push {
        group: GroupId(group),
        incarnation: Incarnation(5),
        clock: Clock(clock),
        block,
        wants: Wants::Values,
        action,
    }
}

pub(super) fn gradient(values: &[f32], samples: u32) -> Action {
    Action::Contribute(Some(Gradient {
        values: values.to_vec(),
        samples,
        pulled_version: 0,
        lineage: Generation(0),
        samples_seen: 0,
    }))
}

fn outputs(shard: &mut Shard) -> Vec<Output> {
    std::iter::from_fn(|| shard.poll_output()).collect()
}

/// The answers, each with whom it goes to.
pub(super) fn replies(shard: &mut Shard) -> Vec<(u64, Result<Reply, Refusal>)> {
    let reply = |output| match output {
        Output::Reply { to, result } => (to.0, result),
        other => panic!("{other:?}"),
    };
    outputs(shard).into_iter().map(reply).collect()
}

/// The only answer.
pub(super) fn only(shard: &mut Shard) -> Result<Reply, Refusal> {
    let mut replies = replies(shard);
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies.remove(0).1
}

#[test]
fn a_refusal_changes_nothing() {
    let mut shard = ready(Bounded { staleness_bound: 1 }, &[(0, 4), (1, 4)]);
    // Group 0 stands at 6, so that clock 4 is past even for repeats; group 2 has joined.
    for clock in [4, 5] {
        shard.handle_push(
            push(0, clock, WEIGHT, gradient(&[1.0; 3], 1)),
            ReplyTo(0),
            0,
        );
    }
    follow(&mut shard, view(3, &[(0, 4), (1, 4)], &[2], None));
    outputs(&mut shard);

    let good = || gradient(&[1.0; 3], 1);
    let with = |change: &dyn Fn(&mut Gradient)| {
        let Action::Contribute(Some(mut gradient)) = good() else {
            unreachable!()
        };
        change(&mut gradient);
        Action::Contribute(Some(gradient))
    };
    let of_life = |life, action| Push {
        incarnation: Incarnation(life),
        ..push(1, 4, WEIGHT, action)
    };
    let (group, block) = (GroupId(0), WEIGHT);
    let (current, expected) = (Incarnation(5), Clock(6));
    let not_finite = |index, value: &str| Refusal::NotFinite {
        block,
        index,
        value: value.into(),
    };
    let length = |given| Refusal::WrongLength {
        block,
        expected: 3,
        given,
    };
    let stale = |given| Refusal::StaleIncarnation {
        group: GroupId(1),
        given: Incarnation(given),
        current,
    };
    let ahead = |given| Refusal::VersionAhead {
        block,
        given,
        current: 2,
    };
    let cases = [
        (
            push(0, 6, BlockId(2), good()),
            Refusal::UnknownBlock(BlockId(2)),
        ),
        (
            push(3, 6, WEIGHT, good()),
            Refusal::UnknownGroup {
                group: GroupId(3),
                last: GroupId(2),
            },
        ),
        (of_life(4, good()), stale(4)),
        (of_life(6, Action::Contribute(None)), stale(6)),
        (of_life(6, Action::Create(vec![0.0; 3])), stale(6)),
        (push(2, 6, WEIGHT, good()), Refusal::NotLive(GroupId(2))),
        (
            push(0, 4, WEIGHT, good()),
            Refusal::ClockPassed {
                block,
                group,
                given: Clock(4),
                expected,
            },
        ),
        (
            push(0, 7, WEIGHT, good()),
            Refusal::ClockAhead {
                block,
                group,
                given: Clock(7),
                expected,
            },
        ),
        (push(0, 6, WEIGHT, gradient(&[1.0; 2], 1)), length(2)),
        (push(0, 6, WEIGHT, gradient(&[1.0; 4], 1)), length(4)),
        (push(0, 6, WEIGHT, gradient(&[], 1)), length(0)),
        (
            push(0, 6, WEIGHT, gradient(&[1.0, f32::NAN, 1.0], 1)),
            not_finite(1, "NaN"),
        ),
        (
            push(0, 6, WEIGHT, gradient(&[1.0, 1.0, f32::NEG_INFINITY], 1)),
            not_finite(2, "-inf"),
        ),
        (
            push(0, 6, WEIGHT, gradient(&[1.0; 3], 0)),
            Refusal::NoSamples(WEIGHT),
        ),
        (
            push(0, 6, WEIGHT, with(&|g| g.pulled_version = 3)),
            ahead(3),
        ),
        (
            push(0, 0, WEIGHT, Action::Create(vec![0.0; 3])),
            Refusal::NotCreator(group),
        ),
    ];
    let before = shard.digest();
    for (frame, want) in cases {
        shard.handle_push(frame.clone(), ReplyTo(0), 0);
        assert_eq!(only(&mut shard), Err(want), "{frame:?}");
        assert_eq!(shard.digest(), before, "{frame:?}");
    }
    assert_eq!(shard.counters().refused, 16);
}

#[test]
fn before_ready_nothing_is_pushed_or_pulled() {
    let spec = spec(&[1, 1], Async);
    let layout = spec.check().unwrap();
    let mut shard = Shard::new(
        ServerId(0),
        ShardId(0),
        Arc::new(spec),
        &layout,
        [MEAN, WEIGHT],
    );
    let mut refused = |view: View, push, want| {
        follow(&mut shard, view);
        let before = shard.digest();
        shard.handle_push(push, ReplyTo(0), 0);
        assert_eq!(only(&mut shard), Err(want));
        assert_eq!(shard.digest(), before);
    };
    let nobody = View::default();
    let create = |group| push(group, 0, WEIGHT, Action::Create(vec![2.0; 3]));
    let pull = || Push {
        incarnation: Incarnation(0),
        ..push(0, 0, WEIGHT, Action::Pull)
    };
    // Before the first order it is nobody's.
    for frame in [pull(), create(0)] {
        refused(nobody.clone(), frame, Refusal::NotPrimary(ShardId(0)));
    }
    let creating = || view(1, &[], &[0, 1], Some(0));
    refused(creating(), pull(), Refusal::NotReady);
    refused(
        creating(),
        push(0, 0, WEIGHT, gradient(&[1.0; 3], 1)),
        Refusal::NotReady,
    );
    refused(creating(), create(1), Refusal::NotCreator(GroupId(1)));
    let short = push(0, 0, WEIGHT, Action::Create(vec![2.0; 2]));
    let (block, expected, given) = (WEIGHT, 3, 2);
    let wrong = Refusal::WrongLength {
        block,
        expected,
        given,
    };
    refused(creating(), short, wrong);

    // The first values win, also over those of a later creator.
    for (generation, creator, value) in [(1, 0, 2.0), (2, 1, 3.0)] {
        follow(&mut shard, view(generation, &[], &[0, 1], Some(creator)));
        let create = push(creator, 0, WEIGHT, Action::Create(vec![value; 3]));
        shard.handle_push(create, ReplyTo(0), 0);
        let reply = only(&mut shard).unwrap();
        assert_eq!(
            (reply.answer, reply.fresh.values()),
            (Answer::Created, &[2.0; 3][..])
        );
    }
}

#[test]
fn a_repeat_gets_the_same_verdict_and_the_current_values() {
    let mut shard = ready(Async, &[(0, 0), (1, 0)]);
    let mut ask = |group, clock, action| {
        shard.handle_push(push(group, clock, WEIGHT, action), ReplyTo(0), 0);
        let reply = only(&mut shard).unwrap();
        let Answer::Decided(decided, repeat) = reply.answer else {
            panic!("{reply:?}")
        };
        let verdict = (decided.verdict, decided.delay, repeat);
        (
            verdict,
            reply.version,
            reply.fresh.values()[0],
            reply.samples_applied,
        )
    };
    let applied = |delay, repeat| (Verdict::Applied, delay, repeat);
    assert_eq!(
        ask(0, 0, gradient(&[1.0; 3], 4)),
        (applied(0, false), 1, 0.0, 4)
    );
    assert_eq!(
        ask(1, 0, gradient(&[2.0; 3], 4)),
        (applied(1, false), 2, -2.0, 8)
    );
    assert_eq!(
        ask(0, 0, gradient(&[1.0; 3], 4)),
        (applied(0, true), 2, -2.0, 8)
    );
    // A repeat is not looked into, so it cannot decide anything else.
    assert_eq!(
        ask(1, 0, gradient(&[f32::NAN], 0)),
        (applied(1, true), 2, -2.0, 8)
    );
    let skipped = |repeat| (Verdict::Skipped, 0, repeat);
    assert_eq!(
        ask(0, 1, Action::Contribute(None)),
        (skipped(false), 2, -2.0, 8)
    );
    assert_eq!(
        ask(0, 1, gradient(&[1.0; 3], 4)),
        (skipped(true), 2, -2.0, 8)
    );
    let counters = shard.counters();
    let counted = (
        counters.applied,
        counters.skipped,
        counters.duplicate,
        counters.updates,
    );
    assert_eq!(counted, (2, 1, 3, 2));
}

#[test]
fn every_frame_that_asks_for_what_waits_has_an_answer() {
    let mut shard = ready(Sync, &[(0, 0), (1, 0)]);
    // Stream 7 was opened after 6 broke, and yet its frame arrived first.
    for (to, now_us) in [(7, 10), (6, 20), (7, 30)] {
        shard.handle_push(
            push(0, 0, WEIGHT, gradient(&[1.0; 3], 1)),
            ReplyTo(to),
            now_us,
        );
    }
    shard.handle_push(push(1, 0, WEIGHT, gradient(&[3.0; 3], 3)), ReplyTo(8), 50);
    let got: Vec<_> = replies(&mut shard)
        .into_iter()
        .map(|(to, reply)| (to, reply.unwrap().waited_us))
        .collect();
    assert_eq!(got, [(7, 40), (6, 40), (7, 40), (8, 0)]);

    for to in 0..20 {
        shard.handle_push(push(0, 1, WEIGHT, gradient(&[1.0; 3], 1)), ReplyTo(to), 0);
    }
    follow(&mut shard, view(3, &[(1, 0)], &[], None));
    let refused = replies(&mut shard);
    let first_left = 20 - ASKERS_MAX as u64;
    for ((to, reply), want) in refused.into_iter().zip(0..20) {
        let refusal = if to < first_left {
            Refusal::Superseded(WEIGHT)
        } else {
            Refusal::NotLive(GroupId(0))
        };
        assert_eq!((to, reply), (want, Err(refusal)));
    }
}

#[test]
fn sync_averages_by_samples_over_what_is_in() {
    let check = |actions: [Action; 3], block, want: f32| {
        let mut shard = ready(Sync, &[(0, 0), (1, 0), (2, 0)]);
        for (group, action) in actions.into_iter().enumerate() {
            shard.handle_push(push(group as u32, 0, block, action), ReplyTo(0), 0);
        }
        let replies = replies(&mut shard);
        assert_eq!(replies.len(), 3);
        for (_, reply) in replies {
            let reply = reply.unwrap();
            assert_eq!(
                (reply.version, reply.fresh.values()[0]),
                (u64::from(want != 1.0), want)
            );
        }
    };
    let skip = || Action::Contribute(None);
    let weight = |value: f32, samples| gradient(&[value; 3], samples);
    check(
        [weight(4.0, 1), weight(8.0, 2), weight(4.0, 1)],
        WEIGHT,
        1.0 - 6.0,
    );
    check([weight(4.0, 1), skip(), weight(8.0, 3)], WEIGHT, 1.0 - 7.0);
    check([skip(), skip(), skip()], WEIGHT, 1.0);
    let mean = |value: f32, samples| gradient(&[value; 2], samples);
    check([mean(4.0, 1), mean(8.0, 2), mean(4.0, 1)], MEAN, 1.0 + 6.0);
    check([mean(4.0, 1), skip(), mean(8.0, 1)], MEAN, 1.0 + 6.0);
}

#[test]
fn a_buffer_moves_by_each_groups_part_of_the_live_groups() {
    let mut shard = ready(Async, &[(0, 0), (1, 0)]);
    let mut ask = |group, clock, change| {
        shard.handle_push(
            push(group, clock, MEAN, gradient(&[change; 2], 9)),
            ReplyTo(0),
            0,
        );
        only(&mut shard).unwrap().fresh.values()[0]
    };
    assert_eq!(ask(0, 0, 4.0), 1.0 + 2.0);
    assert_eq!(ask(1, 0, 8.0), 3.0 + 4.0);
    follow(&mut shard, view(3, &[(0, 0), (1, 0), (2, 1)], &[], None));
    shard.handle_push(push(2, 1, MEAN, gradient(&[9.0; 2], 9)), ReplyTo(0), 0);
    assert_eq!(only(&mut shard).unwrap().fresh.values()[0], 7.0 + 3.0);
}

#[test]
fn the_others_wait_for_a_group_that_joins() {
    let check = |consistency, released: u64| {
        let mut shard = ready(consistency, &[(0, 0)]);
        let ask = |shard: &mut Shard, clock| {
            shard.handle_push(
                push(0, clock, WEIGHT, gradient(&[1.0; 3], 1)),
                ReplyTo(0),
                0,
            );
            replies(shard).len()
        };
        for clock in 0..3 {
            assert_eq!(ask(&mut shard, clock), 1);
        }
        // Group 1 will start at 3 or later.
        let seen = follow(&mut shard, view(3, &[(0, 0)], &[1], None));
        assert_eq!(seen.clock_seen, Some(Clock(2)));
        let passed = (3..10)
            .take_while(|clock| ask(&mut shard, *clock) == 1)
            .count();
        assert_eq!(passed as u64, released, "{consistency:?}");
        // It dies, and what waits goes on.
        follow(&mut shard, view(4, &[(0, 0)], &[], None));
        assert_eq!(replies(&mut shard).len(), usize::from(released < 7));
    };
    check(Sync, 0);
    check(Bounded { staleness_bound: 0 }, 1);
    check(Bounded { staleness_bound: 3 }, 4);
    check(Async, 7);
}

#[test]
fn older_views_change_nothing() {
    let mut shard = ready(Async, &[(0, 0)]);
    let seen = follow(&mut shard, view(1, &[(1, 0)], &[], Some(1)));
    assert_eq!(seen.generation, Generation(2));
    shard.handle_push(push(0, 0, WEIGHT, gradient(&[1.0; 3], 1)), ReplyTo(0), 0);
    assert!(only(&mut shard).is_ok());
}

#[test]
fn a_shard_holds_the_blocks_that_it_was_given() {
    let spec = spec(&[1], Async);
    let layout = spec.check().unwrap();
    let placement =
        tradewind_common::placement::Placement::from_shards(vec![ShardId(1), ShardId(0)]);
    let shard = Shard::new(
        ServerId(0),
        ShardId(0),
        Arc::new(spec),
        &layout,
        placement.blocks(ShardId(0)),
    );
    let blocks: Vec<_> = shard.blocks().map(|(id, b)| (id, b.length())).collect();
    assert_eq!(blocks, [(WEIGHT, 3)]);
}
