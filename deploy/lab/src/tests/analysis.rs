//! What runs come to.

use std::collections::BTreeMap;

use tradewind_common::record::Better;

use super::{HEAD, matrix, reading};
use crate::file::{Goal, Target};
use crate::line::{CellState, Line, Run};
use crate::reading::Metric;
use crate::results::columns;
use crate::table::Values;
use crate::{Status, status};

pub(super) fn target() -> Target {
    Target {
        metric: "error".into(),
        goal: Goal::AtMost(0.5),
        every_samples: 10,
    }
}

pub(super) fn summed(lines: Vec<Line>) -> Vec<Line> {
    crate::analysis::summed(lines, Some(&target()))
}

/// A setting whose runs, of seeds 1, 2, …, reach the target after so many seconds; 0 for never.
pub(super) fn line(label: &str, synchronous: bool, seconds: &[usize]) -> Line {
    let folder = tempfile::tempdir().unwrap();
    let runs = seconds.iter().zip(1..).map(|(seconds, seed)| {
        let mut values = [0.9; 40];
        if *seconds > 0 {
            values[seconds - 1..].fill(0.4);
        }
        let reading = reading(folder.path(), &values);
        let state = CellState::Completed(Box::new(reading));
        Run::of(format!("{label}-{seed}"), seed, state, Some(&target()))
    });
    Line {
        label: label.into(),
        panel: String::new(),
        values: Vec::new(),
        synchronous,
        tuned: None,
        on_edge: Vec::new(),
        keys: BTreeMap::new(),
        runs: runs.collect(),
        sums: Default::default(),
    }
}

/// Its runs measured other values at their end.
pub(super) fn with(mut line: Line, values: &[f64], of: fn(&mut Metric) -> &mut f64) -> Line {
    for (run, value) in line.runs.iter_mut().zip(values) {
        let CellState::Completed(reading) = &mut run.state else {
            panic!("{run:?}")
        };
        *of(reading.summary.metric.as_mut().unwrap()) = *value;
    }
    line
}

pub(super) fn held_out(metric: &mut Metric) -> &mut f64 {
    &mut metric.value
}

fn validation(metric: &mut Metric) -> &mut f64 {
    &mut metric.validation.value
}

#[test]
fn the_target_is_reached_with_the_first_of_two_in_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let check = |values: &[f64], samples: Option<u64>| {
        let reading = reading(folder.path(), values);
        let found = reading.reached(target().goal).map(|v| v.samples);
        assert_eq!(found, samples, "{values:?}");
    };
    check(&[], None);
    check(&[0.9, 0.5, 0.5], Some(20));
    check(&[0.4, 0.9, 0.4, 0.3, 0.9], Some(30));
    check(&[0.9, 0.9, 0.4], None);
    check(&[0.4, f64::NAN, 0.4, f64::NAN], None);
    // One update that has passed two multiples is evaluated once.
    let mut jumped = reading(folder.path(), &[0.9, 0.5, 0.5, 0.9]);
    jumped.validations[2].samples_applied = jumped.validations[1].samples_applied;
    assert!(jumped.reached(target().goal).is_none());
    // And whoever passed a multiple by much has needed more samples.
    jumped.validations[3].measure.value = 0.4;
    jumped.validations[1].samples_applied = (20, 27);
    jumped.validations[2].samples_applied = (20, 27);
    let state = CellState::Completed(Box::new(jumped));
    let run = Run::of("a".into(), 1, state, Some(&target()));
    assert_eq!(run.reached.unwrap().samples, 27.0);
    let mut other = target();
    other.metric = "accuracy".into();
    let state = CellState::Completed(Box::new(reading(folder.path(), &[0.1, 0.1])));
    let run = Run::of("a".into(), 1, state, Some(&other));
    let CellState::NotRun(Some(why)) = &run.state else {
        panic!("{run:?}")
    };
    assert!(why.contains("\"accuracy\" is not what"), "{why}");
    assert!(run.reached.is_none());
}

