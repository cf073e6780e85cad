//! A shard that is restored from a snapshot, under groups that go on.

use tradewind_common::optimizer::Sgd;
use tradewind_common::policy::momentum::ClosedLoop;
use tradewind_common::policy::staleness::Compensate;
use tradewind_common::policy::{MomentumSpec, StalenessSpec};
use tradewind_common::spec::ConsistencySpec::{self, Async, Sync};
use tradewind_common::spec::{OptimizerSpec, RunSpec};
use tradewind_common::{Clock, Compression, Generation, GroupId, Incarnation};

use super::holders::{SHARD, Stage, wave};
use super::shard::{MEAN, WEIGHT, gradient, push};
use super::spec;
use crate::askers::{Fresh, Wants};
use crate::decided::Verdict;
use crate::refusal::Refusal;
use crate::shard::{Action, Answer, Push};
use crate::state::BlockState;

const BOTH: &[(u32, u64)] = &[(0, 0), (1, 0)];

/// Lost and restored as after three clocks, in this lineage; the groups have gone on.
fn restored(consistency: ConsistencySpec, copies: &[u32]) -> (Stage, Generation) {
    restored_as(spec(&[1, 1], consistency), copies)
}

/// The same with another specification.
fn restored_as(spec: RunSpec, copies: &[u32]) -> (Stage, Generation) {
    let mut stage = Stage::ready(spec, copies, BOTH);
    for clock in 0..3 {
        for group in 0..2 {
            stage.push(push(group, clock, WEIGHT, wave(3, clock)), 0);
        }
    }
    stage.settle();
    stage.answers();
    let snapshot = stage.states(0);
    stage.lose(0);
    stage.promote(0);
    for copy in copies {
        stage.add(*copy);
    }
    let lineage = stage.holders.primary.unwrap().since;
    stage.holders.lineage = lineage;
    stage.at(0).restore(snapshot, lineage);
    stage.order(BOTH, &[], None);
    (stage, lineage)
}

fn of(lineage: Generation, pulled_version: u64) -> Action {
    of_length(3, lineage, pulled_version)
}

fn of_length(length: usize, lineage: Generation, pulled_version: u64) -> Action {
    let Action::Contribute(Some(mut gradient)) = gradient(&vec![1.0; length], 1) else {
        unreachable!()
    };
    gradient.lineage = lineage;
    gradient.pulled_version = pulled_version;
    Action::Contribute(Some(gradient))
}

#[test]
fn the_first_contribution_of_each_group_may_leave_a_gap() {
    let (mut stage, lineage) = restored(Async, &[]);
    let view = stage.next_view(BOTH, &[], None);
    assert_eq!(stage.tell(0, &view).clock_seen, Some(Clock(2)));
    let action = || of(lineage, 6);
    stage.push(push(0, 8, WEIGHT, action()), 0);
    let reply = stage.answer().unwrap();
    assert_eq!((reply.version, reply.lineage), (7, lineage));
    // Only the first.
    stage.push(push(0, 10, WEIGHT, action()), 0);
    assert!(matches!(stage.answer(), Err(Refusal::ClockAhead { .. })));
    stage.push(push(0, 9, WEIGHT, action()), 0);
    assert!(stage.answer().is_ok());
    // What is refused does not attach.
    stage.push(push(1, 9, WEIGHT, gradient(&[1.0; 2], 1)), 0);
    assert!(stage.answer().is_err());
    // A repeat of what the snapshot holds is one, and leaves no gap.
    stage.push(push(1, 2, WEIGHT, action()), 0);
    assert!(matches!(
        stage.answer().unwrap().answer,
        Answer::Decided(_, true)
    ));
    stage.push(push(1, u64::MAX, WEIGHT, action()), 0);
    assert!(matches!(stage.answer(), Err(Refusal::ClockAhead { .. })));
    stage.push(push(1, 4, WEIGHT, action()), 0);
    assert!(stage.answer().is_ok());
    let view = stage.next_view(BOTH, &[], None);
    let seen = stage.tell(0, &view);
    assert_eq!(seen.clock_seen, Some(Clock(9)));
    assert_eq!(
        stage.at(0).counters().dropped,
        0,
        "a gap is nothing that was left out"
    );
}

