//! Cells on this machine: which run together, which apart, and which once more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{HEAD, leave, matrix, write_program};
use crate::cell::CellOutcome;
use crate::display::Display;
use crate::earlier_job::Queue;
use crate::job::Job;
use crate::runner::{Ended, On, Ran, Runner};
use tradewind_folder::runtime::one_thread;
use tradewind_launch::run::Interruption;

/// In the place of `tradewind`: says when it begins, ends and is told to end, waits for those that should run beside
/// it, and leaves what this try of its cell is to leave.
const PROGRAM: &str = r#"#!/bin/sh
for out; do :; done
out=${out#--out=}
id=${out##*/}
cd STAGE || exit 1
trap 'echo "told $id" >> calls; exit 1' TERM
echo "begin $id" >> calls
touch "begun-$id"
looks=0
for mark in $(cat "awaits-$id"); do
    until [ -e "$mark" ]; do
        looks=$((looks + 1))
        [ $looks -lt 600 ] || exit 9
        sleep 0.05
    done
done
sleep 0.2
try=$(grep -c "^begin $id\$" calls)
cp -r "left-$id-$try" "$out"
echo "end $id" >> calls
touch "ended-$id"
"#;

/// What a cell takes of the machine, and what its tries come to.
struct Act<'a> {
    part: f64,
    is_trial: bool,
    setting: usize,
    tries: &'a [&'a str],
}

fn acts<const N: usize>(parts: [f64; N]) -> [Act<'static>; N] {
    parts.map(|part| Act {
        part,
        is_trial: false,
        setting: 0,
        tries: &["completed"],
    })
}

/// What became of a cell, in a word.
fn word(ended: &Ended) -> &'static str {
    match ended.as_ref().map(|record| &record.outcome) {
        Ok(CellOutcome::Completed) => "completed",
        Ok(CellOutcome::Void(_)) => "void",
        Ok(CellOutcome::Failed(_)) => "diverged",
        Err(_) => "failed",
    }
}

/// Leaves a run behind of which this is said.
fn leave_word(run: &Path, word: &str) {
    match word {
        "void" => leave(run, "completed", 1),
        "completed" => leave(run, "completed", 0),
        _ => leave(run, "failed", 0),
    }
    if word == "diverged" {
        let path = run.join("summary.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(
            &path,
            text.replace("\"exit_status\":1", "\"exit_status\":6"),
        )
        .unwrap();
    }
}

/// Those that ran at the same time, from the moment when the first began to that when the last ended.
fn batches(calls: &str) -> Vec<Vec<u64>> {
    let mut batches = Vec::new();
    let (mut batch, mut running) = (BTreeSet::new(), BTreeSet::new());
    for line in calls.lines() {
        let (what, id) = line.split_once(' ').unwrap();
        let seed: u64 = id.rsplit('-').next().unwrap().parse().unwrap();
        match what {
            "begin" => {
                batch.insert(seed);
                running.insert(seed);
            }
            _ => {
                running.remove(&seed);
            }
        }
        if running.is_empty() {
            batches.push(std::mem::take(&mut batch).into_iter().collect());
        }
    }
    assert!(running.is_empty(), "{calls}");
    batches
}

