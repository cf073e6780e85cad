//! What runs come to.

use std::collections::BTreeMap;

use super::{HEAD, matrix, reading};
use crate::experiment::analysis::{Line, Run, State, summed};
use crate::experiment::file::{Goal, Target};
use crate::experiment::results::columns;
use crate::experiment::table::Values;
use crate::experiment::{Status, status};

fn target() -> Target {
    Target {
        metric: "error".into(),
        goal: Goal::AtMost(0.5),
        every_samples: 10,
    }
}

/// A setting whose runs, of seeds 1, 2, …, reach the target after so many seconds; 0 for never.
fn line(label: &str, synchronous: bool, seconds: &[usize]) -> Line {
    let folder = tempfile::tempdir().unwrap();
    let runs = seconds.iter().zip(1..).map(|(seconds, seed)| {
        let mut values = [0.9; 40];
        if *seconds > 0 {
            values[seconds - 1..].fill(0.4);
        }
        let reading = reading(folder.path(), &values);
        let state = State::Completed(Box::new(reading));
        Run::of(format!("{label}-{seed}"), seed, state, Some(&target()))
    });
    Line {
        label: label.into(),
        panel: String::new(),
        values: Vec::new(),
        synchronous,
        tuned: None,
        keys: BTreeMap::new(),
        runs: runs.collect(),
        sums: Default::default(),
    }
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
    let state = State::Completed(Box::new(jumped));
    let run = Run::of("a".into(), 1, state, Some(&target()));
    assert_eq!(run.reached.unwrap().samples, 27.0);
    let mut other = target();
    other.metric = "accuracy".into();
    let state = State::Completed(Box::new(reading(folder.path(), &[0.1, 0.1])));
    let run = Run::of("a".into(), 1, state, Some(&other));
    let State::NotRun(Some(why)) = &run.state else {
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
    let with = |mut line: Line, values: [f64; 2]| {
        for (run, value) in line.runs.iter_mut().zip(values) {
            let State::Completed(reading) = &mut run.state else {
                panic!("{run:?}")
            };
            reading.summary.metric.as_mut().unwrap().value = value;
        }
        line
    };
    let lines = summed(vec![
        with(line("sync", true, &[10, 10]), [0.7, 0.9]),
        with(line("async", false, &[5, 0]), [0.75, 0.95]),
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
    let table = crate::experiment::terminal::tables(&plan, &lines);
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
    let failed = State::Failed("it diverged".into());
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
    let check = |state: State, want: Status| {
        let mut lines = vec![line("sync", true, &[10])];
        lines[0].runs.push(Run::of("cell".into(), 2, state, None));
        assert_eq!(status(false, &lines), want);
        assert_eq!(status(true, &lines), Status::Interrupted);
    };
    let folder = tempfile::tempdir().unwrap();
    let reading = || Box::new(reading(folder.path(), &[0.4, 0.4]));
    check(State::Completed(reading()), Status::Complete);
    check(State::Failed("it diverged".into()), Status::Complete);
    check(
        State::Void("it was slow".into(), reading()),
        Status::Incomplete,
    );
    check(State::NotRun(Some("no memory".into())), Status::Incomplete);
    check(State::NotRun(None), Status::Incomplete);
}

#[test]
fn results_have_a_row_for_each_cell() {
    let mut lines = vec![line("sync", true, &[10, 20]), line("async", false, &[5, 0])];
    lines[1].runs.push(Run::of(
        "async-3".into(),
        3,
        State::NotRun(None),
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

#[test]
fn a_setting_without_runs_has_a_place_in_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, _) = matrix(folder.path(), HEAD, false).unwrap();
    let mut lines = vec![
        line("sync <1>", true, &[10, 20]),
        line("async", false, &[]),
        line("bounded", false, &[0]),
    ];
    lines[1].keys.insert("train.overlap".into(), "1".into());
    let lines = summed(lines);
    let page = crate::report::html::page(&crate::report::html::Page {
        title: "a & b",
        about: &plan.about,
        target: Some(&target()),
        lines: &lines,
        trials: &[],
        command: "tradewind experiment e.toml",
        files: &[],
    });
    for wanted in [
        "<h1>a &amp; b</h1>",
        "<b>sync &lt;1&gt;</b> reached error ≤ 0.5 K first, after <b>15.0 s</b>",
        "validation at the end",
        "<summary>What the settings differ in</summary>",
        "train.overlap = 1",
        "<td>bounded-1</td><td>bounded </td><td>1</td><td>completed</td><td>never</td><td>never</td>",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    for outside in ["src=", "href=", "@import", "url(http"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("NaN"), "a number is missing");
}

#[test]
fn the_picture_has_each_setting_once_and_each_panel() {
    let of = |panel: &str, line: Line| Line {
        panel: panel.to_owned(),
        ..line
    };
    let lines = summed(vec![
        of("quiet", line("sync <1>", true, &[10, 20])),
        of("quiet", line("async", false, &[12, 14])),
        of("slow", line("async", false, &[30, 31])),
    ]);
    let page = |lines: &[Line]| {
        crate::report::html::figure(&crate::report::html::Page {
            title: "t",
            about: "",
            target: Some(&target()),
            lines,
            trials: &[],
            command: "",
            files: &[],
        })
    };
    let picture = page(&lines).unwrap();
    let count = |text: &str| picture.matches(text).count();
    assert_eq!(count(">sync &lt;1&gt;</text>"), 1);
    assert_eq!(count(">async</text>"), 1);
    assert_eq!((count(">quiet</text>"), count(">slow</text>")), (1, 1));
    assert_eq!(
        count("class=\"curve dashed s0\""),
        2,
        "in the legend, and in its panel"
    );
    assert_eq!(count("class=\"curve s1\""), 3);
    assert_eq!(count("<svg "), 3);
    assert_eq!(count("xmlns="), 1);
    assert!(!picture.contains("NaN"), "{picture}");
    let nothing = summed(vec![line("async", false, &[])]);
    assert_eq!(page(&nothing), None);
}