/// Of a lineage that this server has not heard of it may be the former primary; but a frame alone
/// changes nothing.
#[test]
fn a_later_lineage_is_refused_and_deposes_nobody() {
    let (mut stage, lineage) = restored(Async, &[]);
    let before = stage.states(0);
    stage.push(push(0, 8, WEIGHT, of(Generation(u64::MAX), 6)), 0);
    assert_eq!(stage.answer(), Err(Refusal::NotPrimary(SHARD)));
    assert_eq!(stage.states(0), before);
    stage.push(push(0, 8, WEIGHT, of(lineage, 6)), 0);
    assert_eq!(stage.answer().unwrap().version, 7);
}

#[test]
fn groups_that_come_later_leave_no_gap() {
    let (mut stage, lineage) = restored(Async, &[]);
    stage.order(&[(0, 0), (1, 0), (2, 9)], &[], None);
    stage.push(push(2, 10, WEIGHT, of(lineage, 6)), 0);
    // The specification has two groups.
    assert!(matches!(stage.answer(), Err(Refusal::UnknownGroup { .. })));
    let mut view = stage.next_view(BOTH, &[], None);
    view.live.insert(GroupId(1), (Incarnation(6), Clock(9)));
    stage.tell(0, &view);
    let mut late = push(1, 10, WEIGHT, of(lineage, 6));
    late.incarnation = Incarnation(6);
    stage.push(late.clone(), 0);
    assert!(matches!(stage.answer(), Err(Refusal::ClockAhead { .. })));
    late.clock = Clock(9);
    stage.push(late, 0);
    assert!(stage.answer().is_ok());
}

#[test]
fn sync_goes_on_where_the_groups_are() {
    let (mut stage, lineage) = restored(Sync, &[]);
    stage.push(push(0, 6, WEIGHT, of(lineage, 3)), 0);
    assert!(
        stage.answers().is_empty(),
        "group 1 may be anywhere from 3 on"
    );
    stage.push(push(1, 5, WEIGHT, of(lineage, 3)), 1);
    assert_eq!(stage.answer().unwrap().clock, Clock(5), "it is alone there");
    stage.push(push(1, 6, WEIGHT, of(lineage, 3)), 1);
    assert_eq!(stage.answers().len(), 2);
}

/// When the server died, each group had the answer of another block of clock 3, and goes there no
/// more: neither waits for what the other will not bring.
#[test]
fn sync_leaves_out_what_was_under_way() {
    let mean = |lineage| of_length(2, lineage, 0);
    let lost = Generation(0);
    let skip = || Action::Contribute(None);
    for (weight, other) in [
        (of(lost, 4), mean(lost)),
        (of(lost, 4), skip()),
        (skip(), skip()),
    ] {
        let (mut stage, lineage) = restored(Sync, &[1]);
        let before = stage.states(0);
        for frame in [push(0, 3, WEIGHT, weight), push(1, 3, MEAN, other)] {
            stage.push(frame, 0);
            stage.settle();
            let reply = stage.answer().unwrap();
            let Answer::Decided(decided, false) = reply.answer else {
                panic!("{reply:?}")
            };
            assert_eq!(
                (decided.clock, decided.verdict),
                (Clock(3), Verdict::Dropped)
            );
        }
        let values = |states: &[BlockState]| -> Vec<_> {
            let all = states.iter().map(|s| (s.version, s.values.clone()));
            all.collect()
        };
        assert_eq!(values(&before), values(&stage.states(0)));
        // Each is heard at the other block, and the next clock is made with both.
        for (block, action) in [(WEIGHT, of(lineage, 3)), (MEAN, mean(lineage))] {
            stage.push(push(0, 4, block, action.clone()), 0);
            stage.settle();
            assert!(stage.answers().is_empty());
            stage.push(push(1, 4, block, action), 0);
            stage.settle();
            let answers = stage.answers();
            assert_eq!(answers.len(), 2);
            for (_, reply) in answers {
                let reply = reply.unwrap();
                let Answer::Decided(decided, false) = reply.answer else {
                    panic!("{reply:?}")
                };
                assert_eq!(
                    (decided.clock, decided.verdict),
                    (Clock(4), Verdict::Applied)
                );
            }
        }
        stage.assert_equal();
    }
}

