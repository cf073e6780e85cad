//! The simulator beside the runs in docs/results.

use std::path::{Path, PathBuf};

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of seed 1 of an experiment that took part in no fit.
fn rows(plan: &str, experiment: &str) -> Vec<Compared> {
    let root = root();
    let plan = root.join(format!("deploy/plans/{plan}.toml"));
    let plan = Plan::read(&plan, &[]).unwrap();
    let results = root.join(format!("docs/results/{experiment}.csv"));
    let experiment = root.join(format!("deploy/experiments/{experiment}.toml"));
    let wanted = |cell: &str| cell.ends_with("seed-1") && !cell.contains("none-seed");
    stored(&plan, &results, &experiment, wanted).unwrap()
}

#[test]
fn stored_runs_are_told_to_within_a_few_percent() {
    let rows = rows("stored-mnist", "staleness");
    assert_eq!(rows.len(), 12, "two profiles, six settings");
    let (median, worst) = summary(&rows);
    assert!(
        median < 0.03 && worst < 0.07,
        "median {median}, worst {worst}"
    );
    for row in &rows {
        let (predicted, measured) = (row.predicted, row.measured);
        let few = (predicted.updates - measured.updates).abs() <= 3.0;
        assert!(few, "{}: {predicted:?} {measured:?}", row.name);
        let lag = (predicted.lag_max - measured.lag_max).abs();
        assert!(
            lag <= 1.0 + 0.03 * measured.lag_max,
            "{}: {predicted:?} {measured:?}",
            row.name
        );
    }
}

/// Errors that docs/scale.md tells of.
#[test]
fn runs_came_out_as_they_were_predicted_before_they_were_made() {
    let root = root();
    for (plan, experiment, count, most) in [
        ("stored-mnist", "predicted", 12, (0.01, 0.10)),
        ("shaped-mnist", "predicted-shaped", 11, (0.10, 0.22)),
        ("unpaced-mnist", "predicted-unpaced", 8, (0.10, 0.42)),
    ] {
        let plan = Plan::read(&root.join(format!("deploy/plans/{plan}.toml")), &[]).unwrap();
        let measured = root.join(format!("docs/results/{experiment}-measured.csv"));
        let experiment = root.join(format!("deploy/plans/{experiment}.toml"));
        let rows = stored(&plan, &measured, &experiment, |_| true).unwrap();
        assert_eq!(rows.len(), count);
        let (median, worst) = summary(&rows);
        assert!(
            median < most.0 && worst < most.1,
            "{}: median {median}, worst {worst}",
            experiment.display()
        );
    }
}

#[test]
fn a_run_is_found_by_its_folder() {
    let root = root();
    let plan = Plan::read(&root.join("deploy/plans/stored-mnist.toml"), &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let missing = of_run(&plan, folder.path()).unwrap_err().to_string();
    assert!(missing.contains("config.toml"), "{missing}");
    let config = plan.config.resolved();
    std::fs::write(folder.path().join("config.toml"), config).unwrap();
    let summary = r#"{"train_seconds": 86.0, "updates": {"applied": 1250}, "delay": {"p50": 0},
        "groups": [{"lag_max": 0}, {"lag_max": 1}]}"#;
    std::fs::write(folder.path().join("summary.json"), summary).unwrap();
    let row = of_run(&plan, folder.path()).unwrap();
    assert_eq!((row.measured.seconds, row.measured.lag_max), (86.0, 1.0));
    assert_eq!(row.predicted.updates, row.measured.updates);
    assert!(row.error().abs() < 0.03, "{row:?}");
}

/// Whoever runs them finds what was said before.
#[test]
fn predictions_are_those_that_were_written_down() {
    let root = root();
    for (plan, name) in [
        ("stored-mnist", "predicted"),
        ("shaped-mnist", "predicted-shaped"),
        ("unpaced-mnist", "predicted-unpaced"),
    ] {
        let plan = Plan::read(&root.join(format!("deploy/plans/{plan}.toml")), &[]).unwrap();
        let experiment = root.join(format!("deploy/plans/{name}.toml"));
        let experiment = Experiment::read(&experiment).unwrap();
        let cells = experiment.cells();
        let mut table =
            csv::Reader::from_path(root.join(format!("docs/results/{name}.csv"))).unwrap();
        let written: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
        assert_eq!(written.len(), cells.len());
        for ((point, seed), row) in cells.iter().zip(&written) {
            let numbers = predict(&plan, experiment.config(point, *seed).unwrap()).unwrap();
            assert_eq!(
                (row[0].to_owned(), row[1].to_owned()),
                (point[0].1.clone(), seed.to_string())
            );
            let seconds: f64 = row[2].parse().unwrap();
            assert!(
                (numbers.seconds / seconds - 1.0).abs() < 0.01,
                "{row:?}: {numbers:?}"
            );
        }
    }
}

#[test]
fn a_row_says_by_how_much_it_is_off() {
    let numbers = |seconds| Numbers {
        seconds,
        updates: 1.0,
        delay_p50: 0.0,
        lag_max: 0.0,
    };
    let row = |seconds| Compared {
        name: "r".into(),
        setting: "s".into(),
        predicted: numbers(seconds),
        measured: numbers(10.0),
    };
    let rows = [row(11.0), row(9.8), row(10.0)];
    let (median, worst) = summary(&rows);
    assert!((median - 0.02).abs() < 1e-9 && (worst - 0.1).abs() < 1e-9);
    let (median, _) = summary(&rows[..2]);
    assert!((median - 0.06).abs() < 1e-9, "{median}");
}
