//! Groups come to a run under way, and leave it.

use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::json;
use tokio::runtime::Runtime;
use tonic::Request;
use tonic::transport::Channel;
use tradewind_common::{environment, run_files};
use tradewind_programs::WORKER;
use tradewind_programs::worker::{CoordinatorArgument, THREADS, TrainArguments, WorkerArguments};
use tradewind_proto::auth::{Credentials, ShowToken};
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::{AttachRequest, DrainRequest};
use tradewind_server::store::read_address;
use tradewind_tests::cluster::process::{alive, signal};
use tradewind_tests::cluster::run::{Run, Running};
use tradewind_tests::cluster::{programs, wait_for};

type Client =
    CoordinatorClient<tonic::service::interceptor::InterceptedService<Channel, ShowToken>>;

fn coordinator(running: &Running, runtime: &Runtime) -> Client {
    let there = read_address(&running.out()).unwrap().unwrap();
    let token = std::fs::read_to_string(running.out().join("token")).unwrap();
    let address = format!("http://{}", there.address);
    let endpoint = Channel::from_shared(address).unwrap();
    let channel = runtime.block_on(endpoint.connect()).unwrap();
    let shown = Credentials::new(&token, None).unwrap();
    CoordinatorClient::with_interceptor(channel, shown.show())
}

/// Another rank than those that the launcher has started.
fn guest(running: &Running, group: u32, groups: &str) -> Child {
    let file = |name: &str| running.out().join(name).display().to_string();
    let config = std::fs::read_to_string(file("config.toml")).unwrap();
    let own = file("guest.toml");
    std::fs::write(&own, config.replace("groups = [1, 1]", groups)).unwrap();
    let token = std::fs::read_to_string(file("token")).unwrap();
    let arguments = TrainArguments {
        config: own.into(),
        coordinator: CoordinatorArgument::File(file(run_files::COORDINATOR_ADDRESS).into()),
        group,
        rank: 0,
        local_rank: 0,
        gpu: false,
        host: None,
        threads: THREADS,
        metrics: Some(file(run_files::METRICS).into()),
    };
    WorkerArguments::from(arguments)
        .to_command(&programs().join(WORKER))
        .env(environment::TOKEN, token)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Exchanges of a group, as far as they are written down.
fn exchanges(running: &Running, group: u32) -> usize {
    let records = running.records();
    records.iter().filter(|r| r.group == group).count()
}

fn go_on(running: &Running, group: u32) {
    let before = exchanges(running, group);
    wait_for("more exchanges", || {
        (exchanges(running, group) > before + 5).then_some(())
    });
}

#[test]
fn groups_come_and_go_while_others_train() {
    let run = Run::endless().key("cluster.groups", "[1, 1]");
    let mut running = run.key("train.consistency", "\"async\"").start();
    let rows = running.trains(2);
    let runtime = Runtime::new().unwrap();
    let coordinator = coordinator(&running, &runtime);
    let drain = |groups: &[u32]| {
        let (run, groups) = ("small".to_owned(), groups.to_vec());
        let mut coordinator = coordinator.clone();
        let asked = coordinator.drain(Request::new(DrainRequest { run, groups }));
        runtime.block_on(asked).unwrap();
    };

    drain(&[1]);
    let second = rows.iter().find(|row| row.group == Some(1)).unwrap();
    wait_for("the end of its rank", || (!alive(second.pid)).then_some(()));
    let left = exchanges(&running, 1);
    go_on(&running, 0);
    assert_eq!(exchanges(&running, 1), left, "it has left");

    let mut attach = coordinator.clone();
    let (run, sizes) = ("small".to_owned(), vec![1]);
    let added = attach.attach(Request::new(AttachRequest { run, sizes }));
    assert_eq!(runtime.block_on(added).unwrap().into_inner().first_group, 2);
    let mut third = guest(&running, 2, "groups = [1, 1, 1]");
    wait_for("its first exchange", || {
        (exchanges(&running, 2) > 0).then_some(())
    });
    go_on(&running, 0);
    signal(third.id(), Signal::TERM);
    assert_eq!(third.wait().unwrap().code(), Some(5), "it has left");
    go_on(&running, 0);

    drain(&[]);
    let ended = running.end();
    let summary = ended.summary();
    assert_eq!(summary["status"], "failed");
    let why = "every group has left before train.samples were applied";
    let reason = summary["failure"]["reason"].as_str().unwrap();
    assert!(reason.starts_with(why), "{reason}");
    assert_eq!(summary["faults"]["counts"]["process_died"], json!(null));
    assert!(summary["snapshots"]["newest"].is_u64(), "{summary}");
}

/// What `tradewind revoke` says of a run, and its status.
pub(super) fn revoke(running: &Running, whom: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(programs().join("tradewind"));
    command.arg("revoke").arg(running.out()).args(whom);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code(), said)
}

#[test]
fn a_group_that_is_revoked_is_shut_out_while_others_train() {
    let run = Run::endless().key("cluster.groups", "[1, 1]");
    let run = run.key("cluster.security", "\"tls\"");
    let mut running = run.key("train.consistency", "\"async\"").start();
    let rows = running.trains(2);
    let (status, said) = revoke(&running, &["--group", "7"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("the run has groups 0 to 1, not 7"), "{said}");

    let (status, said) = revoke(&running, &["--group", "1"]);
    assert_eq!(status, Some(0), "{said}");
    let want = "group 1 of run small: certificates are revoked";
    assert!(said.contains(want), "{said}");
    let second = rows.iter().find(|row| row.group == Some(1)).unwrap();
    wait_for("the end of its rank", || (!alive(second.pid)).then_some(()));
    let left = exchanges(&running, 1);
    go_on(&running, 0);
    assert_eq!(exchanges(&running, 1), left, "it is not started again");
    let (status, said) = revoke(&running, &["--group", "0"]);
    assert_eq!(status, Some(0), "{said}");
    let summary = running.end().summary();
    let reason = summary["failure"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("every group has left"), "{reason}");
    assert_eq!(summary["faults"]["counts"]["process_died"], json!(null));
}
