//! Reports of servers that are refused. The test plays server 1 of a fleet of two.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};
use tradewind_proto::v1::server_report::Report;
use tradewind_proto::v1::{Acknowledge, Register, ServerBeat, ServerOrder, ServerReport};
use tradewind_tests::cluster::client::{Client, answer, collect};
use tradewind_tests::cluster::fleet::{Fleet, INCARNATION, Setup};
use tradewind_tests::cluster::until;

use super::stage::{join, join_once, known, status};
use super::{Expected, Row, TOKEN, assert_refused};

const RUN: &str = "served";

/// Looks in a row that find nothing new, after which nothing new comes.
const QUIET: u32 = 10;
const LOOK: Duration = Duration::from_millis(50);

fn report(report: Report) -> ServerReport {
    ServerReport {
        report: Some(report),
    }
}

fn register() -> Register {
    Register {
        server: 1,
        incarnation: INCARNATION,
        address: "127.0.0.1:1".into(),
        host: "played".into(),
    }
}

fn acknowledge() -> Acknowledge {
    Acknowledge {
        run: RUN.into(),
        generation: 1,
        shard: 1,
        ..Acknowledge::default()
    }
}

/// Makes a bad report.
pub(super) type Make = fn() -> Option<Report>;

/// What is wrong with the first report.
pub(super) const REGISTRATIONS: &[Row<Make>] = &[
    (
        "nothing",
        || None,
        (Code::InvalidArgument, "malformed", "register: is missing"),
    ),
    (
        "an acknowledgement",
        || Some(Report::Acknowledge(acknowledge())),
        (Code::InvalidArgument, "malformed", "register: is missing"),
    ),
    (
        "an unknown server",
        || changed(|r| r.server = 7),
        (Code::NotFound, "unknown-server", "servers 0 to 1, not 7"),
    ),
    (
        "incarnation 0",
        || changed(|r| r.incarnation = 0),
        (
            Code::InvalidArgument,
            "malformed",
            "register.incarnation: is missing",
        ),
    ),
    (
        "a former incarnation",
        || changed(|r| r.incarnation = INCARNATION - 1),
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 1 of server 1",
        ),
    ),
    (
        "no address",
        || changed(|r| r.address.clear()),
        (
            Code::InvalidArgument,
            "malformed",
            "register.address: \"\" is not host:port",
        ),
    ),
    (
        "an address without a port",
        || changed(|r| r.address = "node7:".into()),
        (
            Code::InvalidArgument,
            "malformed",
            "\"node7:\" is not host:port",
        ),
    ),
];

/// What is wrong with a later report.
pub(super) const REPORTS: &[Row<Make>] = &[
    (
        "nothing",
        || None,
        (
            Code::InvalidArgument,
            "malformed",
            "acknowledge: is missing",
        ),
    ),
    (
        "a second registration",
        || Some(Report::Register(register())),
        (
            Code::InvalidArgument,
            "malformed",
            "acknowledge: is missing",
        ),
    ),
    (
        "a run name that is none",
        || seen(|a| a.run = "a/b".into()),
        (Code::InvalidArgument, "malformed", "run name \"a/b\""),
    ),
    (
        "the last clock there is",
        || seen(|a| a.clock_seen = Some(u64::MAX)),
        (
            Code::InvalidArgument,
            "malformed",
            "clock_seen: 18446744073709551615 is above",
        ),
    ),
    (
        "a generation to come",
        || seen(|a| a.generation = 1_000),
        (
            Code::OutOfRange,
            "generation-ahead",
            "generation 1000 of run served",
        ),
    ),
];

/// What a server is told that was silent for a lease.
pub(super) const NOT_REGISTERED: Expected = (
    Code::Unavailable,
    "not-registered",
    "server 1 is not registered, or its lease has run out",
);

fn changed(change: fn(&mut Register)) -> Option<Report> {
    let mut register = register();
    change(&mut register);
    Some(Report::Register(register))
}

fn seen(change: fn(&mut Acknowledge)) -> Option<Report> {
    let mut acknowledge = acknowledge();
    change(&mut acknowledge);
    Some(Report::Acknowledge(acknowledge))
}

/// A stream of reports that stays open.
pub(super) struct Served {
    pub(super) reports: mpsc::Sender<ServerReport>,
    pub(super) orders: Streaming<ServerOrder>,
}

pub(super) async fn serve(client: &Client, first: ServerReport) -> Result<Served, Status> {
    let (reports, outgoing) = mpsc::channel(4);
    reports.send(first).await.expect("there is room");
    let stream = Request::new(ReceiverStream::new(outgoing));
    let mut coordinator = client.coordinator.clone();
    let orders = answer(coordinator.serve(stream)).await?.into_inner();
    Ok(Served { reports, orders })
}

/// Registers as server 1, in this life.
pub(super) async fn play(client: &Client, incarnation: u64) -> Served {
    let register = Register {
        incarnation,
        ..register()
    };
    serve(client, report(Report::Register(register)))
        .await
        .unwrap()
}

