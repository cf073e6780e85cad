//! Several runs at once: on the servers of one fleet, and each with servers of its own.

use std::process::Command;

use tradewind_tests::cluster::run::Run;
use tradewind_tests::cluster::slurm::{Slurm, Submitted};
use tradewind_tests::cluster::wait_for;

use super::{endless, on_nodes};

fn named(run: Run, name: &str) -> Run {
    run.key("run.name", format!("{name:?}"))
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn runs_come_to_a_fleet_and_leave_it_and_one_that_fails_is_not_felt() {
    let slurm = Slurm::take();
    let fleet = slurm.serve(&named(endless(), "shared"));
    let long = slurm.submit_on(&fleet, &named(endless(), "long"));
    long.goes_on(0, 5);
    let short = named(endless(), "short").key("train.samples", "512");
    let short = slurm.submit_on(&fleet, &short);
    let fails = named(endless(), "fails")
        .key("optimizer.learning_rate", "100000.0")
        .key("optimizer.name", "\"sgd\"");
    let fails = slurm.submit_on(&fleet, &fails);

    let summary = short.summary();
    assert_eq!(summary["status"], "completed", "{}", short.log());
    assert!(
        summary["samples"]["applied"].as_u64() >= Some(512),
        "{summary}"
    );
    let summary = fails.summary();
    assert_eq!(summary["status"], "failed", "{summary}");

    // Both leave; the third goes on, and had lost nothing.
    for gone in ["short", "fails"] {
        fleet.tells(&format!("run {gone} is removed"));
    }
    let page = fleet.status();
    assert!(page.contains("long   training"), "{page}");
    long.goes_on(0, 20);
    long.goes_on(1, 20);
    let status = long.status();
    assert!(status.contains("lost by restoring: nothing"), "{status}");
    assert!(!status.contains("is lost"), "{status}");
    assert!(!status.contains("short"), "{status}");

    // Cancelled, it has a last snapshot on the fleet, and goes on from there; so it does when the fleet
    // has ended, too, and is there again.
    let path = |of: &Submitted<'_>| of.out().display().to_string();
    let config = |of: &Submitted<'_>| of.out().with_file_name("config.toml").display().to_string();
    for ends in [vec![&long], vec![&long, &fleet]] {
        let before = long.clock(0).unwrap();
        for one in &ends {
            one.verb("cancel", &[]);
            wait_for("the end of its job", || {
                let jobs = one.jobs();
                // Servers that have ended in order have done their part.
                jobs.iter()
                    .all(|job| ["CANCELLED", "COMPLETED"].contains(&job.state.as_str()))
                    .then_some(())
            });
        }
        let summary = long.summary();
        assert_eq!(summary["status"], "interrupted", "{summary}");
        if ends.len() == 2 {
            let (config, out) = (config(&fleet), path(&fleet));
            slurm.tradewind(&["slurm", "serve", &config, "--out", &out, "--resume"]);
        }
        let (config, out, on) = (config(&long), path(&long), path(&fleet));
        let again = [
            "slurm", "submit", &config, "--out", &out, "--fleet", &on, "--resume",
        ];
        slurm.tradewind(&again);
        long.goes_on(0, 5);
        let records = long.records();
        let own = records.iter().filter(|record| record.group == 0);
        let clocks: Vec<u64> = own.map(|record| record.clock).collect();
        assert!(
            clocks.is_sorted_by(|a, b| a < b),
            "trained twice: {clocks:?}"
        );
        assert!(clocks.last() > Some(&before));
    }

    // Without its lead nobody takes it off the fleet, until somebody asks for it.
    let lead = format!("slurm lead {}", path(&long));
    let killed = Command::new("pkill").args(["-KILL", "-f", &lead]).status();
    assert!(killed.unwrap().success());
    wait_for("the end of its job", || {
        let jobs = long.jobs();
        let over = |state: &str| !["RUNNING", "COMPLETING", "PENDING"].contains(&state);
        jobs.iter().all(|job| over(&job.state)).then_some(())
    });
    assert!(fleet.status().contains("long   "), "{}", fleet.status());
    let told = long.verb("cancel", &[]);
    assert!(told.contains("the fleet has forgotten run long"), "{told}");
    let page = fleet.status();
    assert!(page.contains("fleet shared"), "{page}");
    assert!(!page.contains("long   "), "{page}");
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn two_runs_with_jobs_of_their_own_do_not_meet() {
    let slurm = Slurm::take();
    let run = || {
        on_nodes(Run::new())
            .key("cluster.groups", "[1, 1]")
            .key("train.consistency", "\"sync\"")
            .key("train.samples", "800")
            .key("pace.step_seconds", "0.05")
    };
    let submitted = [slurm.submit(&run()), slurm.submit(&run())];
    // At the same time: neither has ended when both train.
    for one in &submitted {
        one.goes_on(0, 2);
    }
    assert!(
        submitted
            .iter()
            .all(|one| !one.out().join("summary.json").exists())
    );
    let [one, other] = submitted.each_ref().map(|run| run.summary());
    assert_eq!([&one["status"], &other["status"]], ["completed"; 2]);
    assert_eq!(
        one["metric"]["value"], other["metric"]["value"],
        "the same seed"
    );
    assert!(one["metric"]["value"].is_f64());
}