/// With overlap a second gradient was computed on what was lost: it waits for the others.
#[test]
fn sync_leaves_out_no_more_than_what_was_under_way() {
    let (mut stage, lineage) = restored(Sync, &[]);
    stage.push(push(1, 4, WEIGHT, of(Generation(0), 4)), 0);
    assert_eq!(stage.answer().unwrap().clock, Clock(4));
    // One that is behind is not too late for it.
    stage.push(push(0, 4, WEIGHT, of(lineage, 3)), 0);
    let Answer::Decided(decided, false) = stage.answer().unwrap().answer else {
        panic!("it is alone there")
    };
    assert_eq!(decided.verdict, Verdict::Applied);
    stage.push(push(1, 5, WEIGHT, of(Generation(0), 4)), 0);
    assert!(stage.answers().is_empty());
    stage.push(push(0, 5, WEIGHT, of(lineage, 4)), 0);
    assert_eq!(stage.answers().len(), 2);
    assert_eq!(stage.at(0).counters().dropped, 1);
}

#[test]
fn versions_of_another_lineage_mean_nothing() {
    let (mut stage, lineage) = restored(Async, &[]);
    let delays = stage.at(0).counters().delays.clone();
    // A version that this lineage has not reached, and one that it has.
    for (clock, pulled_version) in [(8, 100), (9, 1)] {
        stage.push(push(0, clock, WEIGHT, of(Generation(0), pulled_version)), 0);
        let reply = stage.answer().unwrap();
        let Answer::Decided(decided, false) = reply.answer else {
            panic!("{reply:?}")
        };
        assert_eq!(decided.delay, 0);
    }
    assert_eq!(
        stage.at(0).counters().delays,
        delays,
        "no delay was measured"
    );
    assert_eq!(stage.at(0).counters().applied, 2);
    // Those of this one do.
    stage.push(push(0, 10, WEIGHT, of(lineage, 9)), 0);
    assert!(matches!(stage.answer(), Err(Refusal::VersionAhead { .. })));
    stage.push(push(0, 10, WEIGHT, of(lineage, 5)), 0);
    assert!(stage.answer().is_ok());
    assert_eq!(stage.at(0).counters().delays[3], 1);
}

/// With overlap a gradient that was computed on what was lost may come after the pull, and before one
/// that is computed on what was pulled.
#[test]
fn versions_of_another_lineage_are_compensated_by_nothing_and_keep_no_others_from_it() {
    let compensated = StalenessSpec::Compensate(Compensate { lambda: 1.0 });
    let mut spec = spec(&[1, 1], Async);
    spec.policies.staleness = compensated;
    let (mut stage, lineage) = restored_as(spec, &[]);
    stage.push(push(0, 0, WEIGHT, Action::Pull), 0);
    assert_eq!(stage.answer().unwrap().version, 6);
    let bare = stage.at(0).counters().bare;
    stage.push(push(0, 8, WEIGHT, of(Generation(0), 100)), 0);
    assert_eq!(stage.answer().unwrap().version, 7);
    assert_eq!(stage.at(0).counters().bare, bare + 1);
    stage.push(push(0, 9, WEIGHT, of(lineage, 6)), 0);
    assert_eq!(stage.answer().unwrap().version, 8);
    assert_eq!(stage.at(0).counters().bare, bare + 1);
}

