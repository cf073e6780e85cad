//! A run is a job; it ends with a result, or goes on in the next one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tradewind_tests::cluster::run::Run;
use tradewind_tests::cluster::slurm::{Slurm, Submitted};
use tradewind_tests::cluster::{programs, root, wait_for};

use super::tls::strangers_are_refused;
use super::{endless, on_nodes};

/// Under `sync` bits follow from the seed, wherever servers and ranks are.
#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_job_of_three_components_comes_to_what_a_local_run_comes_to() {
    let slurm = Slurm::take();
    let run = || {
        Run::shipped("climate-forecast.toml")
            .key("train.consistency", "\"sync\"")
            .key("train.samples", "1376")
            .key("schedule.warmup_samples", "172")
    };
    let local = run().complete();
    assert!(local.status.success(), "{}", local.stderr);
    // Slow enough that it still goes on when strangers have asked.
    let paced = on_nodes(run()).key("pace.step_seconds", "0.1");
    let (submitted, shown) = slurm.watch_beside(&paced, |submitted| {
        strangers_are_refused(&slurm, submitted);
    });
    for text in ["group 1: clock", "100%", "RMSE", "completed; the run is in"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let summary = submitted.summary();
    assert_eq!(summary["status"], "completed", "{}", submitted.log());
    assert_eq!(
        summary["metric"]["value"],
        local.summary()["metric"]["value"]
    );
    let jobs = wait_for("the end of the job", || {
        let jobs = submitted.jobs();
        let over = jobs.iter().all(|job| job.state == "COMPLETED");
        over.then_some(jobs)
    });
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    let status = submitted.verb("status", &[]);
    assert!(status.contains("out: completed\n"), "{status}");
    assert!(status.contains("group 1"), "{status}");
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn before_the_time_limit_a_run_is_kept_and_goes_on_at_its_clock() {
    let slurm = Slurm::take();
    let run = endless()
        .key("train.consistency", "\"sync\"")
        .key("slurm.time_limit", "\"00:02:00\"")
        .key("liveness.notice_ms", "5000");
    let submitted = slurm.submit(&run);
    // Slurm tells of it when 25 to 85 s have passed.
    wait_for("the time limit", || {
        let told = submitted.log().contains("goes back into the queue");
        told.then_some(())
    });
    wait_for("the second start", || {
        let restored = submitted.log().matches("has restored shard").count();
        (restored >= 2).then_some(())
    });
    submitted.goes_on(0, 5);
    let log = submitted.log();
    assert!(
        log.contains("the time limit is near: groups leave"),
        "{log}"
    );
    assert!(log.contains("goes back into the queue"), "{log}");
    assert!(!log.contains("is lost"), "{log}");
    // What was trained before the limit was kept to the last step, and nothing was trained twice. The
    // groups need not leave at the same clock, but they go on at one.
    let records = submitted.records();
    let clocks = |group| {
        let own = records.iter().filter(move |record| record.group == group);
        own.map(|record| record.clock).collect::<Vec<u64>>()
    };
    let all: BTreeSet<u64> = [clocks(0), clocks(1)].concat().into_iter().collect();
    assert!(all.iter().copied().eq(0..all.len() as u64), "{all:?}");
    for group in [0, 1] {
        let own = clocks(group);
        assert!(own.is_sorted_by(|a, b| a < b), "of group {group}: {own:?}");
    }
    // Secrets of the first start are void; each task of the second has used its own.
    let folder = submitted.out().join("slurm/enrolment");
    let starts = names(&folder);
    assert!(starts.len() == 1 && starts[0].ends_with("-1"), "{starts:?}");
    let folder = folder.join(&starts[0]);
    // Beside each is the link that uses it.
    let tasks = ["group-0-rank-0", "group-1-rank-0", "server-1"];
    let used = tasks.map(|task| [task.to_owned(), format!("{task}.key")]);
    assert_eq!(names(&folder), used.concat());
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_cancelled_run_leaves_a_snapshot() {
    let slurm = Slurm::take();
    let submitted = slurm.submit(&endless());
    submitted.goes_on(0, 5);
    submitted.goes_on(1, 5);
    let told = submitted.verb("cancel", &[]);
    assert!(told.contains("cancelled: "), "{told}");
    wait_for("the end of the jobs", || {
        let jobs = submitted.jobs();
        jobs.iter()
            .all(|job| job.state == "CANCELLED")
            .then_some(())
    });
    // The first is taken before training begins.
    let snapshots = fs::read_dir(submitted.out().join("snapshots/small")).unwrap();
    assert!(snapshots.count() >= 2);

    // Whoever looks at the run that goes on is not told how it ended, although its job has not begun.
    assert_eq!(submitted.summary()["status"], "interrupted");
    let out = submitted.out().display().to_string();
    let config = submitted.out().join("config.toml").display().to_string();
    let held = "--set=slurm.options=[\"--hold\"]";
    slurm.tradewind(&["slurm", "submit", &config, "--out", &out, "--resume", held]);
    assert!(!submitted.out().join("summary.json").exists());
    submitted.verb("cancel", &["--now"]);
}

/// Nobody waits for servers that cannot begin, and the run says why.
#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_run_whose_servers_cannot_begin_fails_with_their_words() {
    let slurm = Slurm::take();
    let submitted = fails(&slurm, &endless().key("slurm.interface", "\"hsn7\""));
    let summary = submitted.summary();
    assert_eq!(summary["failure"]["role"], "server");
    let reason = summary["failure"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("\"hsn7\" has no address on this node"),
        "{reason}"
    );
    let status = submitted.verb("status", &[]);
    assert!(status.contains("out: failed\n"), "{status}");
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn training_that_diverges_fails_with_the_status_that_it_has_elsewhere() {
    let slurm = Slurm::take();
    let rate = endless().key("optimizer.learning_rate", "1000000.0");
    let failure = &fails(&slurm, &rate).summary()["failure"];
    assert_eq!(failure["role"], "worker", "{failure}");
    assert_eq!(failure["exit_status"], 6, "{failure}");
    assert!(failure["group"].is_u64(), "{failure}");
    assert!(failure["group_rank"].is_u64(), "{failure}");
}

/// Hands a run in; it has failed.
#[track_caller]
fn fails<'a>(slurm: &'a Slurm, run: &Run) -> Submitted<'a> {
    let submitted = slurm.submit(run);
    wait_for("the end of the job", || {
        let jobs = submitted.jobs();
        let over = jobs.iter().all(|job| job.state == "FAILED");
        (over && !jobs.is_empty()).then_some(())
    });
    assert_eq!(
        submitted.summary()["status"],
        "failed",
        "{}",
        submitted.log()
    );
    submitted
}

