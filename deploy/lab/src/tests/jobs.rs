//! Cells as jobs of Slurm: what a former call of the command has left, and what a first try has.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{HEAD, leave_cell, matrix, write_program};
use crate::cell::{CellOutcome, CellRecord, Unfinished, finished, gather};
use crate::display::Display;
use crate::earlier_job::{Leaving, Queue};
use crate::job::Job;
use crate::matrix::Cell;
use crate::runner::{Ended, On, Ran, Runner};
use tradewind_folder::runtime::one_thread;
use tradewind_launch::run::Interruption;

/// An experiment of one cell, a program in the place of `tradewind` and answers in that of Slurm.
struct Stage {
    folder: tempfile::TempDir,
    cell: Cell,
}

thread_local! {
    /// What Slurm answers next, one after the other; at last that there is no job.
    static ANSWERS: RefCell<Vec<Result<bool, &'static str>>> = const { RefCell::new(Vec::new()) };
}

fn answer(_: &Path) -> anyhow::Result<bool> {
    let next = ANSWERS.with_borrow_mut(|answers| (!answers.is_empty()).then(|| answers.remove(0)));
    next.unwrap_or(Ok(false)).map_err(anyhow::Error::msg)
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (_, matrix) = matrix(folder.path(), HEAD, false).unwrap();
        let cell = matrix.cells[0].clone();
        Self { folder, cell }
    }

    fn run_folder(&self) -> PathBuf {
        self.folder.path().join("runs").join(&self.cell.id)
    }

    /// Leaves a run of the cell behind, which has no record.
    fn leave(&self, run: &Path, status: &str) {
        leave_cell(&self.cell, run, status, 0);
    }

    /// Runs the cell while Slurm answers so. What became of it, and the words of each call of the
    /// program, which leaves a completed run.
    fn run(&self, answers: &[Result<bool, &'static str>]) -> (Ended, Vec<String>) {
        self.run_on(On::Slurm { at_once: 1 }, answers)
    }

    fn run_on(&self, on: On, answers: &[Result<bool, &'static str>]) -> (Ended, Vec<String>) {
        let file = |name: &str| self.folder.path().join(name);
        self.leave(&file("completed"), "completed");
        let calls = file("calls");
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> {calls}\nfor out; do :; done\nout=${{out#--out=}}\n\
             rm -rf \"$out\" && cp -r {completed} \"$out\"\n",
            calls = calls.display(),
            completed = file("completed").display(),
        );
        let program = file("program");
        write_program(&program, &script);
        ANSWERS.with_borrow_mut(|all| *all = answers.to_vec());
        let queue = Queue {
            has_jobs: answer,
            pause: Duration::from_millis(1),
            leaving: Duration::from_millis(1),
        };
        let runner = Runner::new(self.folder.path(), on).unwrap();
        let runner = runner.with(&program, queue);
        let job = Job {
            cell: &self.cell,
            part: 0.0,
            is_trial: false,
        };
        let ran = one_thread().unwrap().block_on(async {
            let mut interruption = Interruption::new().unwrap();
            let mut display = Display::new(0);
            runner
                .run(&[job], 1, &mut display, &mut interruption)
                .await
                .unwrap()
        });
        let Ran::All(mut ended) = ran else {
            panic!("nobody has interrupted it");
        };
        let left: BTreeMap<_, _> = ended.split_off(&self.cell.id);
        let (_, came_to) = left.into_iter().next().expect("the cell has ended");
        let calls = fs::read_to_string(calls).unwrap_or_default();
        let verb = |line: &str| line.split(" /").next().unwrap_or(line).to_owned();
        (came_to, calls.lines().map(verb).collect())
    }
}

const SUBMIT: &str = "slurm submit --watch";
const FOLLOW: &str = "status --watch";

fn is_completed(ended: &Ended) -> bool {
    matches!(
        ended,
        Ok(CellRecord {
            outcome: CellOutcome::Completed,
            ..
        })
    )
}

#[test]
fn a_job_that_ended_while_nobody_looked_is_gathered() {
    let stage = Stage::new();
    stage.leave(&stage.run_folder(), "completed");
    let (ended, calls) = stage.run(&[]);
    assert!(is_completed(&ended), "{ended:?}");
    assert_eq!(calls, [""; 0], "it was run again");
    assert!(finished(&stage.cell, &stage.run_folder()).is_ok());
}

#[test]
fn a_job_counts_until_slurm_is_rid_of_it() {
    ANSWERS.with_borrow_mut(|all| *all = vec![Ok(true), Ok(true), Ok(false)]);
    let queue = Queue {
        has_jobs: answer,
        pause: Duration::ZERO,
        leaving: Duration::from_secs(3),
    };
    let mut job = Leaving::new("runs/cell".into());
    let mut after = |seconds| job.has_ended(&queue, Duration::from_secs(seconds));
    assert!(!after(5));
    assert!(!after(7), "who is asked so soon would say the same");
    assert!(!after(8));
    assert!(!after(9));
    assert!(after(11));
}

#[test]
fn a_job_that_goes_on_is_followed() {
    let stage = Stage::new();
    let run = stage.run_folder();
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("config.toml"), stage.cell.config.resolved()).unwrap();
    let (ended, calls) = stage.run(&[Ok(true)]);
    assert!(is_completed(&ended), "{ended:?}");
    assert_eq!(calls, [FOLLOW]);
}

#[test]
fn what_was_damaged_or_cut_short_is_run_again() {
    for (name, cut) in [("metrics.jsonl", 40), ("summary.json", 5)] {
        let stage = Stage::new();
        let run = stage.run_folder();
        stage.leave(&run, "completed");
        let text = fs::read(run.join(name)).unwrap();
        fs::write(run.join(name), &text[cut..]).unwrap();
        let found = gather(&stage.cell, &run);
        assert!(matches!(found, Err(Unfinished::Damaged(_))), "{found:?}");
        let (ended, calls) = stage.run(&[]);
        assert!(is_completed(&ended), "{ended:?}");
        assert_eq!(calls, [SUBMIT]);
    }
    let stage = Stage::new();
    stage.leave(&stage.run_folder(), "interrupted");
    let found = gather(&stage.cell, &stage.run_folder());
    assert_eq!(found, Err(Unfinished::NotRun));
    assert_eq!(stage.run(&[]).1, [SUBMIT]);
}

#[test]
fn a_try_waits_until_the_job_of_a_run_that_is_over_is_over_too() {
    let stage = Stage::new();
    stage.leave(&stage.run_folder(), "failed");
    let (ended, calls) = stage.run(&[Ok(true), Ok(true), Ok(true), Ok(false)]);
    assert!(is_completed(&ended), "{ended:?}");
    assert_eq!(
        calls,
        [SUBMIT],
        "it neither follows the job nor takes its folder"
    );
    let left = ANSWERS.with_borrow(Vec::len);
    assert_eq!(left, 0, "it has not waited");
}

#[test]
fn a_job_with_another_configuration_is_neither_followed_nor_gathered() {
    let stage = Stage::new();
    let run = stage.run_folder();
    let other = |run: &Path| {
        let own = stage.cell.config.resolved();
        let (_, matrix) = matrix(
            stage.folder.path(),
            &format!("{HEAD}[set]\ntrain.batch = 2\n"),
            false,
        )
        .unwrap();
        let other = matrix.cells[0].config.resolved();
        assert_ne!(own, other);
        fs::write(run.join("config.toml"), other).unwrap();
    };
    stage.leave(&run, "completed");
    other(&run);
    assert_eq!(gather(&stage.cell, &run), Err(Unfinished::NotRun));
    fs::remove_file(run.join("summary.json")).unwrap();
    let (ended, calls) = stage.run(&[Ok(true), Ok(true), Ok(false)]);
    assert!(is_completed(&ended), "{ended:?}");
    assert_eq!(calls, [SUBMIT]);
}

#[test]
fn a_slurm_that_does_not_answer_is_asked_again_a_limited_number_of_times() {
    let silent = Err("squeue: Socket timed out");
    let stage = Stage::new();
    stage.leave(&stage.run_folder(), "completed");
    let (ended, calls) = stage.run(&[silent, silent, Ok(false)]);
    assert!(is_completed(&ended), "{ended:?}");
    assert_eq!(calls, [""; 0]);

    let stage = Stage::new();
    let (ended, calls) = stage.run(&[silent; 40]);
    let why = ended.unwrap_err();
    assert!(why.contains("Socket timed out"), "{why}");
    assert_eq!(calls, [""; 0]);
}

/// A job goes on, or begins, when nobody expects it any more.
#[test]
fn a_cell_is_not_run_here_while_it_has_a_job() {
    let check = |handed_in: bool, answer, wanted: Result<(), &str>| {
        let stage = Stage::new();
        if handed_in {
            let jobs = stage.run_folder().join("slurm/jobs");
            fs::create_dir_all(&jobs).unwrap();
            let job = r#"{"job": 7, "leads": true, "servers": true, "groups": [0]}"#;
            fs::write(jobs.join("7.json"), job).unwrap();
        }
        let (ended, calls) = stage.run_on(On::Machine, &[answer]);
        match wanted {
            Ok(()) => assert!(
                is_completed(&ended) && calls == ["run"],
                "{ended:?} {calls:?}"
            ),
            Err(why) => {
                let told = ended.unwrap_err();
                assert!(told.contains(why), "{told}");
                assert!(calls.is_empty() && stage.run_folder().exists());
            }
        }
    };
    check(false, Ok(true), Ok(()));
    check(true, Ok(false), Ok(()));
    check(
        true,
        Ok(true),
        Err("go on with --slurm, or end it: `tradewind slurm cancel "),
    );
    check(
        true,
        Err("no Slurm"),
        Err("no Slurm; go on with --slurm where Slurm is"),
    );
}
