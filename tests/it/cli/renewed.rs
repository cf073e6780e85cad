//! Certificates that live for seconds: a run goes on past several lives, with connections that are made anew.

use std::sync::mpsc;

use rustix::process::Signal;
use serde_json::json;
use tokio::runtime::Builder;
use tradewind_common::run_files;
use tradewind_proto::auth::Credentials;
use tradewind_proto::renewal::Attempt;
use tradewind_tests::cluster::process::signal;
use tradewind_tests::cluster::run::{Row, Run, Running, kill};
use tradewind_tests::cluster::wait_for;

use super::groups::revoke;
use super::shut_out::go_on;

/// Processes of the run: their logs.
const LOGS: [&str; 5] = [
    "server-0",
    "server-1",
    "group-0-rank-0",
    "group-1-rank-0",
    "group-1-rank-1",
];

/// Waits until each process has had its certificate renewed so often more.
fn lives(running: &Running, times: usize) {
    let renewed = |log: &str| {
        let path = running.out().join(format!("logs/{log}.log"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.matches("the certificate was renewed").count()
    };
    let before = LOGS.map(renewed);
    wait_for("certificates to be renewed", || {
        let mut logs = LOGS.iter().zip(before);
        logs.all(|(log, before)| renewed(log) >= before + times)
            .then_some(())
    });
}

/// How the renewal of a certificate in this file comes out: the reason, if it fails.
fn renew(running: &Running, file: &str) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(running.out().join(name)).unwrap();
    let shown = Credentials::new(&read(run_files::TOKEN), Some(&read(file))).unwrap();
    let renewing = shown.renewing().expect("it says where it is renewed");
    let (told, attempts) = mpsc::channel();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let keeping = renewing.keep(move |attempt| {
        let _ = told.send(attempt);
    });
    runtime.spawn(keeping);
    match attempts.recv().unwrap() {
        Attempt::Renewed => None,
        Attempt::Failed(why) => Some(why),
    }
}

#[test]
fn a_run_goes_on_past_the_lives_of_its_certificates() {
    let run = Run::endless()
        .key("cluster.groups", "[1, 2]")
        .key("cluster.servers", "2")
        .key("servers.replication", "2")
        .key("cluster.people", "[\"alice\", \"bob\"]")
        .key("cluster.security", "\"tls\"")
        .key("cluster.certificate_s", "60")
        // Minutes, in which it need not compute much.
        .key("pace.step_seconds", "0.2");
    let mut running = run.key("train.consistency", "\"async\"").start();
    let rows = running.trains(2);
    lives(&running, 2);

    // Of what processes were started with nothing is valid any more, and all connections to this server are made anew,
    // by it and by others.
    let server = |rows: &[Row]| {
        let mut servers = rows.iter().filter(|row| row.role == "server");
        servers.find(|row| row.index == 1).unwrap().pid
    };
    let before = server(&rows);
    kill(before);
    go_on(&running, 0);
    go_on(&running, 1);
    wait_for("the server to be started again", || {
        (server(&running.processes()) != before).then_some(())
    });
    // So with a group that forms anew, of a process that has lived on and another one.
    let rank = rows.iter().find(|row| row.group == Some(1));
    kill(rank.unwrap().pid);
    go_on(&running, 0);
    go_on(&running, 1);
    lives(&running, 1);

    // A person's file is as new as that; and who is revoked gets nothing.
    let [alice, bob] = ["alice", "bob"].map(run_files::person);
    let (status, said) = revoke(&running, &["--person", "bob"]);
    assert_eq!(status, Some(0), "{said}");
    let refused = renew(&running, &bob).expect("bob is revoked");
    assert!(refused.contains("(revoked-certificate)"), "{refused}");
    assert_eq!(renew(&running, &alice), None);

    signal(running.pid(), Signal::INT);
    let summary = running.end().summary();
    let counts = &summary["faults"]["counts"];
    assert_eq!(counts["process_died"], json!(2), "{counts}");
    assert_eq!(counts["certificate_not_renewed"], json!(null), "{counts}");
    assert_eq!(summary["faults"]["lost"]["updates"], json!(0), "{summary}");
}
