//! A primary and its copies: equal bits, and answers that wait for them.

use tradewind_common::Generation;
use tradewind_common::optimizer::{Adam, AdamW, Sgd};
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_common::spec::{OptimizerSpec, RunSpec};
use tradewind_common::{Incarnation, ServerId};

use super::holders::{Stage, wave};
use super::shard::{WEIGHT, gradient, push};
use super::spec;
use crate::log::{Confirm, LogEntry};
use crate::refusal::Refusal;
use crate::shard::{Action, Answer, Push};

fn plain(consistency: ConsistencySpec) -> RunSpec {
    spec(&[1, 1, 1], consistency)
}

fn pull() -> Push {
    Push {
        incarnation: Incarnation(0),
        ..push(0, 0, WEIGHT, Action::Pull)
    }
}

#[test]
fn copies_get_the_same_bits() {
    let sgd = |momentum, nesterov| {
        OptimizerSpec::Sgd(Sgd {
            momentum,
            nesterov,
            weight_decay: 0.01,
        })
    };
    let adam = OptimizerSpec::Adam(Adam {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.01,
    });
    let adamw = OptimizerSpec::AdamW(AdamW {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.01,
    });
    let sgd = [sgd(0.0, false), sgd(0.9, false), sgd(0.9, true)];
    for optimizer in sgd.into_iter().chain([adam, adamw]) {
        for consistency in [Sync, Bounded { staleness_bound: 1 }, Async] {
            let spec = RunSpec {
                optimizer,
                ..plain(consistency)
            };
            let mut stage = Stage::ready(spec, &[1, 2], &[(0, 0), (1, 0), (2, 0)]);
            let lengths = stage.lengths();
            for turn in 0..18 {
                let (group, clock) = ((turn % 3) as u32, turn / 3);
                for (block, length) in &lengths {
                    let action = match turn % 5 {
                        3 => Action::Contribute(None),
                        _ => wave(*length, turn),
                    };
                    stage.push(push(group, clock, *block, action), turn);
                    if turn % 4 == 0 {
                        stage.deliver(1);
                    }
                }
            }
            stage.settle();
            let answered = stage.answers().into_iter().all(|(_, reply)| reply.is_ok());
            assert!(answered, "{optimizer:?} {consistency:?}");
            stage.assert_equal();
            for (state, (block, _)) in stage.states(0).iter().zip(&lengths) {
                assert!(state.version >= 6 && state.values[0] != 1.0, "{block}");
                assert_eq!(state.decided.len(), 3);
            }
        }
    }
}

