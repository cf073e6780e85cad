//! One shard: what it decides, refuses and answers.

use std::sync::Arc;

use tradewind_common::holders::Holders;
use tradewind_common::schedule::Seen;
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, ServerId, ShardId};

use super::spec;
use crate::ReplyTo;
use crate::askers::{ASKERS_MAX, Wants};
use crate::block::Gradient;
use crate::decided::Verdict;
use crate::refusal::Refusal;
use crate::shard::{Action, Answer, Output, Push, Reply, Shard};
use crate::view::{Acknowledge, View};

/// Three values, a parameter.
pub(super) const WEIGHT: BlockId = BlockId(0);
/// Two values, a buffer.
pub(super) const MEAN: BlockId = BlockId(1);

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
        groups: 0,
    }
}

/// The shard's only holder follows a view.
pub(super) fn follow(shard: &mut Shard, view: View) -> Acknowledge {
    shard.handle_order(view, &Holders::alone(ServerId(0)), 0)
}

/// A shard with all blocks at 1.0 and the groups of `live`.
pub(super) fn ready(consistency: ConsistencySpec, live: &[(u32, u64)]) -> Shard {
    ready_as(spec(&[1, 1, 1], consistency), live)
}

/// The same with another specification.
pub(super) fn ready_as(spec: RunSpec, live: &[(u32, u64)]) -> Shard {
    let layout = spec.check().unwrap();
    let all = layout.blocks.iter().map(|block| block.id);
    let mut shard = Shard::new(ServerId(0), ShardId(0), Arc::new(spec), &layout, all);
    follow(&mut shard, view(1, &[], &[0], Some(0)));
    for block in &layout.blocks {
        let ones = Action::Create(vec![1.0; block.elements.len()]);
        shard.handle_push(push(0, 0, block.id, ones), ReplyTo(0), 0);
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
        seen: Seen::default(),
        norms: Vec::new(),
    }))
}

pub(super) fn outputs(shard: &mut Shard) -> Vec<Output> {
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
    check([mean(4.0, 1), mean(8.0, 2), mean(4.0, 1)], MEAN, 6.0);
    check([mean(4.0, 1), skip(), mean(8.0, 1)], MEAN, 6.0);
}

#[test]
fn a_buffer_moves_by_each_groups_part_of_the_live_groups() {
    let mut shard = ready(Async, &[(0, 0), (1, 0)]);
    let mut ask = |group, clock, new| {
        shard.handle_push(
            push(group, clock, MEAN, gradient(&[new; 2], 9)),
            ReplyTo(0),
            0,
        );
        only(&mut shard).unwrap().fresh.values()[0]
    };
    assert_eq!(ask(0, 0, 5.0), 1.0 + 2.0);
    assert_eq!(ask(1, 0, 8.0), 3.0 + 2.5);
    follow(&mut shard, view(3, &[(0, 0), (1, 0), (2, 1)], &[], None));
    shard.handle_push(push(2, 1, MEAN, gradient(&[8.5; 2], 9)), ReplyTo(0), 0);
    assert_eq!(only(&mut shard).unwrap().fresh.values()[0], 5.5 + 1.0);
}

/// One group has made a variance small when another comes, which had pulled 1 and got half of the
/// way: as a change from what it had pulled that would take the variance below 0.
#[test]
fn a_buffer_never_leaves_what_groups_have_seen() {
    let mut shard = ready(Async, &[(0, 0), (1, 0)]);
    let mut values = vec![1.0];
    let mut ask = |group, clock, new: f32| {
        let of = gradient(&[new; 2], 1);
        shard.handle_push(push(group, clock, MEAN, of), ReplyTo(0), 0);
        values.push(only(&mut shard).unwrap().fresh.values()[0]);
    };
    for clock in 0..8 {
        ask(0, clock, 0.01);
    }
    ask(1, 0, 0.51);
    ask(0, 8, f32::MAX);
    ask(0, 9, f32::MIN);
    let (first, rest) = values.split_at(10);
    assert!(first.iter().all(|x| (0.01..=1.0).contains(x)), "{first:?}");
    assert!(rest.iter().all(|x| x.is_finite()), "{rest:?}");
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
        tradewind_common::placement::Placement::from_shards(vec![ShardId(0), ShardId(1)]);
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
