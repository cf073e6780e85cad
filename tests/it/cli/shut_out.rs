//! `tradewind revoke`: servers, ranks and people are shut out of a run that goes on.

use rustix::process::Signal;
use serde_json::json;
use tokio::runtime::Builder;
use tonic::transport::Endpoint;
use tradewind_common::run_files;
use tradewind_proto::auth::Credentials;
use tradewind_proto::refusal;
use tradewind_proto::v1::StatusRequest;
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_server::store::read_address;
use tradewind_tests::cluster::process::{alive, signal};
use tradewind_tests::cluster::run::{Run, Running};
use tradewind_tests::cluster::wait_for;

use super::groups::revoke;

pub(super) fn go_on(running: &Running, group: u32) {
    let exchanges = || {
        let records = running.records();
        records.iter().filter(|r| r.group == group).count()
    };
    let before = exchanges();
    wait_for("more exchanges", || {
        (exchanges() > before + 5).then_some(())
    });
}

/// What the coordinator says to somebody who has a certificate of this file: the word of a refusal, or nothing.
fn asks(running: &Running, file: &str) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(running.out().join(name)).unwrap();
    let shown = Credentials::new(&read(run_files::TOKEN), Some(&read(file))).unwrap();
    let there = read_address(&running.out()).unwrap().unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", there.address)).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = endpoint.connect_with_connector(shown.connector()).await;
        let mut client = CoordinatorClient::with_interceptor(channel.unwrap(), shown.show());
        let run = "small".into();
        let refused = client.status(StatusRequest { run }).await.err();
        refused.map(|status| refusal::reason(&status).unwrap().to_owned())
    })
}

#[test]
fn a_rank_a_server_and_a_person_are_shut_out_while_others_train() {
    let run = Run::endless()
        .key("cluster.groups", "[1, 2]")
        .key("cluster.servers", "2")
        .key("servers.replication", "2")
        .key("cluster.people", "[\"alice\", \"bob\"]")
        .key("cluster.security", "\"tls\"");
    let mut running = run.key("train.consistency", "\"async\"").start();
    let rows = running.trains(2);
    for (whom, want) in [
        (
            &["--person", "carol"][..],
            "nobody has a certificate of this name",
        ),
        (&["--rank", "1"], "--group"),
        (
            &["--group", "1", "--rank", "2"],
            "group 1 has ranks 0 to 1, not 2",
        ),
        (&["--server", "0"], "server 0 hosts the coordinator"),
    ] {
        let (status, said) = revoke(&running, whom);
        assert_ne!(status, Some(0), "{said}");
        assert!(said.contains(want), "{said}");
    }
    let [alice, bob] = ["alice", "bob"].map(run_files::person);
    for file in [&alice, &bob] {
        assert_eq!(asks(&running, file), None);
    }

    let whom = ["--person", "bob", "--server", "1"];
    let (status, said) = revoke(&running, &whom);
    assert_eq!(status, Some(0), "{said}");
    let want = "server 1 and bob of run small: certificates are revoked";
    assert!(said.contains(want), "{said}");
    let revoked = Some("revoked-certificate".to_owned());
    assert_eq!(asks(&running, &bob), revoked);
    assert_eq!(asks(&running, &alice), None);
    let mut servers = rows.iter().filter(|row| row.role == "server");
    let server = servers.find(|row| row.index == 1).unwrap();
    wait_for("the end of the server", || {
        (!alive(server.pid)).then_some(())
    });
    go_on(&running, 0);
    go_on(&running, 1);

    let (status, said) = revoke(&running, &["--group", "1", "--rank", "1"]);
    assert_eq!(status, Some(0), "{said}");
    for row in rows.iter().filter(|row| row.group == Some(1)) {
        wait_for("the end of a rank", || (!alive(row.pid)).then_some(()));
    }
    go_on(&running, 0);
    signal(running.pid(), Signal::INT);
    let ended = running.end();
    let events = std::fs::read_to_string(ended.out().join("events.jsonl")).unwrap();
    let summary = ended.summary();
    let counts = &summary["faults"]["counts"];
    // None is started again.
    assert_eq!(counts["process_died"], json!(null), "{events}");
    assert_eq!(counts["process_restarted"], json!(null), "{events}");
}
