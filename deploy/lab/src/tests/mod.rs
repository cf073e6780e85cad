//! Experiments as files, as matrices, and as numbers.

mod analysis;
mod cell;
mod charts;
mod jobs;
mod levels;
mod machine;
mod page;
mod plan;
mod shipped;
mod side_by_side;
mod tables;
mod tuning;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use tradewind_common::record::{Measure, StepRecord, Validation};

use super::file::ExperimentPlan;
use super::matrix::{Cell, Matrix};
use super::reading::Reading;

/// A configuration that a cell can start from.
const BASE: &str = "run.name = \"r\"\ndata.files = [\"x.nc\"]\ndata.variable = \"x\"\n\
    data.validation = [1, 2]\ndata.held_out = [2, 3]\ntrain.samples = 80\n\
    optimizer.learning_rate = 0.1\npace.step_seconds = 0.1\n";

/// An experiment's file that names it.
pub(super) const HEAD: &str = "[experiment]\nname = \"e\"\nbase = \"base.toml\"\n";

/// Reads an experiment in a folder that has [`BASE`].
pub(super) fn matrix(
    folder: &Path,
    text: &str,
    quick: bool,
) -> anyhow::Result<(ExperimentPlan, Matrix)> {
    std::fs::write(folder.join("base.toml"), BASE)?;
    let plan = ExperimentPlan::parse(text, "e.toml", folder, quick)?;
    let matrix = Matrix::new(&plan)?;
    Ok((plan, matrix))
}

/// A run of one group whose evaluations came to these values, one a second, ten samples apart.
fn reading(folder: &Path, values: &[f64]) -> Reading {
    reading_of(folder, "", values)
}

/// The same with other settings, as lines of a configuration.
pub fn reading_of(folder: &Path, set: &str, values: &[f64]) -> Reading {
    leave(folder, "completed", 0);
    std::fs::write(folder.join("config.toml"), format!("{BASE}{set}")).unwrap();
    let mut reading = Reading::of(folder).unwrap();
    let begun = reading.begun();
    let validation = |(index, value): (usize, &f64)| evaluated(begun, index, *value);
    reading.validations = values.iter().enumerate().map(validation).collect();
    reading
}

/// What was found ten samples, and a second, after the evaluation before.
fn evaluated(begun: f64, index: usize, value: f64) -> Validation {
    let samples = 10 * (index as u64 + 1);
    Validation {
        samples,
        samples_applied: (samples, samples),
        updates: index as u64,
        wall: begun + index as f64 + 1.0,
        measure: Measure {
            name: "error".into(),
            unit: "K".into(),
            value,
        },
    }
}

/// Leaves a run's files behind: ten steps, of which the last `late` missed their pace, and two
/// evaluations.
pub(super) fn leave(folder: &Path, status: &str, late: u64) {
    std::fs::create_dir_all(folder).unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    write("config.toml", BASE.to_owned());
    let summary = serde_json::json!({
        "status": status, "version": "0", "wall_seconds": 2.0, "train_seconds": 1.0, "samples": {"applied": 80},
        "updates": {"applied": 10, "dropped": 0},
        "exchanged": {"pushed_bytes": 300, "pulled_bytes": 500}, "groups": [{"ranks": 1, "clocks": 10,
            "compute_seconds": 1.0, "reduce_seconds": 0.0, "exposed_seconds": 0.2,
            "wait_seconds": 0.1, "lag_max": 0}],
        "delay": null, "loss": {"final": 0.5},
        "metric": {"name": "held-out error", "unit": "K", "value": 0.7,
            "validation": {"name": "error", "unit": "K", "value": 0.6}},
        "failure": {"role": "worker", "exit_status": 1, "reason": "ended with status 1"},
    });
    write("summary.json", summary.to_string());
    let record = |clock: u64| StepRecord {
        wall: 100.0 + clock as f64,
        clock,
        local_steps: 1,
        local_skipped: 0,
        missed_pace: u64::from(clock >= 10 - late),
        compute_seconds: 0.1,
        samples_applied: 8 * (clock + 1),
        ..tradewind_common::record::fixture::run(1, 1)[0].clone()
    };
    let lines = (0..10).map(|clock| serde_json::to_string(&record(clock)).unwrap() + "\n");
    write("metrics.jsonl", lines.collect());
    let evaluated = |index| serde_json::to_string(&evaluated(100.0, index, 0.6)).unwrap() + "\n";
    write("validation.jsonl", (0..2).map(evaluated).collect());
}

/// Leaves the run of a cell behind.
pub(super) fn leave_cell(cell: &Cell, folder: &Path, status: &str, late: u64) {
    leave(folder, status, late);
    std::fs::write(folder.join("config.toml"), cell.config.resolved()).unwrap();
}

/// Keys of a cell's configuration.
fn keys(matrix: &Matrix, id: &str) -> BTreeMap<String, String> {
    let cell = matrix.cells.iter().find(|cell| cell.id == id);
    super::keys::keys_of(cell.expect("a cell of that name").config.resolved())
}

/// Makes a program of a shell script.
fn write_program(path: &Path, script: &str) {
    // By a process of its own: a child that another test starts just now would hold it open for
    // writing, and nobody could run it.
    let write = "printf %s \"$0\" > \"$1\" && chmod +x \"$1\"";
    let written = Command::new("sh")
        .args(["-c", write, script])
        .arg(path)
        .status();
    assert!(written.unwrap().success());
}
