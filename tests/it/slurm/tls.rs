//! Jobs speak mutual TLS: whoever does not belong to one is refused, and it goes on past the lives of its certificates.

use std::fs;

use serde_json::json;
use tradewind_common::identity::Identity;
use tradewind_common::run_files;
use tradewind_proto::authority::Authority;
use tradewind_tests::cluster::slurm::{Slurm, Submitted};
use tradewind_tests::cluster::{programs, wait_for};

use super::{a_server_is_up_again, endless, kill_process_of};

/// Processes of the job: their logs.
const LOGS: [&str; 5] = [
    "server-0",
    "server-1",
    "group-0-rank-0",
    "group-1-rank-0",
    "group-1-rank-1",
];

/// On the head, which has an address of its own beside those of the nodes, somebody has the run's token and speaks in
/// clear text, and somebody else speaks TLS with a certificate of another authority. The coordinator hears neither.
pub(super) fn strangers_are_refused(slurm: &Slurm, submitted: &Submitted<'_>) {
    let out = submitted.out();
    let read = |name: &str| wait_for(name, || fs::read_to_string(out.join(name)).ok());
    let copied = [
        run_files::CONFIG,
        run_files::TOKEN,
        run_files::COORDINATOR_ADDRESS,
    ];
    let copied = copied.map(|name| (name, read(name)));
    // The task of the first server writes it before there is a coordinator.
    let own = fs::read_to_string(out.join(run_files::PERSON)).expect("its owner has a certificate");
    let others = Authority::new("another").and_then(|other| other.pass(&Identity::Person(None)));
    let others = others.unwrap();
    let authority = |pass: &str| pass.rfind("-----BEGIN CERTIFICATE-----").unwrap();
    // They take the servers for what they are.
    let foreign = format!(
        "{}{}",
        &others[..authority(&others)],
        &own[authority(&own)..]
    );
    let program = programs().join("tradewind").display().to_string();
    for (reason, shown, words) in [
        ("no-tls", None, ""),
        ("other-authority", Some(foreign), "of another run or fleet"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path(run_files::COORDINATOR)).unwrap();
        for (name, text) in &copied {
            fs::write(path(name), text).unwrap();
        }
        if let Some(pass) = shown {
            fs::write(path(run_files::PERSON), pass).unwrap();
        }
        let asked = slurm.call(&[&program, "snapshot", &folder.path().display().to_string()]);
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(!asked.status.success(), "{reason}: {said}");
        for words in ["no snapshot of run", words] {
            assert!(said.contains(words), "{reason}: {said}");
        }
        wait_for(reason, || {
            let mut events = submitted.event_lines().into_iter();
            events.find(|event| event["kind"] == "caller_refused" && event["reason"] == reason)
        });
    }
}

/// Waits until each process of these logs has had its certificate renewed so often more.
pub(super) fn certificates_are_renewed(submitted: &Submitted<'_>, logs: &[&str], times: usize) {
    let renewed = |log: &str| {
        let path = submitted.out().join(format!("logs/{log}.log"));
        let text = fs::read_to_string(path).unwrap_or_default();
        text.matches("the certificate was renewed").count()
    };
    let before: Vec<usize> = logs.iter().map(|log| renewed(log)).collect();
    wait_for("certificates to be renewed", || {
        let mut logs = logs.iter().zip(&before);
        logs.all(|(log, before)| renewed(log) >= before + times)
            .then_some(())
    });
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_job_goes_on_past_the_lives_of_its_certificates() {
    let slurm = Slurm::take();
    let run = endless()
        .key("cluster.groups", "[1, 2]")
        .key("slurm.ranks_per_node", "1")
        // Renewed after 12 to 13 s: a process that is started just before that has 8 s left to load libtorch.
        .key("cluster.certificate_s", "20");
    let submitted = slurm.submit(&run);
    submitted.goes_on(0, 5);
    submitted.goes_on(1, 5);
    certificates_are_renewed(&submitted, &LOGS, 2);

    // Of what tasks enrolled with nothing is valid any more. A group forms anew, of a process that has lived on and of
    // another one, and a server comes back, to which all others connect.
    kill_process_of(&submitted, "group 1");
    wait_for("the group to form anew", || {
        let together = "group 1 is together: 2 ranks, incarnation ";
        let mut events = submitted.events().into_iter();
        events.find(|event| event.split(together).nth(1).is_some_and(|life| life != "1"))
    });
    kill_process_of(&submitted, "servers");
    a_server_is_up_again(&submitted);
    submitted.goes_on(0, 20);
    submitted.goes_on(1, 20);
    certificates_are_renewed(&submitted, &LOGS, 1);

    submitted.verb("cancel", &[]);
    let summary = submitted.summary();
    assert_eq!(summary["status"], "interrupted", "{}", submitted.log());
    let faults = &summary["faults"];
    assert_eq!(faults["lost"]["updates"], 0, "{faults}");
    let not_renewed = &faults["counts"]["certificate_not_renewed"];
    assert_eq!(not_renewed, &json!(null), "{faults}");
    assert_eq!(submitted.jobs().len(), 3, "no job was put back");
}