#[test]
fn ratios_are_paired_by_seed_with_the_best_synchronous_setting() {
    let lines = summed(vec![
        line("sync slow", true, &[20, 30]),
        line("sync", true, &[8, 20]),
        line("async", false, &[4, 10]),
    ]);
    let best: Vec<bool> = lines
        .iter()
        .map(|line| line.sums.best_synchronous)
        .collect();
    assert_eq!(best, [false, true, false]);
    // 8 / 4 and 20 / 10: the runs differ much, their ratios not at all.
    let sooner = lines[2].sums.sooner.unwrap();
    let (low, high) = sooner.interval.unwrap();
    assert!(
        (sooner.mean - 2.0).abs() < 1e-9 && high - low < 1e-9,
        "{sooner:?}"
    );
    let slow = lines[0].sums.sooner.unwrap().mean;
    assert!((slow - (0.4_f64 * 2.0 / 3.0).sqrt()).abs() < 1e-9, "{slow}");
}

#[test]
fn the_metric_is_compared_with_the_best_synchronous_setting_by_seed() {
    let lines = summed(vec![
        with(line("sync", true, &[10, 10]), &[0.7, 0.9], held_out),
        with(line("async", false, &[5, 0]), &[0.75, 0.95], held_out),
    ]);
    assert_eq!(lines[0].sums.against, None, "that is the one");
    // The seeds differ by much, the pairs not at all; that one missed the target is another matter.
    let against = lines[1].sums.against.unwrap();
    let (low, high) = against.interval.unwrap();
    assert!(
        (against.mean - 0.05).abs() < 1e-9 && high - low < 1e-9,
        "{against:?}"
    );
}

#[test]
fn without_a_synchronous_setting_that_always_reaches_it_metrics_have_the_steadiest_beside_them() {
    let lines = summed(vec![
        line("sync, fast", true, &[10, 0, 0]),
        line("sync, steady", true, &[0, 30, 30]),
        line("async", false, &[5, 5, 5]),
    ]);
    let against = |line: &Line| line.sums.against.is_some();
    assert_eq!(
        lines.iter().map(against).collect::<Vec<_>>(),
        [true, false, true]
    );
    let baseline = |line: &Line| line.sums.best_synchronous || line.sums.sooner.is_some();
    assert!(
        !lines.iter().any(baseline),
        "times have nothing to be compared with"
    );
}

#[test]
fn of_synchronous_settings_that_missed_equally_often_the_better_one_is_the_baseline() {
    let check = |goal: Option<Goal>, told: Option<Better>, unit: &str, want: &str| {
        let of = |label, values: &[f64]| {
            let mut line = with(line(label, true, &[0, 0]), values, validation);
            for run in &mut line.runs {
                let CellState::Completed(reading) = &mut run.state else {
                    panic!("{run:?}")
                };
                let metric = reading.summary.metric.as_mut().unwrap();
                (metric.better, metric.unit) = (told, unit.to_owned());
            }
            line
        };
        let mut less = of("less", &[0.5, 0.6]);
        // Fewer runs make no baseline.
        let failed = CellState::Failed("it diverged".into());
        less.runs.push(Run::of("c".into(), 3, failed, None));
        let lines = vec![of("middle", &[0.7, 0.7]), less, of("more", &[0.9, 0.8])];
        let target = goal.map(|goal| Target { goal, ..target() });
        let lines = crate::analysis::summed(lines, target.as_ref());
        let baseline = lines.iter().filter(|line| line.sums.baseline);
        let labels: Vec<_> = baseline.map(|line| line.label.as_str()).collect();
        assert_eq!(labels, [want], "{goal:?} {told:?} {unit}");
    };
    check(Some(Goal::AtMost(0.1)), None, "K", "less");
    check(Some(Goal::AtLeast(0.99)), None, "K", "more");
    check(None, None, "K", "less");
    check(None, Some(Better::Higher), "K", "more");
    // What is known is known of another measure.
    check(None, Some(Better::Higher), "%", "less");
}

#[test]
fn several_runs_of_one_seed_count_as_one() {
    let mut twice = line("async", false, &[2, 10, 8]);
    twice.runs[2].seed = 1;
    let lines = summed(vec![line("sync", true, &[8, 20]), twice]);
    // 8 / √(2 · 8) and 20 / 10.
    let sooner = lines[1].sums.sooner.unwrap();
    assert!((sooner.mean - 2.0).abs() < 1e-9, "{sooner:?}");
    assert_eq!(sooner.n, 2);
}