/// Runs cells of seeds 1, 2, …; they have to run in these batches, and to come to this.
#[track_caller]
fn check(acts: &[Act<'_>], at_once: usize, wanted: &[&[u64]], came_to: &[&str]) {
    // In its first batch all begin before one ends, and they end one after the other.
    let awaits = |seed: u64| {
        let batch = wanted.iter().find(|batch| batch.contains(&seed)).unwrap();
        let before = batch.iter().take_while(|other| **other != seed).last();
        let begun = batch.iter().map(|seed| format!("begun-cell-seed-{seed}"));
        let ended = before.map(|seed| format!("ended-cell-seed-{seed}"));
        begun.chain(ended).collect()
    };
    let (calls, words) = run(acts, at_once, awaits);
    assert_eq!(batches(&calls), wanted, "{calls}");
    assert_eq!(words, came_to);
}

/// Runs cells of seeds 1, 2, …, none of which ends before what its seed `awaits` is there. What was
/// called, and what each has come to.
fn run(
    acts: &[Act<'_>],
    at_once: usize,
    awaits: impl Fn(u64) -> Vec<String>,
) -> (String, Vec<&'static str>) {
    let folder = tempfile::tempdir().unwrap();
    let words = run_in(folder.path(), acts, at_once, awaits).unwrap();
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    (calls, words)
}

/// As [`run`], in a folder that there is.
fn run_in(
    folder: &Path,
    acts: &[Act<'_>],
    at_once: usize,
    awaits: impl Fn(u64) -> Vec<String>,
) -> anyhow::Result<Vec<&'static str>> {
    let file = |name: &str| -> PathBuf { folder.join(name) };
    let seeds: Vec<usize> = (1..=acts.len()).collect();
    let text = format!("{HEAD}seeds = {seeds:?}\n");
    let (_, mut matrix) = matrix(folder, &text, false)?;
    for (cell, act) in matrix.cells.iter_mut().zip(acts) {
        cell.setting = act.setting;
    }
    let program = file("program");
    write_program(&program, &PROGRAM.replace("STAGE", &format!("{folder:?}")));
    for (cell, act) in matrix.cells.iter().zip(acts) {
        for (index, word) in act.tries.iter().enumerate() {
            leave_word(&file(&format!("left-{}-{}", cell.id, index + 1)), word);
        }
        let marks = awaits(cell.seed).join("\n");
        fs::write(file(&format!("awaits-{}", cell.id)), marks)?;
    }
    let jobs = matrix.cells.iter().zip(acts).map(|(cell, act)| Job {
        cell,
        part: act.part,
        is_trial: act.is_trial,
    });
    let jobs: Vec<Job<'_>> = jobs.collect();
    let runner = Runner::new(folder, On::Machine)?;
    let runner = runner.with(&program, Queue::slurm());
    let ran = one_thread()?.block_on(async {
        let mut interruption = Interruption::new()?;
        let mut display = Display::new(0);
        let ran = runner.run(&jobs, at_once, &mut display, &mut interruption);
        ran.await
    })?;
    let Ran::All(ended) = ran else {
        panic!("nobody has interrupted it");
    };
    let words = matrix.cells.iter().map(|cell| word(&ended[&cell.id]));
    Ok(words.collect())
}

#[test]
fn cells_whose_parts_fit_run_together_and_others_apart() {
    let all = usize::MAX;
    let completed = ["completed"; 3];
    check(&acts([0.5, 0.5, 0.5]), all, &[&[1, 2], &[3]], &completed);
    check(&acts([0.6, 0.6]), all, &[&[1], &[2]], &completed[..2]);
    // Nobody is passed over for one that would fit.
    check(&acts([0.3, 0.9, 0.1]), all, &[&[1], &[2, 3]], &completed);
    check(&acts([1.6, 0.1]), all, &[&[1], &[2]], &completed[..2]);
}

#[test]
fn no_more_run_together_than_are_asked_for() {
    let completed = ["completed"; 3];
    check(&acts([0.1, 0.1, 0.1]), 2, &[&[1, 2], &[3]], &completed);
    check(&acts([0.1, 0.1]), 1, &[&[1], &[2]], &completed[..2]);
}

/// When it has trained a cell is evaluated, which must not take cores from one that still trains.
#[test]
fn cells_that_run_together_are_of_one_setting() {
    let mut cells = acts([0.1; 5]);
    for (cell, setting) in cells.iter_mut().zip([0, 0, 0, 1, 1]) {
        cell.setting = setting;
    }
    let completed = ["completed"; 5];
    check(&cells, 2, &[&[1, 2], &[3], &[4, 5]], &completed);
}

/// A trial's time says nothing, so it begins beside others, of whatever setting, as soon as it fits.
#[test]
fn a_trial_takes_the_first_place_that_is_free() {
    // The third fits beside the second, but not beside the first.
    let mut trials = acts([0.5, 0.3, 0.6]);
    for (trial, setting) in trials.iter_mut().zip(0..) {
        (trial.setting, trial.is_trial) = (setting, true);
    }
    let awaits = |seed| match seed {
        1 => vec!["begun-cell-seed-2".to_owned()],
        2 => vec!["begun-cell-seed-3".to_owned()],
        _ => vec!["ended-cell-seed-2".to_owned()],
    };
    // The first two begin together.
    let wanted = ["end 1", "begin 3", "end 2", "end 3"];
    let run = |trials: &[Act<'_>], at_once| {
        let (calls, words) = run(trials, at_once, awaits);
        let calls = calls.lines().skip(2);
        let calls: Vec<_> = calls.map(|call| call.replace("cell-seed-", "")).collect();
        assert_eq!(calls, wanted);
        assert_eq!(words, ["completed"; 3]);
    };
    run(&trials, usize::MAX);
    let small = trials.map(|trial| Act { part: 0.1, ..trial });
    run(&small, 2);
}

#[test]
fn a_void_cell_is_run_again_alone_and_then_left_out() {
    let mut cells = acts([0.3, 0.3, 0.3]);
    cells[0].tries = &["void", "void"];
    cells[2].tries = &["void", "completed"];
    check(
        &cells,
        usize::MAX,
        &[&[1, 2, 3], &[1], &[3]],
        &["void", "completed", "completed"],
    );
    // Nor does it go along with one that has its first try.
    let mut cells = acts([0.5, 0.5, 0.5]);
    cells[0].tries = &["void", "completed"];
    check(
        &cells,
        usize::MAX,
        &[&[1, 2], &[3], &[1]],
        &["completed"; 3],
    );
}

#[test]
fn only_what_may_come_to_more_is_run_again() {
    let mut cells = acts([1.0, 1.0, 1.0]);
    cells[0].tries = &["failed", "failed"];
    cells[1].tries = &["diverged"];
    cells[2] = Act {
        part: 1.0,
        is_trial: true,
        setting: 0,
        tries: &["void"],
    };
    check(
        &cells,
        usize::MAX,
        &[&[1], &[2], &[3], &[1]],
        &["failed", "diverged", "void"],
    );
}

/// As it is where the disk is full.
#[test]
fn those_that_run_are_told_to_end_when_another_cannot_be_started() {
    let mut trials = acts([0.1; 3]);
    for trial in &mut trials {
        trial.is_trial = true;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config = path("configs/cell-seed-3.toml");
    fs::create_dir_all(&config).unwrap();
    let awaits = |seed| match seed {
        1 => vec!["never".to_owned()],
        _ => vec!["begun-cell-seed-1".to_owned()],
    };
    let error = run_in(folder.path(), &trials, 2, awaits).unwrap_err();
    let wanted = format!("cannot write {}", config.display());
    assert_eq!(error.to_string(), wanted);
    let calls = fs::read_to_string(path("calls")).unwrap();
    let last = ["end cell-seed-2", "told cell-seed-1"];
    assert!(calls.ends_with(&(last.join("\n") + "\n")), "{calls}");
}
