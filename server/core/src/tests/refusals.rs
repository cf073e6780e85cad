//! What a shard refuses, and that nothing has changed then.

use std::sync::Arc;

use tradewind_common::spec::ConsistencySpec::{Async, Bounded};
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, ServerId, ShardId};

use super::shard::{MEAN, WEIGHT, follow, gradient, only, outputs, push, ready, view};
use super::spec;
use crate::ReplyTo;
use crate::block::Gradient;
use crate::refusal::Refusal;
use crate::shard::{Action, Answer, Push, Shard};
use crate::view::View;

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
