//! `tradewind experiment --slurm`: each cell is a job.

use std::collections::BTreeSet;
use std::fs;

use tradewind_tests::cluster::run::Run;
use tradewind_tests::cluster::slurm::Slurm;
use tradewind_tests::cluster::wait_for;

use super::on_nodes;

const FOUR: &str = r#"
[experiment]
name = "four"
base = "config.toml"
seeds = [1, 2]

[axes]
train.consistency = ["sync", "async"]

[target]
metric = "validation RMSE"
at_most = 1000.0
every_samples = 16
"#;

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn cells_are_jobs_two_at_a_time_and_what_has_finished_is_not_run_again() {
    let slurm = Slurm::take();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let base = on_nodes(Run::new())
        .key("train.samples", "320")
        .key("pace.step_seconds", "0.2");
    fs::write(file("config.toml"), base.text()).unwrap();
    fs::write(file("experiment.toml"), FOUR).unwrap();
    let (experiment, out) = (file("experiment.toml"), file("out"));
    let path = out.display().to_string();
    let arguments = [
        "experiment",
        &experiment.display().to_string(),
        "--slurm",
        "--at-once=2",
        "--out",
        &path,
    ];
    let recorded = || {
        let runs = fs::read_dir(out.join("runs"))
            .into_iter()
            .flatten()
            .flatten();
        runs.filter(|run| run.path().join("cell.json").exists())
            .count()
    };

    // It is killed with two jobs under way, which go on.
    let mut first = slurm.start(&arguments);
    let mut most = 0;
    wait_for("two cells", || {
        let jobs = slurm.run(&[
            "squeue",
            "--noheader",
            "--states=RUNNING,PENDING",
            "--format=%i",
        ]);
        // `4+1` is a component of job 4.
        let jobs = jobs.split_whitespace().map(|job| job.split('+').next());
        let jobs: BTreeSet<_> = jobs.collect();
        most = most.max(jobs.len());
        (recorded() >= 2).then_some(())
    });
    assert_eq!(most, 2, "so many jobs at a time");
    slurm.run(&[
        "pkill",
        "-KILL",
        "--full",
        &format!("experiment .*--out {path}"),
    ]);
    first.wait().unwrap();
    let finished: Vec<_> = fs::read_dir(out.join("runs")).unwrap().flatten().collect();
    let written = |run: &fs::DirEntry| {
        let record = fs::metadata(run.path().join("cell.json")).ok()?;
        record.modified().ok()
    };
    let before: Vec<_> = finished.iter().map(written).collect();

    slurm.tradewind(&arguments);
    assert_eq!(recorded(), 4);
    for (run, before) in finished.iter().zip(before) {
        assert!(
            before.is_none() || before == written(run),
            "{run:?} was run again"
        );
    }
    let table = fs::read_to_string(out.join("results.csv")).unwrap();
    let completed = table.lines().filter(|line| line.contains(",completed,"));
    assert_eq!(completed.count(), 4, "{table}");
    assert!(out.join("report.html").exists());
}
