//! A copy takes its primary's place.

use tradewind_common::holders::Role;
use tradewind_common::spec::ConsistencySpec::{Async, Sync};
use tradewind_common::{Clock, Generation};

use super::holders::{SHARD, Stage, wave};
use super::shard::{MEAN, WEIGHT, gradient, push};
use super::spec;
use crate::log::{LogEntry, Record};
use crate::order::NotCaptured;
use crate::refusal::Refusal;
use crate::shard::Answer;

const BOTH: &[(u32, u64)] = &[(0, 0), (1, 0)];

fn gone() -> Refusal {
    Refusal::NotPrimary(SHARD)
}

#[test]
fn a_repeat_gets_the_same_verdict_from_the_new_primary() {
    let mut stage = Stage::ready(spec(&[1, 1], Async), &[1], BOTH);
    let step = || gradient(&[1.0; 3], 2);
    for (group, clock) in [(0, 0), (1, 0), (1, 1)] {
        stage.push(push(group, clock, WEIGHT, step()), 0);
    }
    stage.settle();
    let told = stage.answers().pop().unwrap().1.unwrap();
    stage.promote(1);
    stage.order(BOTH, &[], None);
    stage.push(push(1, 1, WEIGHT, step()), 0);
    let again = stage.answer().unwrap();
    let (Answer::Decided(first, false), Answer::Decided(second, true)) =
        (told.answer, again.answer)
    else {
        panic!("{told:?} {again:?}")
    };
    assert_eq!(first, second);
    assert_eq!((told.version, told.fresh), (again.version, again.fresh));
    assert_eq!((again.samples_applied, again.lineage), (6, Generation(0)));
    // And every group goes on where it was.
    stage.push(push(0, 1, WEIGHT, step()), 0);
    assert_eq!(stage.answer().unwrap().version, 4);
    stage.push(push(0, 3, WEIGHT, step()), 0);
    assert!(matches!(stage.answer(), Err(Refusal::ClockAhead { .. })));
}

#[test]
fn what_waited_is_sent_again_and_decided() {
    let mut stage = Stage::ready(spec(&[1, 1], Sync), &[1], BOTH);
    for clock in 0..2 {
        for group in 0..2 {
            stage.push(push(group, clock, WEIGHT, wave(3, clock)), 0);
        }
    }
    // The copy has clock 0 only; at clock 2 group 0 waits for group 1.
    stage.deliver_one(1);
    stage.answers();
    stage.push(push(0, 2, WEIGHT, wave(3, 2)), 7);
    stage.promote(1);
    stage.order(BOTH, &[], None);
    // Server 0 was told, too: what waits there is refused, the same as what was not confirmed.
    let refused = stage.answers();
    assert_eq!(
        refused,
        [(7, Err(gone())), (0, Err(gone())), (0, Err(gone()))]
    );
    for clock in 1..3 {
        for group in 0..2 {
            stage.push(push(group, clock, WEIGHT, wave(3, clock)), clock);
        }
    }
    let versions: Vec<_> = stage
        .answers()
        .into_iter()
        .map(|(_, r)| r.unwrap().version)
        .collect();
    assert_eq!(versions, [2, 2, 3, 3]);
}

#[test]
fn a_deposed_primary_answers_nothing_and_is_filled() {
    let mut stage = Stage::ready(spec(&[1, 1], Sync), &[1, 2], BOTH);
    // Decided and not confirmed; waiting; a capture that waits for copies, and one for a clock.
    for group in 0..2 {
        stage.push(push(group, 0, WEIGHT, wave(3, 0)), 1);
    }
    stage.push(push(0, 0, MEAN, wave(2, 0)), 2);
    stage.capture(0, 1, None);
    stage.capture(0, 2, Some(5));
    let lost = stage.at(0).digest();
    stage.promote(1);
    stage.add(0);
    let view = stage.next_view(BOTH, &[], None);
    stage.tell(1, &view);
    assert!(stage.answers().is_empty());
    stage.tell(0, &view);
    let refused: Vec<_> = [2, 1, 1].map(|to| (to, Err(gone()))).into();
    assert_eq!(stage.answers(), refused);
    let captures: Vec<_> = stage
        .captured()
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    assert_eq!(captures, [1, 2]);
    stage.push_at(0, push(0, 0, WEIGHT, wave(3, 0)), 3);
    assert_eq!(stage.answer(), Err(gone()));
    stage.capture(0, 3, None);
    assert!(matches!(
        &stage.captured()[..],
        [(3, Err(NotCaptured::Failed(_)))]
    ));
    // A confirmation that was on its way changes nothing.
    assert_ne!(stage.at(1).digest(), lost);
    stage.tell(2, &view);
    stage.wire(1).clear();
    stage.settle();
    stage.assert_equal();
    assert!(matches!(stage.at(0).role(), Some(Role::Copy(_))));
}

/// A record of the log in which server 0 was primary first.
fn old_record(stage: &mut Stage) -> Record {
    stage.push_at(0, push(0, 0, WEIGHT, wave(3, 0)), 0);
    let mut records = stage.wire(1).iter();
    records
        .rfind(|r| matches!(r.entry, LogEntry::Update(_)))
        .unwrap()
        .clone()
}

