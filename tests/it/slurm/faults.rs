//! Nodes lose power or their cable; the run goes on.

use tradewind_tests::cluster::run::Run;
use tradewind_tests::cluster::slurm::{Slurm, Submitted};
use tradewind_tests::cluster::wait_for;

use super::tls::certificates_are_renewed;
use super::{a_server_is_up_again, endless, kill_process_of};

/// A run whose groups have come some way, and what happens to it; it finishes if somebody sees it to its
/// end, and nothing acknowledged is lost.
fn check(nodes: &[&str], finishes: bool, happen: impl FnOnce(&Slurm, &Submitted<'_>)) {
    check_run(endless(), nodes, finishes, happen);
}

/// The same, of a run that is like [`endless`].
fn check_run(
    run: Run,
    nodes: &[&str],
    finishes: bool,
    happen: impl FnOnce(&Slurm, &Submitted<'_>),
) {
    let slurm = Slurm::take();
    // Slurm ends a component of which no node is left, and with it the others: so each has two.
    let run = run
        .key("cluster.groups", "[2, 2]")
        .key("slurm.ranks_per_node", "1");
    // Half a minute and more of two groups.
    let run = match finishes {
        true => run.key("train.samples", "12800"),
        false => run,
    };
    let submitted = slurm.submit(&run);
    submitted.goes_on(0, 5);
    submitted.goes_on(1, 5);
    happen(&slurm, &submitted);
    if finishes {
        let summary = submitted.summary();
        assert_eq!(summary["status"], "completed", "{}", submitted.log());
        assert_eq!(summary["faults"]["lost"]["updates"], 0, "{summary}");
        assert!(summary["metric"]["value"].is_f64(), "{summary}");
    }
    drop(submitted);
    for node in nodes {
        slurm.node("on", node);
        slurm.node("uncut", node);
    }
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn the_node_of_a_group_is_powered_off() {
    check(&["n8"], true, |slurm, submitted| {
        slurm.node("off", "n8");
        submitted.goes_on(0, 50);
        submitted.tells("rank 1 of group 1 is lost");
    });
}

/// Slurm ends the whole job then, puts it back into the queue, and starts it when there is a node.
#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn the_only_node_of_a_group_is_powered_off() {
    let slurm = Slurm::take();
    let run = endless()
        .key("train.samples", "6400")
        .key("liveness.snapshot_ms", "2000");
    let submitted = slurm.submit(&run);
    submitted.goes_on(0, 25);
    submitted.goes_on(1, 25);
    let jobs = submitted.jobs();
    let own = jobs.iter().find(|job| job.number.ends_with("+2")).unwrap();
    let node = own.reason.clone();
    slurm.node("off", &node);
    wait_for("the job to be in the queue again", || {
        let jobs = submitted.jobs();
        jobs.iter().all(|job| job.state == "PENDING").then_some(())
    });
    // Slurm would wait for two minutes more, in which all of the start before comes to its end. At once
    // would be too soon: slurmctld 22.05 then takes what is said of that end for the new start (it has
    // died of it), and nodes refuse the job, whose credential was just revoked.
    for job in submitted.jobs() {
        slurm.run(&[
            "scontrol",
            "update",
            &format!("JobId={}", job.number),
            "StartTime=now+20",
        ]);
    }
    let summary = submitted.summary_of("completed");
    assert!(summary["metric"]["value"].is_f64(), "{summary}");
    let log = submitted.log();
    assert!(log.contains("has restored shard"), "{log}");
    drop(submitted);
    slurm.node("on", &node);
    slurm.is_idle();
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn the_node_of_a_server_is_powered_off() {
    check(&["n2"], true, |slurm, submitted| {
        slurm.node("off", "n2");
        submitted.goes_on(0, 50);
        submitted.goes_on(1, 50);
        submitted.tells("server 0 answers for shard 1");
        let told = submitted.status();
        assert!(told.contains("lost by restoring: nothing"), "{told}");
    });
}

/// With it go the batch script, a server, the coordinator, and the authority that has founded itself there: the task of
/// server 1 has its key.
#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn the_batch_node_is_powered_off() {
    // Renewed after 27 to 30 s.
    let run = endless().key("cluster.certificate_s", "40");
    check_run(run, &["n1"], false, |slurm, submitted| {
        let successor = submitted.out().join("slurm/authorities/1.json");
        wait_for("a successor", || successor.exists().then_some(()));
        slurm.node("off", "n1");
        submitted.goes_on(0, 50);
        submitted.goes_on(1, 50);
        let told = submitted.status();
        assert!(told.contains("coordinator 2 at"), "{told}");
        assert!(told.contains("lost by restoring: nothing"), "{told}");
        let jobs = submitted.verb("status", &[]);
        assert!(jobs.contains("RUNNING"), "{jobs}");

        let alive = ["server-1", "group-0-rank-0", "group-1-rank-1"];
        certificates_are_renewed(submitted, &alive, 1);
        // What this task enrolled for has had two thirds of its life: it enrols again.
        kill_process_of(submitted, "group 1");
        group_1_forms_anew(submitted);
        submitted.goes_on(1, 20);

        let told = submitted.verb("cancel", &[]);
        assert!(told.contains("cancelled: "), "{told}");
    });
}

fn group_1_forms_anew(submitted: &Submitted<'_>) {
    wait_for("the group to form anew", || {
        // Where its rank was slow to come back, it has gone on with the other one before.
        let together = "group 1 is together: 2 ranks, incarnation ";
        let mut events = submitted.events().into_iter();
        events.find(|event| event.split(together).nth(1).is_some_and(|life| life != "1"))
    });
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_cable_is_cut_and_plugged_in_again() {
    for node in ["n2", "n5"] {
        check(&[node], true, |slurm, submitted| {
            slurm.node("cut", node);
            wait_for("somebody to be missed", || {
                let missed = ["is gone: its lease ran out", "is lost"];
                let mut events = submitted.events().into_iter();
                events.find(|event| missed.iter().any(|words| event.contains(words)))
            });
            slurm.node("uncut", node);
            submitted.goes_on(0, 50);
            submitted.goes_on(1, 50);
            let told = submitted.status();
            assert!(told.contains("lost by restoring: nothing"), "{told}");
        });
    }
}

/// Tasks start their processes again, in the same step.
#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_rank_and_a_server_are_killed() {
    check(&[], true, |_, submitted| {
        kill_process_of(submitted, "group 1");
        group_1_forms_anew(submitted);
        kill_process_of(submitted, "servers");
        a_server_is_up_again(submitted);
        submitted.goes_on(0, 50);
        submitted.goes_on(1, 50);
        assert_eq!(submitted.jobs().len(), 3, "no job was put back");
    });
}
