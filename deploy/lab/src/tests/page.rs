//! What the page of an experiment says.

use tradewind_common::record::Better;

use super::analysis::{held_out, line, summed, target, with};
use super::{HEAD, matrix, reading_of};
use crate::line::{CellState, Line, Run};
use crate::machine::Host;
use crate::origin::{Elsewhere, Origin};
use crate::page::{Page, figure, page};
use crate::reading::Reading;

pub(super) fn page_of(lines: &[Line], origin: &Origin) -> String {
    page(&Page {
        title: "a & b",
        about: "",
        target: Some(&target()),
        lines,
        trials: &[],
        origin,
        command: "tradewind experiment e.toml",
        files: &[],
    })
}

fn checked(lines: Vec<Line>, wanted: &[&str], unwanted: &[&str]) {
    let page = page_of(&summed(lines), &Origin::default());
    let body = &page[page.find("<body>").unwrap()..];
    let head = &body[..body.find("<table").unwrap()];
    for text in wanted {
        assert!(body.contains(text), "{text} is not there: {head}");
    }
    for text in unwanted {
        assert!(!body.contains(text), "{text} is there: {head}");
    }
}

/// With one more run that came to nothing that counts.
fn and(mut line: Line, state: CellState) -> Line {
    let seed = line.runs.len() as u64 + 1;
    let id = format!("{}-{seed}", line.label);
    line.runs.push(Run::of(id, seed, state, Some(&target())));
    line
}

pub(super) fn each_reading(line: &mut Line, mut of: impl FnMut(&mut Reading)) {
    for run in &mut line.runs {
        if let CellState::Completed(reading) = &mut run.state {
            of(reading);
        }
    }
}

#[test]
fn what_is_not_finished_has_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let sync = || line("sync", true, &[10, 10]);
    checked(
        vec![
            sync(),
            and(line("async", false, &[5, 5]), CellState::NotRun(None)),
        ],
        &[
            "<b>4</b> of <b>5</b> runs have ended, of <b>2</b> settings",
            "Not finished: <b>4 of 5</b> runs have ended.",
            "<td>1<small>the best so far</small></td>",
            "<small>n = 2 of 3</small>",
        ],
        &[" reached ", "void"],
    );
    let late = Box::new(reading_of(folder.path(), "", &[0.4, 0.4]));
    checked(
        vec![and(sync(), CellState::Void("it was slow".into(), late))],
        &[
            "<b>3</b> runs of <b>1</b> settings · <b>1</b> of them are void",
            "Not finished: <b>3 of 3</b> runs have ended (void: 1).",
        ],
        &[" reached "],
    );
}

#[test]
fn a_run_that_diverged_is_told_beside_what_it_is_missing_from() {
    let failed = || CellState::Failed("it diverged".into());
    checked(
        vec![
            line("sync", true, &[10, 10, 10]),
            and(line("async", false, &[5, 5]), failed()),
        ],
        &[
            "<b>sync</b> reached error ≤ 0.5 K after <b>10.0 s</b>; no other setting did in all",
            "<small>n = 2 of 3</small>",
            "; 1 run diverged and is not drawn</span>",
        ],
        &["Not finished"],
    );
}

#[test]
fn a_verdict_is_as_sure_as_its_interval() {
    let sync = |seconds: &[usize]| line("sync", true, seconds);
    let rival = |seconds: &[usize]| line("rival", false, seconds);
    let none = "No setting was distinguishably sooner than the best synchronous one, <b>sync</b>";
    checked(
        vec![sync(&[8, 20]), rival(&[4, 10])],
        &[
            "<b>rival</b> reached error ≤ 0.5 K <b>2.00 times sooner</b> (95 % interval 2.00 to 2.00) than the best synchronous setting, <b>sync</b>: after <b>7.0 s</b>, not <b>14.0 s</b>.",
        ],
        &["distinguishably"],
    );
    checked(
        vec![sync(&[10, 20]), rival(&[5, 25])],
        &[
            none,
            "the nearest, <b>rival</b>, was <b>1.26 times sooner</b> (95 % interval 0.",
        ],
        &[],
    );
    checked(
        vec![sync(&[8, 10]), rival(&[16, 20])],
        &[
            none,
            "took <b>2.00 times as long</b> (95 % interval 2.00 to 2.00).",
        ],
        &[],
    );
    checked(
        vec![sync(&[8]), rival(&[4])],
        &[
            "<b>2.00 times sooner</b> than",
            "; one seed has no interval",
        ],
        &["95 %"],
    );
    let mut others = rival(&[4]);
    others.runs[0].seed = 9;
    checked(
        vec![sync(&[8, 8]), others],
        &["after <b>8.0 s</b>; those that did as well have no seed in common with it."],
        &["no other"],
    );
    // The mean of the seconds would name the other.
    let shorter = line("shorter", false, &[9, 20]);
    let rivals = vec![sync(&[10, 36]), shorter, rival(&[4, 30])];
    checked(rivals, &[none, "the nearest, <b>rival</b>"], &[]);
}