#[test]
fn groups_attach_to_a_copy_that_takes_over_before_they_have() {
    let (mut stage, lineage) = restored(Async, &[1]);
    stage.settle();
    stage.assert_equal();
    stage.promote(1);
    stage.order(BOTH, &[], None);
    assert_eq!(stage.at(1).lineage(), lineage);
    stage.push(push(0, 8, WEIGHT, of(lineage, 6)), 0);
    assert!(stage.answer().is_ok());
    // In a lineage that was created a promoted copy has everything.
    let mut created = Stage::ready(spec(&[1, 1], Async), &[1], BOTH);
    created.promote(1);
    created.order(BOTH, &[], None);
    created.push(push(0, 8, WEIGHT, of(Generation(0), 0)), 0);
    assert!(matches!(created.answer(), Err(Refusal::ClockAhead { .. })));
}

/// A server that has held the shard before takes the values back, but not the momentum that it measured.
#[test]
fn the_loop_begins_anew_with_restored_values() {
    let mut looped = spec(&[1, 1], Async);
    looped.optimizer = OptimizerSpec::Sgd(Sgd {
        momentum: 0.75,
        nesterov: false,
        weight_decay: 0.0,
    });
    looped.policies.momentum = MomentumSpec::ClosedLoop(ClosedLoop { gain: 0.25 });
    looped.schedule.learning_rate = 0.125;
    let mut stage = Stage::ready(looped, &[], BOTH);
    let step = |stage: &mut Stage, clock, lineage, version| {
        stage.push(push(0, clock, WEIGHT, of(lineage, version)), 0);
        stage.answer().unwrap()
    };
    let mut values = vec![1.0];
    for clock in 0..6 {
        let reply = step(&mut stage, clock, Generation(0), clock);
        values.push(reply.fresh.values()[0]);
    }
    let way = |pair: &[f32]| pair[0] - pair[1];
    let last = way(&values[values.len() - 2..]);
    assert!(last > 0.2, "{last}: a momentum was measured");
    assert!(stage.at(0).momentum().unwrap() > 0.4);

    let snapshot = stage.states(0);
    stage.promote(0);
    let lineage = stage.holders.primary.unwrap().since;
    stage.holders.lineage = lineage;
    stage.at(0).restore(snapshot, lineage);
    assert_eq!(stage.at(0).momentum(), None);
    stage.order(BOTH, &[], None);
    let reply = step(&mut stage, 6, lineage, 6);
    let next = values[values.len() - 1] - reply.fresh.values()[0];
    assert!((next - 0.125).abs() < 1e-6, "{next}: the gradient alone");
    assert_eq!(stage.at(0).momentum(), Some(0.0));
}

#[test]
fn what_is_not_restored_is_not_there() {
    let mut stage = Stage::ready(spec(&[1, 1], Async), &[], BOTH);
    let mut snapshot = stage.states(0);
    // Another optimizer, and a block that is not there.
    let values = snapshot[1].values.clone();
    snapshot[1].slots.push(values);
    snapshot[0].id.0 = 77;
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 0);
    stage.answer().unwrap();
    stage.at(0).restore(snapshot, Generation(3));
    stage.promote(0);
    let view = stage.next_view(BOTH, &[], None);
    assert!(!stage.tell(0, &view).complete);
    for action in [wave(3, 0), Action::Pull] {
        stage.push(push(0, 0, WEIGHT, action), 0);
        assert_eq!(stage.answer(), Err(Refusal::NotReady));
    }
}

#[test]
fn what_a_group_holds_of_another_lineage_is_no_base_for_a_difference() {
    let spec = RunSpec {
        down: Compression::Int8,
        ..spec(&[1, 1], Async)
    };
    let (mut stage, lineage) = restored_as(spec, &[]);
    // It holds version 7 of what was lost. The first answer, of version 7 here, does not arrive.
    let frame = || Push {
        wants: Wants::Difference { holds: Some(7) },
        ..push(0, 8, WEIGHT, of(Generation(0), 7))
    };
    stage.push(frame(), 0);
    assert_eq!(stage.answer().unwrap().version, 7);
    stage.push(push(1, 8, WEIGHT, of(lineage, 6)), 0);
    assert_eq!(stage.answer().unwrap().version, 8);
    stage.push(frame(), 0);
    assert!(matches!(stage.answer().unwrap().fresh, Fresh::Values(_)));
}
