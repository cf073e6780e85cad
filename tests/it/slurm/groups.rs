//! Groups come as jobs of their own, and go.

use tradewind_tests::cluster::slurm::Slurm;
use tradewind_tests::cluster::wait_for;

use super::endless;

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn groups_are_attached_and_detached_while_others_train() {
    let slurm = Slurm::take();
    let submitted = slurm.submit(&endless());
    submitted.goes_on(0, 5);
    let told = submitted.verb("attach", &["--groups", "1"]);
    assert!(told.contains("group 2 on 1 node"), "{told}");
    submitted.goes_on(2, 5);
    submitted.goes_on(0, 5);
    submitted.verb("detach", &["2"]);
    wait_for("the end of its job", || {
        let jobs = submitted.jobs();
        let own = jobs.iter().find(|job| !job.number.contains('+'))?;
        (own.state == "COMPLETED").then_some(())
    });
    submitted.goes_on(0, 5);
    submitted.goes_on(1, 5);

    // Another one leaves because its job is cancelled.
    submitted.verb("attach", &[]);
    submitted.goes_on(3, 5);
    let jobs = submitted.jobs();
    let own = jobs.iter().rfind(|job| job.state == "RUNNING").unwrap();
    slurm.run(&["scancel", &own.number]);
    submitted.goes_on(0, 20);
    submitted.tells("group 3 is done and has left");
    let events = submitted.events();
    let is_lost = |event: &String| event.contains("rank 0 of group 3 is lost");
    assert!(!events.iter().any(is_lost), "{events:?}");
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_group_that_waits_for_nodes_holds_nobody_up() {
    let slurm = Slurm::take();
    // The third group asks for all four nodes of its kind, of which the first two have one each.
    let run = endless()
        .key("cluster.groups", "[1, 1, 4]")
        .key("slurm.ranks_per_node", "1")
        .key(
            "slurm.group_options",
            "[\"--constraint=gpu\", \"--exclusive\"]",
        )
        .key("slurm.min_groups", "2")
        .key("liveness.start_grace_ms", "2000");
    let submitted = slurm.submit(&run);
    submitted.goes_on(0, 5);
    let status = submitted.verb("status", &[]);
    assert!(
        status.contains("out: ready, 2 of 3 groups live, clock "),
        "{status}"
    );
    let line = |what: &str| {
        let line = status.lines().find(|line| line.contains(what));
        line.unwrap_or_else(|| panic!("{what} is missing in {status}"))
    };
    assert!(line("group 0").contains("live, clock "), "{status}");
    assert!(line("servers").contains("2 of 2 up"), "{status}");
    assert!(line("group 2").contains("PENDING"), "{status}");
    assert!(line("group 2").contains("not yet there"), "{status}");
    let told = submitted.verb("detach", &["2"]);
    assert!(told.contains("is taken out of the queue"), "{told}");
    let jobs = submitted.jobs();
    let waits = jobs.iter().any(|job| job.state == "PENDING");
    assert!(!waits, "{jobs:?}");
    submitted.goes_on(0, 5);
}
