//! Which cells have to be run.

use std::fs;

use serde_json::{Value, json};
use tradewind_common::exit::Exit;
use tradewind_common::loss::Loss;

use super::{HEAD, leave, leave_cell, matrix, reading_of};
use crate::cell::{CellOutcome, Unfinished, finished, outcome, record};
use crate::reading::Reading;

#[test]
fn a_cell_is_finished_while_nothing_about_it_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (_, first) = matrix(folder.path(), HEAD, false).unwrap();
    let cell = &first.cells[0];
    let run = folder.path().join("run");
    assert_eq!(finished(cell, &run), Err(Unfinished::NotRun));
    leave_cell(cell, &run, "completed", 0);
    assert_eq!(
        finished(cell, &run),
        Err(Unfinished::NotRun),
        "it has no record yet"
    );
    let recorded = record(&run, None).unwrap();
    assert_eq!(recorded.outcome, CellOutcome::Completed);
    assert_eq!(finished(cell, &run), Ok(recorded));

    // As an earlier version left it, which knew fewer keys.
    let whole = fs::read_to_string(run.join("config.toml")).unwrap();
    let fewer = whole.replace("connections = 1\n", "");
    assert_ne!(fewer, whole);
    fs::write(run.join("config.toml"), fewer).unwrap();
    let recorded = record(&run, None).unwrap();
    assert_eq!(finished(cell, &run), Ok(recorded));

    let text = format!("{HEAD}[set]\ntrain.batch = 2\n");
    let (_, other) = matrix(folder.path(), &text, false).unwrap();
    let changed = finished(&other.cells[0], &run);
    assert_eq!(changed, Err(Unfinished::OtherConfiguration));

    for name in [
        "metrics.jsonl",
        "validation.jsonl",
        "summary.json",
        "config.toml",
    ] {
        let before = fs::read(run.join(name)).unwrap();
        fs::write(run.join(name), &before[..before.len() - 1]).unwrap();
        let damaged = Unfinished::Damaged(format!("{name} has been changed"));
        assert_eq!(finished(cell, &run), Err(damaged));
        fs::remove_file(run.join(name)).unwrap();
        let damaged = Unfinished::Damaged(format!("{name} cannot be read"));
        assert_eq!(finished(cell, &run), Err(damaged));
        fs::write(run.join(name), before).unwrap();
        assert!(finished(cell, &run).is_ok());
    }
}

#[test]
fn a_cell_that_misses_its_pace_is_void_and_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let (_, matrix) = matrix(folder.path(), HEAD, false).unwrap();
    let run = folder.path().join("run");
    leave_cell(&matrix.cells[0], &run, "completed", 1);
    let recorded = record(&run, None).unwrap();
    let why = "10 % of its steps took longer than pace.step_seconds";
    assert_eq!(recorded.outcome, CellOutcome::Void(why.into()));
    let found = finished(&matrix.cells[0], &run);
    assert_eq!(found, Err(Unfinished::Void(Box::new(recorded))));
}

#[test]
fn one_step_in_twenty_may_miss_its_pace() {
    let folder = tempfile::tempdir().unwrap();
    let mut reading = reading_of(folder.path(), "", &[]);
    let record = reading.records[0].clone();
    reading.records = vec![record; 100];
    let mut with = |late: usize| {
        for (index, record) in reading.records.iter_mut().enumerate() {
            record.missed_pace = u64::from(index < late);
        }
        outcome(&reading).unwrap()
    };
    assert_eq!(with(5), CellOutcome::Completed);
    assert!(matches!(with(6), CellOutcome::Void(_)));
}

#[test]
fn a_pace_that_is_missed_once_in_many_local_steps_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    leave(folder.path(), "completed", 1);
    let mut reading = Reading::of(folder.path()).unwrap();
    assert_eq!(reading.missed(), 0.1);
    reading.records.iter_mut().for_each(|r| r.local_steps = 5);
    assert_eq!(reading.missed(), 0.02);
    assert_eq!(reading.local_steps(), Some(5.0));
}

/// Whoever is late holds up everybody, though it is one of many.
#[test]
fn under_sync_a_clock_is_missed_with_one_group() {
    let folder = tempfile::tempdir().unwrap();
    let check = |set: &str, steps: u64, want: f64| {
        let mut reading = reading_of(folder.path(), set, &[]);
        // Ten clocks of two groups, of which one is late in two of its steps.
        let others = reading.records.clone();
        reading.records[3].missed_pace = 2.min(steps);
        reading.records.extend(others);
        reading
            .records
            .iter_mut()
            .for_each(|r| r.local_steps = steps);
        assert_eq!(reading.missed(), want, "{set}");
    };
    check("", 1, 0.05);
    check("train.consistency = \"sync\"", 1, 0.1);
    check("train.consistency = \"sync\"", 5, 0.04);
}