#[test]
fn a_panel_is_shown_once_wherever_its_settings_stand() {
    let folder = tempfile::tempdir().unwrap();
    let (mut plan, _) = matrix(folder.path(), HEAD, false).unwrap();
    plan.target = Some(target());
    let lines = ["quiet", "slow", "quiet", "slow"].iter().zip(1..);
    let lines = lines.map(|(panel, number)| Line {
        panel: (*panel).into(),
        ..line(&format!("setting {number}"), false, &[10, 0])
    });
    let lines = summed(lines.collect());
    let table = crate::terminal::tables(&plan, &lines);
    let order = [
        "quiet",
        "setting 1",
        "setting 3",
        "slow",
        "setting 2",
        "setting 4",
    ];
    let places: Vec<usize> = order.iter().map(|text| table.find(text).unwrap()).collect();
    assert!(places.is_sorted(), "{table}");
    assert_eq!(table.matches("quiet").count(), 1, "{table}");
    assert_eq!(table.matches("1 of 2").count(), 4, "{table}");
}

#[test]
fn a_miss_is_told_and_never_averaged_away() {
    let mut lines = vec![
        line("sync", true, &[10, 10]),
        line("async", false, &[2, 0, 4]),
    ];
    let failed = CellState::Failed("it diverged".into());
    lines[0]
        .runs
        .push(Run::of("sync-3".into(), 3, failed, Some(&target())));
    let lines = summed(lines);
    for line in &lines {
        assert_eq!(
            (line.sums.reached, line.sums.counted),
            (2, 3),
            "{}",
            line.label
        );
        assert_eq!(
            (line.sums.seconds, line.sums.sooner),
            (None, None),
            "{}",
            line.label
        );
    }
    assert!(lines.iter().all(|line| !line.sums.best_synchronous));
}

#[test]
fn what_is_void_or_was_not_run_leaves_the_experiment_incomplete() {
    let check = |state: CellState, want: Status| {
        let mut lines = vec![line("sync", true, &[10])];
        lines[0].runs.push(Run::of("cell".into(), 2, state, None));
        assert_eq!(status(false, &lines), want);
        assert_eq!(status(true, &lines), Status::Interrupted);
    };
    let folder = tempfile::tempdir().unwrap();
    let reading = || Box::new(reading(folder.path(), &[0.4, 0.4]));
    check(CellState::Completed(reading()), Status::Complete);
    check(CellState::Failed("it diverged".into()), Status::Complete);
    check(
        CellState::Void("it was slow".into(), reading()),
        Status::Incomplete,
    );
    check(
        CellState::NotRun(Some("no memory".into())),
        Status::Incomplete,
    );
    check(CellState::NotRun(None), Status::Incomplete);
}

#[test]
fn results_have_a_row_for_each_cell() {
    let mut lines = vec![line("sync", true, &[10, 20]), line("async", false, &[5, 0])];
    lines[1].runs.push(Run::of(
        "async-3".into(),
        3,
        CellState::NotRun(None),
        Some(&target()),
    ));
    let columns = columns("e", &summed(lines));
    let of = |name: &str| &columns.iter().find(|c| c.name == name).unwrap().values;
    assert_eq!(
        of("seconds_to_target"),
        &Values::Floats(vec![Some(10.0), Some(20.0), Some(5.0), None, None])
    );
    assert_eq!(
        of("reached"),
        &Values::Flags(vec![Some(true), Some(true), Some(true), Some(false), None])
    );
    let words = [
        "completed",
        "completed",
        "completed",
        "completed",
        "not run",
    ];
    let words = words.map(|word| Some(word.to_owned()));
    assert_eq!(of("status"), &Values::Texts(words.to_vec()));
    // One of two async runs missed, but the pair that there is has a ratio of its own.
    assert_eq!(
        of("times_sooner"),
        &Values::Floats(vec![Some(1.0), Some(1.0), Some(2.0), None, None])
    );
    assert_eq!(
        of("bytes_exchanged"),
        &Values::Ints(vec![Some(800), Some(800), Some(800), Some(800), None])
    );
    let exchanging = of("exchanging_seconds").clone();
    let Values::Floats(exchanging) = exchanging else {
        panic!("{exchanging:?}")
    };
    assert!(
        (exchanging[0].unwrap() - 0.1).abs() < 1e-9,
        "without what it waited"
    );
}
