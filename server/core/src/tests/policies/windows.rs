//! Contributions that become one update.

use tradewind_common::policy::{MergeSpec, Policies};
use tradewind_common::spec::ConsistencySpec::Async;

use super::super::shard::{MEAN, WEIGHT, follow, only, push, ready_as, replies, view};
use super::{LIVE, contribution, decided, send_to, with};
use crate::ReplyTo;
use crate::shard::{Reply, Shard};

/// Waits 100 ms at most for a second group, and then so long at most for more.
fn waiting_for_two(grace_ms_max: u64) -> Shard {
    let policies = Policies {
        merge: Some(MergeSpec {
            min_groups: 2,
            grace_ms_max,
            wait_ms_max: 100,
        }),
        ..Policies::default()
    };
    ready_as(with(Async, policies), &LIVE)
}

#[test]
fn what_comes_about_the_same_time_becomes_one_update() {
    let mut shard = waiting_for_two(10);
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

/// Two groups of three move a buffer two thirds of the way to their mean.
#[test]
fn a_buffer_moves_by_the_part_of_all_groups_that_are_merged() {
    let mut shard = waiting_for_two(0);
    send_to(&mut shard, MEAN, (0, 0), (&[3.0; 2], 1), 0);
    send_to(&mut shard, MEAN, (1, 0), (&[6.0; 2], 1), 0);
    for (_, reply) in replies(&mut shard) {
        assert_eq!(
            reply.unwrap().fresh.values(),
            [1.0 + (4.5 - 1.0) * (2.0 / 3.0); 2]
        );
    }
}
