//! More contributions than a block keeps: what is gathered, and who is sent away.

use std::collections::VecDeque;

use tradewind_common::mix::mixed;
use tradewind_common::policy::{MergeSpec, Policies};
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_common::spec::RunSpec;

use super::shard::{WEIGHT, follow, gradient, push, ready_as, replies, view};
use super::spec;
use crate::ReplyTo;
use crate::block::Block;
use crate::refusal::Refusal;
use crate::shard::Shard;

const GROUPS: u32 = 9;

fn run(consistency: ConsistencySpec, policies: Policies) -> RunSpec {
    RunSpec {
        policies,
        samples: 1 << 40,
        ..spec(&[1; GROUPS as usize], consistency)
    }
}

fn shard(consistency: ConsistencySpec, policies: Policies, most: usize) -> Shard {
    let live: Vec<_> = (0..GROUPS).map(|group| (group, 0)).collect();
    ready_as(run(consistency, policies), &live).with_kept(most)
}

fn weight(shard: &Shard) -> &Block {
    shard.blocks().find(|(id, _)| *id == WEIGHT).unwrap().1
}

fn waiting(shard: &Shard) -> usize {
    weight(shard).scene(true, 0).standings.waiting()
}

/// What a group brings: no two sums of these in different orders have the same bits.
fn send(shard: &mut Shard, group: u32, clock: u64) {
    let value = |at: u32| ((group * 3 + at) as f32).sin();
    let brought = gradient(&[value(0), value(1), value(2)], 1 + group % 4);
    let to = ReplyTo(u64::from(group));
    shard.handle_push(push(group, clock, WEIGHT, brought), to, 0);
}