#[test]
fn a_bad_registration_ends_with_a_status() {
    let fleet = Fleet::partial(1, 2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let _played = play(&client, INCARNATION).await;
        for (name, first, want) in REGISTRATIONS {
            let first = ServerReport { report: first() };
            let ended = match serve(&client, first).await {
                Ok(served) => collect(served.orders).await.1,
                Err(status) => Err(status),
            };
            assert_refused(name, ended, *want);
        }
        let silent = Request::new(tokio_stream::iter(Vec::<ServerReport>::new()));
        let ended = answer(client.coordinator.clone().serve(silent)).await;
        let want = (Code::InvalidArgument, "malformed", "register: is missing");
        assert_refused("no report at all", ended.map(|_| ()), want);
    });
}

#[test]
fn a_bad_report_ends_with_a_status_and_changes_nothing() {
    let fleet = Fleet::partial(1, 2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let mut played = play(&client, INCARNATION).await;
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { join(&client, (RUN, 0, 0), 1, &[1]).await }
        });
        let order = answer(played.orders.message()).await.unwrap().unwrap();
        assert_eq!(order.run, RUN);
        // Its bond with the coordinator ends with the stream, and nobody answers for its shard until
        // it is back; that is told, and counts generations.
        let settled = || async {
            let mut status = status(&client, RUN).await.unwrap();
            status.generation = 0;
            status.events.clear();
            let placement = status.placement.as_mut().unwrap();
            let holding = placement.holding.as_mut().unwrap();
            holding.generation = 0;
            holding.holders.clear();
            status.waiting.clear();
            status
        };
        let before = settled().await;
        for (name, bad, want) in REPORTS {
            played
                .reports
                .send(ServerReport { report: bad() })
                .await
                .unwrap();
            assert_refused(name, collect(played.orders).await.1, *want);
            played = play(&client, INCARNATION).await;
            assert_eq!(settled().await, before, "{name}");
        }
        assert!(
            !waiting.is_finished(),
            "the server has acknowledged nothing"
        );
        let seen = acknowledge();
        let seen = Acknowledge {
            generation: status(&client, RUN).await.unwrap().generation,
            ..seen
        };
        let seen = report(Report::Acknowledge(seen));
        played.reports.send(seen).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap().incarnation, 1);
    });
}

/// The bond is that of all runs.
#[test]
fn a_report_of_a_run_that_was_removed_meanwhile_is_passed_over() {
    let fleet = Fleet::partial(1, 2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let played = play(&client, INCARNATION).await;
        let removed = seen(|a| a.run = "removed".into()).map(report);
        played.reports.send(removed.unwrap()).await.unwrap();
        let bad = report(Report::Register(register()));
        played.reports.send(bad).await.unwrap();
        let want = (
            Code::InvalidArgument,
            "malformed",
            "acknowledge: is missing",
        );
        assert_refused("what came after", collect(played.orders).await.1, want);
    });
}

/// Whether so many of three servers have not registered.
async fn missing(client: &Client, count: u32) -> bool {
    let joined = join_once(client, (RUN, 0, 0), &[1]).await;
    let there = format!("{} of 3 servers", 3 - count);
    joined.unwrap_err().message().starts_with(&there)
}

#[test]
fn a_server_that_was_silent_for_a_lease_has_to_register_anew() {
    let setup = Setup {
        started: 1,
        lease_ms: 300,
        ..Setup::of(3)
    };
    let fleet = setup.start();
    fleet.block_on(async {
        let client = fleet.client().await;
        let beat = || report(Report::Beat(ServerBeat {}));
        for life in [INCARNATION, INCARNATION + 1] {
            let played = play(&client, life).await;
            played.reports.send(beat()).await.unwrap();
            let told = tokio::spawn(collect(played.orders));
            while !told.is_finished() {
                until("a lease to run out", async || {
                    missing(&client, 2).await.then_some(())
                })
                .await;
                // Where the other server was silent, on a busy machine, this one comes in time.
                let _ = played.reports.send(beat()).await;
                until("its answer, or the other server", async || {
                    let is_back = missing(&client, 1).await;
                    (told.is_finished() || is_back).then_some(())
                })
                .await;
            }
            assert_refused("a late beat", told.await.unwrap().1, NOT_REGISTERED);
        }
    });
}

/// A server whose connection broke may be back before the coordinator has noticed: the end of the
/// former stream says nothing of the present one.
#[test]
fn a_server_that_registers_again_is_not_lost_with_its_former_stream() {
    let fleet = Fleet::partial(1, 2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let former = play(&client, INCARNATION).await;
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { join(&client, (RUN, 0, 0), 1, &[1]).await }
        });
        known(&client, RUN).await;
        let _present = play(&client, INCARNATION).await;
        collect(former.orders).await.1.unwrap();
        for _ in 0..QUIET {
            tokio::time::sleep(LOOK).await;
            let status = status(&client, RUN).await.unwrap();
            let lost = status
                .events
                .iter()
                .find(|event| event.kind == "server_lost");
            assert_eq!(lost, None);
            assert!(status.servers[1].alive);
        }
        waiting.abort();
    });
}
