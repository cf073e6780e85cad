//! A copy that is added is sent every block while training goes on.

use tradewind_common::optimizer::Sgd;
use tradewind_common::spec::ConsistencySpec::Async;
use tradewind_common::spec::{OptimizerSpec, RunSpec};
use tradewind_common::{Generation, ServerId, TensorKind, TensorSpec};

use super::holders::{Stage, wave};
use super::shard::{WEIGHT, push};
use super::spec;
use crate::log::LogEntry;
use crate::replica::FILL_WINDOW;
use crate::shard::Action;

const LIVE: &[(u32, u64)] = &[(0, 0)];

/// Many more blocks than are on their way at once.
fn wide() -> RunSpec {
    let mut spec = RunSpec {
        optimizer: OptimizerSpec::Sgd(Sgd {
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.0,
        }),
        ..spec(&[1, 1], Async)
    };
    spec.tensors.push(TensorSpec {
        name: "wide".into(),
        shape: vec![40 * 4],
        kind: TensorKind::Parameter,
    });
    spec
}

fn on_their_way(stage: &mut Stage) -> (usize, usize) {
    let of = |stage: &mut Stage, kind: fn(&LogEntry) -> bool| {
        stage
            .wire(1)
            .iter()
            .filter(|record| kind(&record.entry))
            .count()
    };
    let states = of(stage, |entry| matches!(entry, LogEntry::State(_)));
    (
        states,
        of(stage, |entry| matches!(entry, LogEntry::Update(_))),
    )
}

#[test]
fn a_copy_is_filled_while_updates_go_on() {
    for pace in 1..6 {
        let mut stage = Stage::ready(wide(), &[], LIVE);
        let lengths = stage.lengths();
        let contribute = |stage: &mut Stage, turn: u64| {
            // The blocks from the last to the first: most have not been sent yet.
            let (clock, index) = (turn / lengths.len() as u64, turn as usize % lengths.len());
            let (block, length) = lengths[lengths.len() - 1 - index];
            stage.push(push(0, clock, block, wave(length, turn)), turn);
        };
        // Every block has something that the optimizer keeps.
        let first = lengths.len() as u64;
        for turn in 0..first {
            contribute(&mut stage, turn);
        }
        stage.add(1);
        stage.order(LIVE, &[], None);
        assert_eq!(on_their_way(&mut stage), (FILL_WINDOW, 0));
        let (mut turn, mut updates) = (first, 0);
        while !stage.reports.iter().any(|(by, _)| *by == 0) {
            assert!(turn < 1000 * first, "it ends");
            for _ in 0..pace {
                contribute(&mut stage, turn);
                turn += 1;
            }
            // So that it ends, the copy is faster.
            for _ in 0..pace + 1 {
                stage.deliver_one(1);
                let (states, now) = on_their_way(&mut stage);
                assert!(states <= FILL_WINDOW);
                updates = updates.max(now);
            }
        }
        assert!(
            updates > 0 && turn > first + 8,
            "updates of sent blocks go as they are"
        );
        stage.settle();
        let said = stage
            .reports
            .iter()
            .map(|(by, seen)| (*by, seen.complete, seen.full.clone()));
        let full = vec![(ServerId(1), Generation(3))];
        let said: Vec<_> = said.collect();
        assert_eq!(said, [(1, true, vec![]), (0, true, full)], "each once");
        stage.assert_equal();
        assert_eq!(stage.answers().len() as u64, turn);
        // It is said again in every acknowledgement.
        let view = stage.next_view(LIVE, &[], None);
        assert_eq!(stage.tell(0, &view).full.len(), 1);
    }
}

#[test]
fn an_update_of_a_block_that_was_not_sent_is_a_probe() {
    let mut stage = Stage::ready(wide(), &[], LIVE);
    stage.add(1);
    stage.order(LIVE, &[], None);
    let (block, length) = *stage.lengths().last().unwrap();
    stage.push(push(0, 0, block, wave(length, 0)), 0);
    assert_eq!(stage.wire(1).back().unwrap().entry, LogEntry::Probe);
    assert!(
        stage.answers().is_empty(),
        "a copy that is being filled is waited for"
    );
    while stage.answers().is_empty() {
        assert!(stage.deliver_one(1));
    }
    assert!(stage.reports.is_empty(), "long before it is full");
    stage.settle();
    stage.assert_equal();
}

#[test]
fn a_copy_that_is_added_again_is_filled_again() {
    let mut stage = Stage::ready(spec(&[1, 1], Async), &[1], LIVE);
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 0);
    let old = stage.wire(1).clone();
    // It has lost everything.
    stage.lose(1);
    stage.add(1);
    stage.order(LIVE, &[], None);
    assert!(
        stage.answer().is_ok(),
        "what it was then is waited for no more"
    );
    let since = stage.holders.copies[0].since;
    assert!(stage.wire(1).iter().all(|record| record.fill == since));
    for record in old {
        assert!(stage.at(1).handle_record(record).is_err());
    }
    let view = stage.next_view(LIVE, &[], None);
    assert!(stage.tell(0, &view).full.is_empty());
    stage.settle();
    let full = stage.reports.iter().filter(|(by, _)| *by == 0);
    assert_eq!(
        full.map(|(_, seen)| &seen.full[..]).collect::<Vec<_>>(),
        [[(ServerId(1), since)]]
    );
    stage.assert_equal();
}

#[test]
fn a_copy_that_was_there_from_the_beginning_is_full_with_the_last_block() {
    let mut stage = Stage::empty(spec(&[1, 1], Async), &[1]);
    for (index, (block, length)) in stage.lengths().into_iter().enumerate() {
        stage.push(push(0, 0, block, Action::Create(vec![0.5; length])), 0);
        assert_eq!(
            stage.reports.len(),
            index,
            "the primary is complete with the last one"
        );
    }
    assert!(stage.reports.remove(0).1.full.is_empty());
    stage.deliver_one(1);
    assert!(stage.reports.is_empty());
    stage.deliver(1);
    // First the copy: it has all its blocks.
    let said: Vec<_> = stage
        .reports
        .iter()
        .map(|(by, s)| (*by, s.complete, s.full.len()))
        .collect();
    assert_eq!(said, [(1, true, 0), (0, true, 1)]);
}

#[test]
fn a_new_log_fills_what_an_old_one_had_filled() {
    let mut stage = Stage::ready(wide(), &[1, 2], LIVE);
    stage.promote(1);
    let view = stage.next_view(LIVE, &[], None);
    assert!(stage.tell(1, &view).full.is_empty());
    let seen = stage.tell(2, &view);
    assert!(!seen.complete, "what it had is of the old log");
    stage.push(push(0, 0, WEIGHT, wave(3, 0)), 0);
    stage.settle();
    stage.assert_equal();
    assert_eq!(stage.reports.last().unwrap().1.full.len(), 1);
}