#[test]
fn what_haste_costs_is_part_of_the_verdict() {
    let check = |better, accuracy: &[f64], want: &str| {
        let mut lines = vec![
            with(line("sync", true, &[8, 20]), &[98.0, 97.0], held_out),
            with(line("async", false, &[4, 10]), accuracy, held_out),
        ];
        for line in &mut lines {
            each_reading(line, |reading| {
                let metric = reading.summary.metric.as_mut().unwrap();
                metric.unit = "%".into();
                metric.better = better;
            });
        }
        checked(lines, &[want], &[]);
    };
    let lower = "its held-out error is <b>0.25 points lower</b> (95 % interval 0.25 to 0.25).";
    check(
        Some(Better::Higher),
        &[97.75, 96.75],
        &format!(", but {lower}"),
    );
    check(
        Some(Better::Lower),
        &[97.75, 96.75],
        &format!(", and {lower}"),
    );
    check(None, &[97.75, 96.75], &format!("; {lower}"));
    check(None, &[98.5, 96.0], "not <b>14.0 s</b>.</p>");
}

#[test]
fn the_page_tells_how_its_runs_came_about() {
    let mut lines = vec![line("sync", true, &[10, 20]), line("async", false, &[5])];
    lines[0].tuned = Some(vec![("optimizer.learning_rate".into(), 0.1)]);
    lines[0].on_edge = vec!["optimizer.learning_rate".into()];
    each_reading(&mut lines[1], |reading| {
        reading.summary.version = Some("1".into());
    });
    let host = Host {
        cores: 2,
        processor: "A <processor>".into(),
        system: "a system".into(),
    };
    let elsewhere = Elsewhere {
        table: "t.csv".into(),
        count: 3,
        all: 4,
    };
    let lines = summed(lines);
    let told = |count| {
        let origin = Origin {
            hosts: [(host.clone(), count)].into(),
            trials: Some(elsewhere.clone()),
        };
        page_of(&lines, &origin)
    };
    let page = told(3);
    for text in [
        "A &lt;processor&gt;, 2 cores, a system",
        ": each run did them with 2 processes on 2 cores of one machine; what",
        "run on 1970-01-01 (UTC)",
        "up to 3 trained at the same time",
        "3 of 4 trials were not run here: t.csv has them",
        "<b>made by different versions of Tradewind: 0, 1</b>",
        "tuned to learning rate 0.1 (the grid&#39;s edge)",
        "<small>the baseline</small>",
    ] {
        assert!(page.contains(&text.replace("&#39;", "'")), "{text}");
    }
    let page = told(2);
    assert!(
        page.contains("2 runs: A &lt;processor&gt;"),
        "others ran elsewhere"
    );
    assert!(!page.contains("of one machine"));
}

#[test]
fn many_settings_have_marks_beside_their_colours() {
    let of = |count: usize| {
        let lines = (0..count).map(|i| line(&format!("setting {i}"), false, &[10 + i]));
        let page = page_of(&summed(lines.collect()), &Origin::default());
        ["●", "▲"].map(|mark| page.contains(&format!(">{mark}</text>")))
    };
    assert_eq!(of(6), [false, false]);
    assert_eq!(of(7), [true, true]);
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
    let page = page(&Page {
        title: "a & b",
        about: &plan.about,
        target: Some(&target()),
        lines: &lines,
        trials: &[],
        origin: &Origin::default(),
        command: "tradewind experiment e.toml",
        files: &[],
    });
    for wanted in [
        "<h1>a &amp; b</h1>",
        "<b>sync &lt;1&gt;</b> reached error ≤ 0.5 K after <b>15.0 s</b>",
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
    let mut slow = of("slow", line("async", false, &[30, 31]));
    each_reading(&mut slow, |reading| {
        for one in &mut reading.validations {
            one.wall += 500.0;
        }
    });
    let lines = summed(vec![
        of("quiet", line("sync <1>", true, &[10, 20])),
        of("quiet", line("async", false, &[12, 14])),
        slow,
    ]);
    let picture_of = |lines: &[Line]| {
        figure(&Page {
            title: "t",
            about: "",
            target: Some(&target()),
            lines,
            trials: &[],
            origin: &Origin::default(),
            command: "",
            files: &[],
        })
    };
    let picture = picture_of(&lines).unwrap();
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
    let ticks_of = |chart: &str| -> Vec<String> {
        let ticks = chart.split("class=\"tick\"").skip(1);
        let labels = ticks.filter_map(|t| t.split(['>', '<']).nth(1));
        labels.map(str::to_owned).collect()
    };
    let ticks: Vec<_> = picture.split("<svg ").skip(2).map(ticks_of).collect();
    assert!(ticks[0].len() > 4, "{ticks:?}");
    assert_eq!(ticks[0], ticks[1], "panels are compared by their axes");
    let nothing = summed(vec![line("async", false, &[])]);
    assert_eq!(picture_of(&nothing), None);
}
