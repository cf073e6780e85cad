//! `tradewind experiment`: cells are run, an end half-way costs the cell that was under way, and
//! what cannot be run is told before anything is.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use hdf5_metno::File;
use ndarray::s;
use rustix::process::Signal;
use tradewind_tests::cluster::process::signal;
use tradewind_tests::cluster::run::{Ended, Run, kill};
use tradewind_tests::cluster::{programs, root};

/// Two cells, one after the other, whose target is reached with the first evaluation.
const TWO: &str = r#"
[experiment]
name = "two"
base = "config.toml"
cells_at_once = 1

[axes]
train.consistency = ["sync", "async"]

[target]
metric = "validation RMSE"
at_most = 1000.0
every_samples = 16
"#;

/// The rows of a table without quoted fields, by the names of its columns.
fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = text.lines().map(|line| line.split(','));
    let names: Vec<&str> = lines.next().unwrap().collect();
    let row = |fields: std::str::Split<'_, char>| {
        let pairs = names.iter().zip(fields);
        pairs.map(|(n, f)| ((*n).into(), f.into())).collect()
    };
    lines.map(row).collect()
}

fn completes(ended: &Ended) {
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn an_experiment_that_is_killed_goes_on_with_what_is_not_finished() {
    let mut first = Run::new().experiment(TWO).start();
    first.leaves("runs/sync-seed-1/cell.json");
    kill(first.pid());
    let killed = first.end();
    assert!(!killed.status.success());
    let out = killed.out();
    assert!(
        !out.join("results.csv").exists(),
        "the second cell is missing"
    );
    let record = |cell: &str| {
        let record = fs::metadata(out.join("runs").join(cell).join("cell.json"));
        record.and_then(|record| record.modified()).unwrap()
    };
    let before = record("sync-seed-1");

    let second = killed.again().complete();
    completes(&second);
    assert_eq!(
        record("sync-seed-1"),
        before,
        "a finished cell is not run again"
    );
    let rows_of = |ended: &Ended| rows(&ended.out().join("results.csv"));
    let found = rows_of(&second);
    assert_eq!(found.len(), 2);
    for (row, consistency) in found.iter().zip(["sync", "async"]) {
        for (column, value) in [
            ("experiment", "two"),
            ("setting", consistency),
            ("axis.train.consistency", consistency),
            ("seed", "1"),
            ("status", "completed"),
            ("reached", "true"),
            ("samples_to_target", "16"),
            ("samples_applied", "64"),
            ("exchanges", "8"),
            ("validation_metric", "validation RMSE"),
        ] {
            assert_eq!(row[column], value, "{column} of {consistency}");
        }
        // Plain values both ways, with each of eight exchanges.
        let model = fs::read(
            out.join("runs")
                .join(&row["cell"])
                .join("model.safetensors"),
        );
        let model = model.unwrap();
        let model = safetensors::SafeTensors::deserialize(&model).unwrap();
        let bytes: usize = model.tensors().iter().map(|(_, t)| t.data().len()).sum();
        assert_eq!(row["bytes_exchanged"], (16 * bytes).to_string());
    }
    assert_eq!(found[0]["times_sooner"], "1");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("validation RMSE ≤ 1000"), "{page}");
    assert_eq!(
        &fs::read(out.join("results.parquet")).unwrap()[..4],
        b"PAR1"
    );

    let damaged = out.join("runs/async-seed-1/metrics.jsonl");
    fs::write(&damaged, "").unwrap();
    let third = second.again().complete();
    completes(&third);
    let said = "async-seed-1: metrics.jsonl has been changed; it is run again";
    assert!(
        third.stdout.contains(said),
        "{}{}",
        third.stdout,
        third.stderr
    );
    assert_ne!(fs::metadata(&damaged).unwrap().len(), 0);
    assert_eq!(record("sync-seed-1"), before);
    assert_eq!(rows_of(&third)[1]["status"], "completed");
    runs_are_compared(&out);
}

/// A cell that would train for ever.
#[test]
fn an_experiment_that_is_interrupted_ends_its_cells_and_writes_what_there_is() {
    let text = format!("{TWO}\n[set]\ntrain.samples = 1000000\n");
    let mut first = Run::new().experiment(&text).start();
    first.leaves("runs/sync-seed-1/metrics.jsonl");
    signal(first.pid(), Signal::INT);
    let ended = first.end();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);
    let out = ended.out();
    let name = out.display().to_string();
    for process in fs::read_dir("/proc").unwrap() {
        let line = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        assert!(!line.contains(&name), "{line} goes on");
    }
    for row in rows(&out.join("results.csv")) {
        assert_eq!(row["status"], "not run");
    }
    assert!(out.join("report.html").exists());
}

/// `tradewind report` on some runs of an experiment, into a file of its folder.
fn report(out: &Path, cells: [&str; 2], page: &str) -> Output {
    let runs = cells.map(|cell| out.join("runs").join(cell));
    let mut command = Command::new(programs().join("tradewind"));
    command.arg("report").args(runs).args(["--at-most", "1000"]);
    command.arg("--out").arg(out.join(page));
    command.output().expect("tradewind starts")
}