/// A second job would train in the same folder.
#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_job_is_known_although_who_handed_it_in_was_killed_over_it() {
    let slurm = Slurm::take();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("config.toml"), endless().text()).unwrap();
    let sbatch = slurm.run(&["sh", "-c", "command -v sbatch"]);
    let killer = format!(
        "#!/bin/sh\n{} \"$@\" >/dev/null && kill -KILL $PPID\n",
        sbatch.trim()
    );
    fs::write(path("sbatch"), killer).unwrap();
    slurm.run(&["chmod", "+x", &path("sbatch")]);
    let program = programs().join("tradewind").display().to_string();
    let submit = format!(
        "{program} slurm submit {} --out {}",
        path("config.toml"),
        path("out")
    );
    let killed = format!("PATH={}:$PATH; {submit}", folder.path().display());
    assert!(!slurm.call(&["sh", "-c", &killed]).status.success());

    let again = slurm.call(&["sh", "-c", &submit]);
    let told = String::from_utf8_lossy(&again.stderr);
    assert!(
        !again.status.success() && told.contains(" has job "),
        "{told}"
    );
    let told = slurm.tradewind(&["slurm", "cancel", &path("out"), "--now"]);
    assert!(told.contains("cancelled: "), "{told}");
    slurm.is_idle();
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn sbatch_takes_the_scripts_of_shipped_configurations() {
    let slurm = Slurm::take();
    // Two groups of the last are jobs of their own.
    let jobs = [
        ("climate-forecast", 1),
        ("mnist", 1),
        ("resnet50", 1),
        ("perlmutter", 3),
    ];
    for (name, jobs) in jobs {
        let config = root().join(format!("deploy/configs/{name}.toml"));
        let config = config.display().to_string();
        let out = tempfile::tempdir().unwrap();
        let out = out.path().join("r").display().to_string();
        let told = slurm.tradewind(&["slurm", "submit", &config, "--out", &out, "--dry-run"]);
        assert_eq!(told.matches("to start at").count(), jobs, "{name}: {told}");
    }
}
