//! A shard's part of a snapshot.

use std::sync::Arc;
use tradewind_common::optimizer::Sgd;

use tradewind_common::spec::ConsistencySpec::{Async, Sync};
use tradewind_common::spec::{OptimizerSpec, RunSpec};
use tradewind_common::{BlockId, Clock};

use super::holders::{Stage, wave};
use super::shard::{MEAN, WEIGHT, push};
use super::spec;
use crate::order::NotCaptured;
use crate::state::BlockState;

const BOTH: &[(u32, u64)] = &[(0, 0), (1, 0)];

fn contribute(stage: &mut Stage, group: u32, clock: u64, block: BlockId) {
    let length = if block == MEAN { 2 } else { 3 };
    stage.push(push(group, clock, block, wave(length, clock)), 0);
}

fn taken(stage: &mut Stage) -> Vec<BlockState> {
    let captured = stage.captured();
    let [(1, Ok(states))] = &captured[..] else {
        panic!("{captured:?}")
    };
    states.clone()
}

fn versions(states: &[BlockState]) -> Vec<(u32, u64)> {
    states
        .iter()
        .map(|state| (state.id.0, state.version))
        .collect()
}

#[test]
fn under_sync_every_block_is_as_before_one_clock() {
    // Group 2 has not started at that clock, or starts exactly there.
    for start in [3, 7] {
        let mut stage = Stage::ready(spec(&[1, 1, 1], Sync), &[], &[(0, 0), (1, 0), (2, start)]);
        stage.capture(0, 1, Some(3));
        // One block runs ahead of the other as far as it can.
        for block in [MEAN, WEIGHT] {
            assert!(stage.captured().is_empty(), "{block} is missing");
            for clock in 0..6 {
                contribute(&mut stage, 0, clock, block);
                contribute(&mut stage, 1, clock, block);
            }
        }
        let states = taken(&mut stage);
        assert_eq!(versions(&states), [(0, 3), (1, 3)], "start {start}");
        for state in states {
            let clocks: Vec<_> = state.decided.values().map(|(_, d)| d.clock).collect();
            assert_eq!(clocks, [Clock(2), Clock(2)]);
        }
    }
}

#[test]
fn one_group_that_waits_is_not_in_it() {
    let mut stage = Stage::ready(spec(&[1, 1], Sync), &[], BOTH);
    for block in [MEAN, WEIGHT] {
        contribute(&mut stage, 0, 0, block);
        contribute(&mut stage, 1, 0, block);
        contribute(&mut stage, 0, 1, block);
    }
    stage.capture(0, 1, Some(1));
    assert_eq!(versions(&taken(&mut stage)), [(0, 1), (1, 1)]);
}

#[test]
fn a_clock_that_is_passed_cannot_be_captured() {
    let mut stage = Stage::ready(spec(&[1, 1], Sync), &[], BOTH);
    for (block, clocks) in [(MEAN, 5), (WEIGHT, 2)] {
        for clock in 0..clocks {
            contribute(&mut stage, 0, clock, block);
            contribute(&mut stage, 1, clock, block);
        }
    }
    for at in 0..7 {
        stage.capture(0, at, Some(at));
        let captured = stage.captured();
        if at <= 4 {
            let passed = (at, Err(NotCaptured::Passed(Clock(4))));
            assert_eq!(captured, [passed]);
        } else {
            assert!(captured.is_empty(), "{captured:?}");
        }
    }
}

#[test]
fn a_clock_may_be_passed_while_others_are_waited_for() {
    // Not under sync: one group goes on while another is behind.
    let mut stage = Stage::ready(spec(&[1, 1], Async), &[], BOTH);
    stage.capture(0, 1, Some(1));
    contribute(&mut stage, 0, 0, WEIGHT);
    assert!(stage.captured().is_empty());
    contribute(&mut stage, 0, 1, WEIGHT);
    contribute(&mut stage, 1, 0, WEIGHT);
    assert_eq!(stage.captured(), [(1, Err(NotCaptured::Passed(Clock(1))))]);
}

#[test]
fn without_groups_a_block_waits_for_who_comes_next() {
    let mut stage = Stage::ready(spec(&[1, 1, 1], Sync), &[], BOTH);
    stage.capture(0, 1, Some(9));
    contribute(&mut stage, 0, 0, WEIGHT);
    contribute(&mut stage, 1, 0, WEIGHT);
    assert!(stage.captured().is_empty());
    // One that has joined may still start before that clock.
    stage.order(&[], &[0], None);
    assert!(stage.captured().is_empty());
    // So may one that joins later.
    stage.order(&[], &[], None);
    assert!(stage.captured().is_empty());
    stage.order(&[(2, 9)], &[], None);
    assert_eq!(versions(&taken(&mut stage)), [(0, 1), (1, 0)]);
}

#[test]
fn what_is_captured_shares_memory_until_it_changes() {
    let spec = RunSpec {
        optimizer: OptimizerSpec::Sgd(Sgd {
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.0,
        }),
        ..spec(&[1, 1], Async)
    };
    let mut stage = Stage::ready(spec, &[], BOTH);
    stage.capture(0, 1, None);
    let first = taken(&mut stage);
    let kept = first
        .iter()
        .map(|state| state.values.to_vec())
        .collect::<Vec<_>>();
    stage.capture(0, 1, None);
    let second = taken(&mut stage);
    contribute(&mut stage, 0, 0, WEIGHT);
    stage.capture(0, 1, None);
    let third = taken(&mut stage);
    for (index, changed) in [true, false].into_iter().enumerate() {
        let (a, b, c) = (&first[index], &second[index], &third[index]);
        assert!(Arc::ptr_eq(&a.values, &b.values));
        assert_eq!(Arc::ptr_eq(&b.values, &c.values), !changed);
        assert_eq!(*a.values, kept[index]);
        assert_eq!(
            a.slots.len(),
            usize::from(changed),
            "buffers have no optimizer"
        );
        for ((a, b), c) in a.slots.iter().zip(&b.slots).zip(&c.slots) {
            assert!(Arc::ptr_eq(a, b) && !Arc::ptr_eq(b, c));
            assert_eq!(**a, [0.0; 3]);
        }
    }
}

#[test]
fn a_newer_capture_takes_the_place_of_an_older_one() {
    let mut stage = Stage::ready(spec(&[1], Sync), &[], &[(0, 0)]);
    stage.capture(0, 1, Some(1));
    stage.capture(0, 3, Some(2));
    stage.capture(0, 2, Some(1));
    stage.capture(0, 3, Some(9));
    for clock in 0..3 {
        contribute(&mut stage, 0, clock, MEAN);
        contribute(&mut stage, 0, clock, WEIGHT);
    }
    let captured = stage.captured();
    let [(3, Ok(states))] = &captured[..] else {
        panic!("{captured:?}")
    };
    assert_eq!(versions(states), [(0, 2), (1, 2)]);
}

#[test]
fn only_a_primary_with_all_values_captures() {
    let failed = |stage: &mut Stage| {
        let captured = stage.captured();
        matches!(&captured[..], [(1, Err(NotCaptured::Failed(_)))])
    };
    let mut stage = Stage::ready(spec(&[1], Sync), &[1], &[(0, 0)]);
    stage.capture(1, 1, None);
    assert!(failed(&mut stage), "a copy");
    let mut stage = Stage::empty(spec(&[1], Sync), &[]);
    stage.capture(0, 1, Some(5));
    assert!(failed(&mut stage), "nothing was created");
}