/// Runs by themselves are compared as an experiment compares its cells.
fn runs_are_compared(out: &Path) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let cells = ["sync-seed-1", "async-seed-1"];
    let ended = report(out, cells, "page.html");
    let (said, complained) = (text(ended.stdout), text(ended.stderr));
    assert!(ended.status.success(), "{said}{complained}");
    let path = out.join("page.html");
    let told = format!("the report is in {}", path.display());
    assert!(said.contains(&told), "{said}");
    let page = fs::read_to_string(&path).unwrap();
    let runs = out.join("runs").display().to_string();
    let [first, second] = cells.map(|cell| format!("{runs}/{cell}"));
    let command = format!("<pre>tradewind report {first} {second} --at-most 1000</pre>");
    let row = format!("<td>{first}</td><td>consistency sync </td><td>1</td><td>completed</td>");
    for wanted in [
        "<h1>Runs compared</h1>",
        "<b>2</b> runs of <b>2</b> settings · seeds <b>1</b> · target: <b>validation RMSE ≤ 1000",
        "looked at every 16 samples",
        "</i>consistency sync<small>the baseline</small>",
        "</i>consistency async</td>",
        "; one seed has no interval",
        "<h3>Validation</h3>",
        "<h3>Training loss</h3>",
        "# consistency async\ntrain.consistency = &quot;async&quot;",
        command.as_str(),
        row.as_str(),
    ] {
        assert!(page.contains(wanted), "{wanted:?} is not in {page}");
    }

    let ended = report(out, ["sync-seed-1", "nobody"], "other.html");
    assert_eq!(ended.status.code(), Some(1));
    let complained = text(ended.stderr);
    let wanted = format!("cannot read {runs}/nobody/config.toml");
    assert!(complained.contains(&wanted), "{complained}");
    assert!(!out.join("other.html").exists());
}

#[test]
fn cells_are_run_with_what_their_tuning_came_to() {
    // Nothing is learned at the one rate and next to nothing at the other, but that is better.
    let text = r#"
[experiment]
name = "tuned"
base = "config.toml"
cells_at_once = 1

[tuning]
seed = 7
part = 0.5
[tuning.grid]
optimizer.learning_rate = [0.0, 0.01]

[target]
metric = "validation RMSE"
at_most = 1000.0
every_samples = 16
"#;
    let ended = Run::new().experiment(text).complete();
    completes(&ended);
    let trials = rows(&ended.out().join("tuning.csv"));
    let of = |column: &str| {
        let values = trials.iter().map(|trial| trial[column].clone());
        values.collect::<Vec<_>>()
    };
    assert_eq!(of("trial"), ["cell-tune-0", "cell-tune-0.01"]);
    assert_eq!(of("chosen"), ["false", "true"]);
    let measures = of("metric_validation");
    let measures: Vec<f64> = measures.iter().map(|m| m.parse().unwrap()).collect();
    assert!(measures[1] < measures[0], "{measures:?}");
    let results = rows(&ended.out().join("results.csv"));
    assert_eq!(results.len(), 1, "trials are no results");
    assert_eq!(results[0]["tuned.optimizer.learning_rate"], "0.01");
    let config = ended.out().join("runs/cell-seed-1/config.toml");
    let config = fs::read_to_string(config).unwrap();
    assert!(config.contains("learning_rate = 0.01"), "{config}");
}

/// What is refused has started nothing of the experiment.
#[track_caller]
fn refused(run: Run, wanted: &[&str]) {
    let ended = run.complete();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    for text in wanted {
        assert!(
            ended.stderr.contains(text),
            "{text:?} is not in {}",
            ended.stderr
        );
    }
    let runs = fs::read_dir(ended.out().join("runs"));
    let names = runs
        .into_iter()
        .flatten()
        .map(|run| run.unwrap().file_name());
    let names: Vec<String> = names.map(|n| n.into_string().unwrap()).collect();
    assert!(names.iter().all(|n| n == "probe-0"), "{names:?}");
    assert!(!ended.out().join("results.csv").exists());
}

#[test]
fn what_cannot_be_run_is_told_before_anything_is() {
    let with = |old: &str, new: &str| {
        assert!(TWO.contains(old));
        Run::new().experiment(TWO.replace(old, new))
    };
    refused(
        with("train.consistency", "train.consistensy"),
        &[
            "experiment.toml, line 8: train.consistensy is no key; did you mean \"train.consistency\"?",
        ],
    );
    // LARS with elastic averaging: in no cell of the first setting, but in all of the second.
    let elastic = with(
        "train.consistency = [\"sync\", \"async\"]",
        "train.consistency = [\"async\"]\nlocal.algorithm = [\"none\", \"easgd\"]\n\n[set]\noptimizer.name = \"lars\"",
    );
    refused(
        elastic,
        &["local.algorithm", "lars", "(in the setting async, easgd)"],
    );
    refused(
        with("validation RMSE", "validation accuracy"),
        &[
            "target.metric = \"validation accuracy\" is not what the task measures",
            "\"validation RMSE\"",
        ],
    );
    refused(
        with("every_samples = 16", "every_samples = 48"),
        &["target.every_samples = 48 leaves no two evaluations in train.samples = 64"],
    );
    let short = with("[target]", "[set]\npace.step_seconds = 0.00001\n\n[target]");
    refused(
        short,
        &[
            "pace.step_seconds = 0.00001 is too short for the 1 ranks",
            "it has to be at least",
        ],
    );
}

/// Batches of training would not meet it, and an evaluation would only when a run is over.
#[test]
fn validation_data_are_read_before_anything_is_run() {
    let run = Run::new()
        .key("data.files", "[\"hole.nc\"]")
        .key("data.memory_bytes", "0")
        .experiment(TWO);
    let hole = run.folder().join("hole.nc");
    fs::copy(root().join(".deps/data/E1_north_america.nc"), &hole).unwrap();
    {
        let file = File::open_rw(&hole).unwrap();
        let variable = file.dataset("air_temperature").unwrap();
        let nan = ndarray::arr0(f32::NAN);
        variable.write_slice(&nan, s![185, 3, 4]).unwrap();
    }
    refused(
        run,
        &["hole.nc", "has the value NaN at [time, y, x] = [185, 3, 4]"],
    );
}