/// Something that is answered, and how the shard is brought to where it can be asked.
type Ask = (&'static str, fn(&mut Stage), fn(&mut Stage));

const ASKS: [Ask; 7] = [
    (
        "gradient",
        |_| {},
        |s| s.push(push(0, 0, WEIGHT, wave(3, 0)), 9),
    ),
    (
        "skip",
        |_| {},
        |s| s.push(push(0, 0, WEIGHT, Action::Contribute(None)), 9),
    ),
    (
        "repeat",
        |s| s.push(push(0, 0, WEIGHT, wave(3, 0)), 0),
        |s| s.push(push(0, 0, WEIGHT, wave(3, 0)), 9),
    ),
    ("pull", |_| {}, |s| s.push(pull(), 9)),
    (
        "second creation",
        |s| s.order(&[(0, 0)], &[1], Some(1)),
        |s| s.push(push(1, 0, WEIGHT, Action::Create(vec![1.0; 3])), 9),
    ),
    ("capture", |_| {}, |s| s.capture(0, 1, None)),
    ("capture at a clock", |_| {}, |s| s.capture(0, 1, Some(0))),
];

fn said(stage: &mut Stage) -> usize {
    let answers = stage.answers();
    assert!(
        answers.iter().all(|(to, reply)| *to == 9 && reply.is_ok()),
        "{answers:?}"
    );
    answers.len() + stage.captured().len()
}

#[test]
fn answers_wait_until_every_copy_has_confirmed() {
    for (name, prepare, ask) in ASKS {
        for last in [1, 2] {
            let mut stage = Stage::ready(plain(Async), &[1, 2], &[(0, 0), (1, 0)]);
            prepare(&mut stage);
            stage.settle();
            stage.answers();
            ask(&mut stage);
            assert_eq!(said(&mut stage), 0, "{name}");
            stage.deliver(3 - last);
            assert_eq!(said(&mut stage), 0, "{name}: copy {last} has not confirmed");
            assert!(stage.at(0).unconfirmed() > 0, "{name}");
            stage.deliver(last);
            assert_eq!(said(&mut stage), 1, "{name}");
            assert_eq!(stage.at(0).unconfirmed(), 0, "{name}");
        }
    }
}

#[test]
fn creations_wait_for_copies_too() {
    let mut stage = Stage::empty(plain(Async), &[1, 2]);
    stage.push(push(0, 0, WEIGHT, Action::Create(vec![2.0; 3])), 9);
    stage.deliver(2);
    assert_eq!(said(&mut stage), 0);
    stage.deliver(1);
    assert_eq!(stage.answer().unwrap().answer, Answer::Created);
    stage.assert_equal();
    assert!(stage.reports.is_empty(), "one block is not there yet");
}

#[test]
fn nothing_waits_without_copies() {
    for (name, prepare, ask) in ASKS {
        let mut stage = Stage::ready(plain(Async), &[], &[(0, 0), (1, 0)]);
        prepare(&mut stage);
        stage.answers();
        ask(&mut stage);
        assert_eq!(said(&mut stage), 1, "{name}");
        assert_eq!(stage.at(0).unconfirmed(), 0, "{name}");
    }
}

#[test]
fn a_refusal_does_not_wait() {
    let mut stage = Stage::ready(plain(Async), &[1], &[(0, 0)]);
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 0);
    stage.push(push(0, 9, WEIGHT, wave(3, 0)), 1);
    let refused = stage.answers();
    assert!(
        matches!(refused[..], [(1, Err(Refusal::ClockAhead { .. }))]),
        "{refused:?}"
    );
    assert!(
        stage.wire(1).len() == 1,
        "and the copy is told nothing of it"
    );
}

#[test]
fn an_answer_carries_what_its_decision_made() {
    let mut stage = Stage::ready(plain(Async), &[1], &[(0, 0), (1, 0)]);
    for group in 0..2 {
        let step = gradient(&[1.0; 3], 1);
        stage.push(push(group, 0, WEIGHT, step), u64::from(group));
    }
    // One confirmation, one answer.
    for (version, value) in [(1, 0.0), (2, -1.0)] {
        stage.deliver_one(1);
        let reply = stage.answer().unwrap();
        assert_eq!(
            (reply.version, reply.fresh.values()),
            (version, &[value; 3][..])
        );
    }
}

#[test]
fn a_copy_that_is_removed_is_not_waited_for() {
    let mut stage = Stage::ready(plain(Async), &[1, 2], &[(0, 0)]);
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 9);
    stage.capture(0, 1, None);
    stage.deliver(1);
    assert_eq!(said(&mut stage), 0);
    stage.remove(2);
    stage.order(&[(0, 0)], &[], None);
    assert_eq!(said(&mut stage), 2);
    assert_eq!(stage.at(0).unconfirmed(), 0);
}