#[test]
fn an_old_log_is_refused() {
    let mut stage = Stage::ready(spec(&[1, 1], Async), &[1, 2], BOTH);
    stage.promote(1);
    let view = stage.next_view(BOTH, &[], None);
    stage.tell(1, &view);
    // Server 0 has not heard of it, and server 2 neither.
    let old = old_record(&mut stage);
    let stale = |shard: Result<_, Refusal>| matches!(shard, Err(Refusal::StaleLog { .. }));
    let before = stage.states(1);
    assert!(stale(stage.at(1).handle_record(old.clone())));
    assert_eq!(stage.states(1), before);
    // Server 2 follows the log of its order, whatever others say of themselves.
    let new = stage
        .wire(2)
        .iter()
        .find(|r| r.log > old.log)
        .unwrap()
        .clone();
    let before = stage.states(2);
    let early = stage.at(2).handle_record(new.clone());
    assert_eq!(early, Err(Refusal::NotCopy(SHARD)));
    let rogue = Record {
        log: Generation(u64::MAX),
        entry: LogEntry::Probe,
        previous: 0,
        ..old.clone()
    };
    assert_eq!(
        stage.at(2).handle_record(rogue),
        Err(Refusal::NotCopy(SHARD))
    );
    assert_eq!(stage.states(2), before);
    let to_2 = stage
        .wire(2)
        .iter()
        .rfind(|r| r.log == old.log)
        .unwrap()
        .clone();
    stage.at(2).handle_record(to_2.clone()).unwrap();
    stage.tell(2, &view);
    assert!(stale(stage.at(2).handle_record(to_2.clone())));
    let mut told = Stage::ready(spec(&[1, 1], Async), &[1, 2], BOTH);
    told.promote(1);
    told.order(BOTH, &[], None);
    assert!(stale(told.at(2).handle_record(to_2)));
    // And of this log only what was sent since it was added last.
    told.add(2);
    told.order(BOTH, &[], None);
    assert!(stale(told.at(2).handle_record(new)));
}

#[test]
fn records_that_come_before_their_order() {
    let mut stage = Stage::ready(spec(&[1, 1], Async), &[1], BOTH);
    stage.promote(1);
    stage.add(0);
    let view = stage.next_view(BOTH, &[], None);
    stage.tell(1, &view);
    let record = stage.wire(0)[0].clone();
    // To itself, server 0 still is the primary.
    let refused = stage.at(0).handle_record(record.clone());
    assert_eq!(refused, Err(Refusal::NotCopy(SHARD)));
    stage.push_at(0, push(0, 0, WEIGHT, wave(3, 0)), 0);
    stage.tell(0, &view);
    assert_eq!(stage.answer(), Err(gone()));
    stage.deliver(0);
    stage.assert_equal();
}

#[test]
fn what_an_order_on_its_way_may_end_confirms_no_records() {
    let mut stage = Stage::ready(spec(&[1, 1], Async), &[1, 2], BOTH);
    // Server 2 was to be primary, and was taken for dead before it heard of it.
    stage.promote(2);
    let (late, holders) = (stage.next_view(BOTH, &[], None), stage.holders.clone());
    stage.promote(1);
    stage.add(2);
    let view = stage.next_view(BOTH, &[], None);
    stage.tell(1, &view);
    let record = stage.wire(2)[0].clone();
    let refused = stage.at(2).handle_record(record);
    assert_eq!(refused, Err(Refusal::NotCopy(SHARD)));
    stage.at(2).handle_order(late, &holders, 0);
    stage.push_at(2, push(0, 0, WEIGHT, wave(3, 0)), 0);
    assert!(stage.answers().is_empty());
    stage.tell(2, &view);
    assert_eq!(stage.answer(), Err(gone()));
    stage.settle();
    stage.assert_equal();
}

#[test]
fn a_copy_has_seen_the_clocks_of_its_records() {
    let mut stage = Stage::ready(spec(&[1, 1], Async), &[1], BOTH);
    for clock in 0..3 {
        stage.push(push(0, clock, WEIGHT, wave(3, clock)), 0);
    }
    stage.settle();
    let view = stage.next_view(BOTH, &[], None);
    assert_eq!(stage.tell(1, &view).clock_seen, Some(Clock(2)));
    // One that is filled, too.
    stage.add(2);
    stage.order(BOTH, &[], None);
    stage.settle();
    let view = stage.next_view(BOTH, &[], None);
    assert_eq!(stage.tell(2, &view).clock_seen, Some(Clock(2)));
}

#[test]
fn a_closed_shard_answers_nothing() {
    let mut stage = Stage::ready(spec(&[1, 1], Sync), &[1], BOTH);
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 5);
    let pull = push(0, 0, WEIGHT, crate::shard::Action::Pull);
    stage.push(pull, 6);
    stage.at(0).close();
    stage.collect(0);
    assert_eq!(stage.answers(), [(5, Err(gone())), (6, Err(gone()))]);
    assert_eq!(stage.at(0).role(), None);
    stage.deliver(1);
    assert!(stage.answers().is_empty());
}