#[test]
fn what_another_try_may_mend_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (_, matrix) = matrix(folder.path(), HEAD, false).unwrap();
    let run = folder.path().join("run");
    leave_cell(&matrix.cells[0], &run, "failed", 0);
    let error = record(&run, None).unwrap_err().to_string();
    assert_eq!(error, "worker: ended with status 1");
    let failed = fs::read_to_string(run.join("summary.json")).unwrap();
    let ends_with = |status: &str| {
        let text = failed.replace("\"exit_status\":1", &format!("\"exit_status\":{status}"));
        assert_ne!(text, failed);
        fs::write(run.join("summary.json"), text).unwrap();
        record(&run, None)
    };
    // Data or a device may be mended, and nothing of the configuration has to change for it.
    assert!(ends_with("4").is_err());
    assert!(ends_with("null").is_err(), "a signal ended it");
    let recorded = ends_with("6").unwrap();
    assert!(
        matches!(recorded.outcome, CellOutcome::Failed(_)),
        "{recorded:?}"
    );
    assert!(
        finished(&matrix.cells[0], &run).is_ok(),
        "it would diverge again"
    );
}

/// Of a job that has waited in the queue once more, say.
#[test]
fn times_of_a_run_that_has_paused_say_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut reading = reading_of(folder.path(), "", &[0.5]);
    reading.summary.resumed_from = Some(3);
    let found = outcome(&reading).unwrap();
    assert!(
        matches!(&found, CellOutcome::Void(why) if why.contains("snapshot 3 after a pause")),
        "{found:?}"
    );
}

#[test]
fn a_cell_without_all_its_evaluations_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let check = |policy: &str, evaluations: usize, want: Result<CellOutcome, &str>| {
        let set = format!("evaluation.every_samples = 10\n{policy}");
        let reading = reading_of(folder.path(), &set, &vec![0.5; evaluations]);
        let found = outcome(&reading).map_err(|error| error.to_string());
        let want = want.map_err(|text| format!("validation.jsonl has {text}"));
        assert_eq!(found, want, "{policy}");
    };
    check("", 8, Ok(CellOutcome::Completed));
    check("", 7, Err("7 of 8 evaluations"));
    // Dropped gradients may leave the last one out of reach.
    let drop = "staleness.policy = \"drop\"\ntrain.consistency = \"async\"\n";
    check(drop, 7, Ok(CellOutcome::Completed));
    check(drop, 6, Err("6 of 7 evaluations"));
}

#[test]
fn a_run_that_lost_updates_on_the_way_is_a_result_and_one_that_stopped_at_them_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let (_, matrix) = matrix(folder.path(), HEAD, false).unwrap();
    let run = folder.path().join("run");
    let leave = |status: &str, exit: Exit, lost: Value| {
        leave_cell(&matrix.cells[0], &run, status, 0);
        let path = run.join("summary.json");
        let text = fs::read_to_string(&path).unwrap();
        let mut summary: Value = serde_json::from_str(&text).unwrap();
        summary["exit_status"] = exit.number().into();
        summary["failure"]["exit_status"] = exit.number().into();
        summary["failure"]["reason"] = "shard 1 was lost".into();
        summary["faults"] = json!({ "lost": lost });
        fs::write(&path, summary.to_string()).unwrap();
    };
    let lost = || json!({"updates": 312, "samples": 640});
    leave("completed", Exit::DoneWithLosses, lost());
    assert_eq!(record(&run, None).unwrap().outcome, CellOutcome::Completed);
    let told = Reading::of(&run).unwrap().summary.lost();
    let want = Loss {
        updates: 312,
        samples: 640,
    };
    assert_eq!(told, Some(want));
    leave("failed", Exit::Lost, lost());
    let error = record(&run, None).unwrap_err().to_string();
    let want = "it stopped because updates were lost: shard 1 was lost";
    assert_eq!(error, want);
    // What an earlier version counted was something else.
    for nothing in [json!(3), json!(null), json!({"updates": 0, "samples": 0})] {
        leave("completed", Exit::Done, nothing);
        assert_eq!(Reading::of(&run).unwrap().summary.lost(), None);
    }
}