#[test]
fn a_new_link_begins_with_what_is_not_confirmed() {
    let mut stage = Stage::ready(plain(Async), &[1], &[(0, 0)]);
    for clock in 0..4 {
        stage.push(push(0, clock, WEIGHT, wave(3, clock)), clock);
    }
    // The first is confirmed; the second arrives, its confirmation is lost; the others are lost.
    stage.deliver_one(1);
    let second = stage.wire(1).pop_front().unwrap();
    stage.at(1).handle_record(second.clone()).unwrap();
    let before = stage.at(1).digest();
    let fourth = stage.wire(1).pop_back().unwrap();
    assert_eq!(
        stage.at(1).handle_record(fourth.clone()),
        Err(Refusal::Gap {
            reached: second.seq,
            previous: fourth.previous,
        })
    );
    stage.wire(1).clear();
    // What has not left yet leaves once.
    let push_4 = push(0, 4, WEIGHT, wave(3, 4));
    stage.at(0).handle_push(push_4, crate::ReplyTo(4), 0);
    stage.at(0).handle_link(ServerId(1));
    stage.collect(0);
    let again: Vec<_> = stage.wire(1).iter().map(|record| record.seq).collect();
    assert_eq!(
        again,
        [second.seq, second.seq + 1, fourth.seq, fourth.seq + 1]
    );
    let confirm = stage.at(1).handle_record(second.clone()).unwrap();
    assert_eq!(confirm.seq, second.seq, "a duplicate is confirmed again");
    assert_eq!(stage.at(1).digest(), before, "and not applied again");
    stage.deliver(1);
    let answered: Vec<_> = stage.answers().into_iter().map(|(to, _)| to).collect();
    assert_eq!(answered, [0, 1, 2, 3, 4]);
    stage.assert_equal();
}

#[test]
fn a_confirmation_of_something_else_confirms_nothing() {
    let mut stage = Stage::ready(plain(Async), &[1], &[(0, 0)]);
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 9);
    let record = stage.wire(1)[0].clone();
    let good = Confirm {
        copy: ServerId(1),
        log: record.log,
        fill: record.fill,
        seq: record.seq,
    };
    let wrong = [
        Confirm {
            copy: ServerId(2),
            ..good
        },
        Confirm {
            log: Generation(99),
            ..good
        },
        Confirm {
            fill: Generation(99),
            ..good
        },
        Confirm {
            seq: record.seq - 1,
            ..good
        },
        Confirm {
            seq: record.seq + 1,
            ..good
        },
    ];
    for confirm in wrong {
        stage.at(0).handle_confirm(confirm);
        stage.collect(0);
        assert_eq!(said(&mut stage), 0, "{confirm:?}");
    }
    stage.at(0).handle_confirm(good);
    stage.collect(0);
    assert_eq!(said(&mut stage), 1);
}

#[test]
fn a_record_that_cannot_be_applied_changes_nothing() {
    let mut stage = Stage::ready(plain(Async), &[1], &[(0, 0)]);
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 9);
    let record = stage.wire(1).pop_front().unwrap();
    let before = stage.states(1);
    let LogEntry::Update(good) = record.entry.clone() else {
        panic!("{record:?}")
    };
    let mut update = good.clone();
    update.applied.as_mut().unwrap().gradient = std::sync::Arc::new(vec![1.0; 2]);
    let mut elsewhere = good;
    elsewhere.block = tradewind_common::BlockId(9);
    let mut state = before[1].clone();
    state.slots.push(state.values.clone());
    for entry in [
        LogEntry::Update(update),
        LogEntry::Update(elsewhere),
        LogEntry::State(state),
    ] {
        let bad = crate::log::Record {
            entry,
            ..record.clone()
        };
        assert!(stage.at(1).handle_record(bad.clone()).is_err(), "{bad:?}");
        assert_eq!(stage.states(1), before, "{bad:?}");
    }
    stage.at(1).handle_record(record).unwrap();
    stage.assert_equal();
}

#[test]
fn too_many_answers_do_not_wait() {
    use crate::pending::PENDING_MAX;
    let mut stage = Stage::ready(plain(Async), &[1], &[(0, 0)]);
    for _ in 0..PENDING_MAX {
        stage.push(pull(), 9);
    }
    stage.push(pull(), 1);
    assert_eq!(stage.answers(), [(1, Err(Refusal::Busy))]);
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 9);
    stage.deliver(1);
    assert_eq!(said(&mut stage), PENDING_MAX + 1);
}