/// All groups push at a clock, in an order; who is sent away asks again, behind the others. How often that was,
/// and the bits that come of it.
fn exchange(shard: &mut Shard, clock: u64, order: &[u32], most: usize) -> (usize, Vec<u32>) {
    let mut left: VecDeque<u32> = order.iter().copied().collect();
    let (mut sent_away, mut decided) = (0, 0);
    while let Some(group) = left.pop_front() {
        send(shard, group, clock);
        assert!(waiting(shard) <= most, "{} wait", waiting(shard));
        for (to, result) in replies(shard) {
            match result {
                Ok(_) => decided += 1,
                Err(Refusal::Busy) => {
                    sent_away += 1;
                    left.push_back(to as u32);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(sent_away < 1000, "nobody comes to an end");
    }
    assert_eq!(decided, order.len());
    let values = weight(shard).values().unwrap();
    (sent_away, values.iter().map(|x| x.to_bits()).collect())
}

/// Whoever comes first.
fn shuffled(seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..GROUPS).collect();
    order.sort_by_key(|group| mixed(seed, [u64::from(*group)]));
    order
}

/// Rule 3: bits do not depend on the order of arrival, nor on how many may wait.
#[test]
fn bits_are_those_of_the_order_of_groups_whoever_waits() {
    let mut sent_away = [0; 3];
    for seed in 0..40 {
        let mut roomy = shard(Sync, Policies::default(), 64);
        let wanted: Vec<_> = (0..3)
            .map(|clock| exchange(&mut roomy, clock, &shuffled(0), 64))
            .collect();
        for (most, count) in (1..).zip(&mut sent_away) {
            let mut shard = shard(Sync, Policies::default(), most);
            for clock in 0..3 {
                let order = shuffled(seed * 3 + clock);
                let (times, bits) = exchange(&mut shard, clock, &order, most);
                assert_eq!(bits, wanted[clock as usize].1, "seed {seed}, {most} wait");
                *count += times;
            }
            assert_eq!(weight(&shard).version(), 3);
        }
        assert_eq!(wanted[0].0, 0, "with room nobody is sent away");
    }
    assert!(
        sent_away.is_sorted_by(|few, more| few > more),
        "{sent_away:?}"
    );
}

/// Nobody is sent away who comes when it is its turn, however few may wait.
#[test]
fn who_is_next_in_order_is_always_let_in() {
    let order: Vec<u32> = (0..GROUPS).collect();
    for most in 0..3 {
        let mut shard = shard(Sync, Policies::default(), most);
        assert_eq!(exchange(&mut shard, 0, &order, most).0, 0);
    }
}

#[test]
fn what_is_gathered_counts_though_its_group_dies() {
    let mut crowded = shard(Sync, Policies::default(), 0);
    let mut roomy = shard(Sync, Policies::default(), 64);
    let (_, wanted) = exchange(&mut roomy, 0, &shuffled(1), 64);
    for group in 0..3 {
        send(&mut crowded, group, 0);
    }
    assert!(replies(&mut crowded).is_empty());
    let live: Vec<_> = (1..GROUPS).map(|group| (group, 0)).collect();
    follow(&mut crowded, view(3, &live, &[], None));
    let told = replies(&mut crowded);
    assert!(
        matches!(told[..], [(0, Err(Refusal::NotLive(_)))]),
        "{told:?}"
    );
    for group in 3..GROUPS {
        send(&mut crowded, group, 0);
    }
    let answered = replies(&mut crowded);
    assert_eq!(answered.len(), GROUPS as usize - 1);
    let block = weight(&crowded);
    let bits: Vec<u32> = block
        .values()
        .unwrap()
        .iter()
        .map(|x| x.to_bits())
        .collect();
    assert_eq!(bits, wanted, "the dead group's gradient is in");
    assert_eq!(block.state().unwrap().decided.len(), GROUPS as usize);
    assert_eq!(block.samples_applied(), weight(&roomy).samples_applied());
}

#[test]
fn what_is_gathered_is_applied_when_nobody_is_left_to_wait_for() {
    let mut shard = shard(Sync, Policies::default(), 0);
    send(&mut shard, 0, 0);
    follow(&mut shard, view(3, &[], &[], None));
    assert_eq!(weight(&shard).version(), 1);
    // The next life finds its clock made.
    follow(&mut shard, view(4, &[(1, 1)], &[], None));
    replies(&mut shard);
    send(&mut shard, 1, 1);
    assert!(replies(&mut shard)[0].1.is_ok());
    assert_eq!(weight(&shard).version(), 2);
}

#[test]
fn with_backup_groups_nobody_of_the_clock_is_sent_away() {
    let policies = Policies {
        backup_groups: 2,
        ..Policies::default()
    };
    for seed in 0..10 {
        let mut shard = shard(Sync, policies, 0);
        let order = shuffled(seed);
        let (first, late) = order.split_at(GROUPS as usize - 2);
        assert_eq!(exchange(&mut shard, 0, first, 0).0, 0);
        assert_eq!(weight(&shard).version(), 1);
        assert_eq!(exchange(&mut shard, 0, late, 0).0, 0, "they are left out");
        assert_eq!(weight(&shard).version(), 1);
    }
}

#[test]
fn a_window_gathers_whoever_may_come() {
    let policies = Policies {
        merge: Some(MergeSpec {
            min_groups: GROUPS,
            grace_ms_max: 0,
            wait_ms_max: 1000,
        }),
        ..Policies::default()
    };
    let mut crowded = shard(Async, policies, 0);
    assert_eq!(exchange(&mut crowded, 0, &shuffled(4), 0).0, 0);
    assert_eq!(weight(&crowded).version(), 1);
}

#[test]
fn under_a_bound_the_fastest_are_sent_away() {
    let bounded = Bounded { staleness_bound: 0 };
    let mut shard = shard(bounded, Policies::default(), 2);
    for group in 1..4 {
        send(&mut shard, group, 0);
        assert!(replies(&mut shard)[0].1.is_ok());
    }
    // Group 0 and others stand at 0.
    for group in [2, 3] {
        send(&mut shard, group, 1);
        assert!(replies(&mut shard).is_empty());
    }
    send(&mut shard, 1, 1);
    let told = replies(&mut shard);
    assert!(matches!(told[..], [(3, Err(Refusal::Busy))]), "{told:?}");
    send(&mut shard, 0, 0);
    assert!(replies(&mut shard)[0].1.is_ok(), "the slowest is let in");
}
