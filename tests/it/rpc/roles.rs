//! Under TLS: who does not belong to a fleet is refused in words of its own, and so is who belongs and asks for what
//! is for others.

use std::collections::BTreeSet;
use std::sync::Arc;

use tempfile::TempDir;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tradewind_common::identity::Identity;
use tradewind_common::{GroupId, Rank, RunId, ServerId};
use tradewind_proto::auth::Credentials;
use tradewind_proto::authority::{Authority, self_signed};
use tradewind_proto::connector::Connector;
use tradewind_proto::refusal;
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::server_report::Report;
use tradewind_proto::v1::{
    CoordinateRequest, DrainRequest, Pull, PushFrame, Record, Register, RemoveRequest,
    ResumeRequest, ServerReport, StatusRequest, push_frame,
};
use tradewind_tests::cluster::client::{Client, answer, collect};
use tradewind_tests::cluster::fleet::{Fleet, INCARNATION, Setup};
use tradewind_tests::cluster::until;

use super::coordinator::{Call, Who, await_ready, heartbeat, lease, leave};
use super::stage::{self, READY, create_all, status};
use super::token::BAD_TOKEN;
use super::{Expected, TOKEN, assert_refused, frame, push};

/// Why strangers are refused.
pub(super) const STRANGERS: [&str; 4] = [
    "no-certificate",
    "self-signed",
    "other-authority",
    "expired-certificate",
];

/// Why those are who belong and ask for what is for others.
pub(super) const MEMBERS: [&str; 4] = ["wrong-role", "wrong-run", "wrong-group", "wrong-rank"];

/// Rank 0 of a group.
pub(super) fn rank(run: &str, group: u32) -> Identity {
    ranked(run, group, Some(0))
}

/// A rank of a group; without a number, who only reads.
fn ranked(run: &str, group: u32, rank: Option<u32>) -> Identity {
    Identity::Rank {
        run: RunId::new(run).unwrap(),
        group: GroupId(group),
        rank: rank.map(Rank),
    }
}

/// What everybody asks for who only reads.
pub(super) fn pull(run: &str, block: u32) -> PushFrame {
    frame((run, 0, 0), block, push_frame::Action::Pull(Pull {}))
}

/// Servers under TLS, and a run whose only group has created its values.
pub(super) struct Guarded {
    pub(super) fleet: Fleet,
    pub(super) authority: Arc<Authority>,
    folder: TempDir,
}

impl Guarded {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut setup = Setup::of(2).folder(folder.path()).under_tls();
        setup.token = TOKEN.into();
        let authority = setup.authority.clone().unwrap();
        let fleet = setup.start();
        let guarded = Self {
            fleet,
            authority,
            folder,
        };
        guarded.fleet.block_on(async {
            let member = guarded.client(&rank(READY, 0));
            let joined = stage::join(&member, (READY, 0, 0), 1, &[1, 1]).await;
            assert_eq!(joined.unwrap().incarnation, 1);
            let other = guarded.client(&rank(READY, 1));
            stage::join(&other, (READY, 1, 0), 1, &[1, 1])
                .await
                .unwrap();
            create_all(&member, READY, 0, 1).await;
            let ready = stage::await_ready(&member, (READY, 0, 1), true).await;
            assert_eq!(ready.unwrap().start_clock, 0);
        });
        guarded
    }

    pub(super) fn client(&self, identity: &Identity) -> Client {
        self.fleet.client_as(&self.fleet.credentials_of(identity))
    }

    /// The events of a kind, as far as they are written: this of each.
    pub(super) fn events(&self, kind: &str, of: &str) -> BTreeSet<String> {
        let path = self.folder.path().join("events.jsonl");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            (line["kind"] == kind).then(|| line[of].as_str().unwrap().to_owned())
        });
        lines.collect()
    }

    /// Waits until the events say that callers were refused for all these reasons.
    pub(super) async fn told(&self, reasons: &[&str]) {
        let wanted: BTreeSet<&str> = reasons.iter().copied().collect();
        until("events of refusals", async || {
            let told = self.events("caller_refused", "reason");
            let missing = wanted.iter().filter(|reason| !told.contains(**reason));
            (missing.count() == 0).then_some(())
        })
        .await;
    }
}

/// A key and a certificate of somebody who takes the servers for what they are.
fn stranger(pass: &str, authority: &Authority) -> Credentials {
    let end = "-----END CERTIFICATE-----\n";
    let own = &pass.replace("\r\n", "\n");
    let own = &own[..own.find(end).unwrap() + end.len()];
    let pem = format!("{own}{}", authority.certificate());
    Credentials::new(TOKEN, Some(&pem)).unwrap()
}

pub(super) async fn ask(client: &Client) -> Result<(), Status> {
    status(client, READY).await.map(|_| ())
}

#[test]
fn who_does_not_belong_is_refused_in_words_of_its_own_and_counted() {
    let guarded = Guarded::new();
    let own = &*guarded.authority;
    let other = Authority::new("another").unwrap();
    let identity = rank(READY, 0);
    let hour = 3600;
    let unauthenticated = |word, text| (Code::Unauthenticated, word, text);
    let cases: [(&str, String, Expected); 3] = [
        (
            "a certificate of another authority",
            other.pass(&identity).unwrap(),
            unauthenticated("other-authority", "is of another run or fleet"),
        ),
        (
            "a certificate that its owner has signed",
            self_signed(&identity).unwrap(),
            unauthenticated("self-signed", "signed by itself"),
        ),
        (
            "a certificate that has expired",
            own.pass_for(&identity, -2 * hour..-hour).unwrap(),
            unauthenticated("expired-certificate", "has expired"),
        ),
    ];
    guarded.fleet.block_on(async {
        for (name, pass, want) in cases {
            let client = guarded.fleet.client_as(&stranger(&pass, own));
            assert_refused(name, ask(&client).await, want);
            let pushed = push((READY, 0, 1), (0, 0), 0, &[1.0; 4]);
            assert_refused(name, client.push(0, pushed).await, want);
        }
        // Who has a certificate, and not the token.
        let pass = own.pass(&identity).unwrap();
        let tokenless = Credentials::new("guessed", Some(&pass)).unwrap();
        let client = guarded.fleet.client_as(&tokenless);
        assert_refused("another token", ask(&client).await, BAD_TOKEN);

        // Who has the token, and no certificate.
        let address = guarded.fleet.coordinator_address();
        let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
        let nobody = Connector::without_certificate(&own.certificate()).unwrap();
        let channel = endpoint.connect_with_connector_lazy(nobody);
        let shown = Credentials::new(TOKEN, None).unwrap();
        let channel = InterceptedService::new(channel, shown.show());
        let run = READY.to_owned();
        let mut nobody = CoordinatorClient::new(channel);
        let asked = nobody.status(StatusRequest { run });
        let want = unauthenticated("no-certificate", "shows no certificate");
        assert_refused("no certificate", answer(asked).await, want);

        // Who speaks in clear text is not heard at all.
        let clear = guarded.fleet.client_as(&shown);
        let refused = ask(&clear).await.unwrap_err();
        assert_eq!(refusal::reason(&refused), None, "{refused}");

        guarded.told(&STRANGERS).await;
        guarded.told(&["bad-token", "no-tls"]).await;
        // Nobody has changed anything, and who belongs goes on.
        ask(&guarded.client(&identity)).await.unwrap();
    });
}

#[test]
fn a_call_is_for_roles_and_a_rank_speaks_for_itself() {
    let guarded = Guarded::new();
    let wrong = |word, text| (Code::PermissionDenied, word, text);
    guarded.fleet.block_on(async {
        let member = guarded.client(&rank(READY, 0));
        let neighbour = guarded.client(&rank(READY, 1));
        let foreign = guarded.client(&rank("elsewhere", 0));
        let person = guarded.client(&Identity::Person(None));
        let server = guarded.client(&Identity::Server(None));
        let who = || Who {
            run: READY.into(),
            group: 0,
            incarnation: 1,
            rank: 0,
        };

        // What is for servers alone.
        let role = wrong("wrong-role", "who may not call");
        let register = async |client: &Client| {
            let register = ServerReport {
                report: Some(Report::Register(Register {
                    server: 1,
                    incarnation: INCARNATION + 1,
                    address: "127.0.0.1:1".into(),
                    host: String::new(),
                })),
            };
            let reports = Request::new(tokio_stream::iter([register]));
            let served = answer(client.coordinator.clone().serve(reports)).await;
            served.map(|_| ())
        };
        for (name, client) in [("a rank", &member), ("a person", &person)] {
            assert_refused(name, register(client).await, role);
            let records = Request::new(tokio_stream::iter([Record::default()]));
            let replicated = match answer(client.shards[1].clone().replicate(records)).await {
                Ok(confirms) => collect(confirms.into_inner()).await.1,
                Err(status) => Err(status),
            };
            assert_refused(name, replicated, role);
            let coordinate = CoordinateRequest { servers: 2 };
            let hosted = answer(client.hosts[1].clone().coordinate(coordinate)).await;
            assert_refused(name, hosted, role);
        }
        // One server is not another one.
        let other = guarded.client(&Identity::Server(Some(ServerId(0))));
        let another = wrong("wrong-role", "does not register as server 1");
        assert_refused("another server", register(&other).await, another);

        // What is for people.
        let run = || READY.to_owned();
        for (name, client) in [("a rank", &member), ("a server", &server)] {
            let mut coordinator = client.coordinator.clone();
            let groups = Vec::new();
            let drained = answer(coordinator.drain(DrainRequest { run: run(), groups })).await;
            assert_refused(name, drained, role);
            let removed = answer(coordinator.remove(RemoveRequest { run: run() })).await;
            assert_refused(name, removed, role);
            let resumed = answer(coordinator.resume(ResumeRequest { run: run() })).await;
            assert_refused(name, resumed, role);
            assert_refused(name, Call::Snapshot(run()).send(client).await, role);
        }

        // A rank speaks for its own group, and others for none.
        let group = wrong("wrong-group", "who does not speak for group 0");
        let of_ranks = || {
            [
                await_ready(who()),
                heartbeat(who()),
                lease(who(), &[], &[]),
                leave(who()),
            ]
        };
        for call in of_ranks() {
            let name = format!("{call:?}");
            assert_refused(&name, call.send(&neighbour).await, group);
        }
        for call in of_ranks() {
            let name = format!("{call:?}");
            assert_refused(&name, call.send(&person).await, role);
        }
        let joined = stage::join_once(&neighbour, (READY, 0, 0), &[1, 1]).await;
        assert_refused("join", joined, group);
        let pushed = || push((READY, 0, 1), (0, 0), 0, &[1.0; 4]);
        assert_refused(
            "a push for another group",
            neighbour.push(0, pushed()).await,
            group,
        );
        assert_refused("a person's push", person.push(0, pushed()).await, group);
        assert_refused("a server's push", server.push(0, pushed()).await, role);

        // It speaks as itself, and as no other rank of its group; its push and its data are the group's.
        let fellow = guarded.client(&ranked(READY, 0, Some(1)));
        let reader = guarded.client(&ranked(READY, 0, None));
        let rank = wrong(
            "wrong-rank",
            "is that of rank 1 of group 0 of run ready, who does not speak as rank 0 of group 0",
        );
        let reads = wrong("wrong-rank", "who has no number there, and only reads");
        for call in [await_ready(who()), heartbeat(who()), leave(who())] {
            let name = format!("{call:?}");
            assert_refused(&name, call.send(&fellow).await, rank);
        }
        let joined = stage::join_once(&fellow, (READY, 0, 0), &[1, 1]).await;
        assert_refused("join", joined, rank);
        for call in of_ranks() {
            let name = format!("{call:?}");
            assert_refused(&name, call.send(&reader).await, reads);
        }
        assert_refused("a reader's push", reader.push(0, pushed()).await, reads);
        // The process of a rank may be another one, with another certificate.
        let again = guarded.client(&ranked(READY, 0, Some(0)));
        await_ready(who()).send(&again).await.unwrap();

        // What is one run's is not another's.
        let elsewhere = wrong("wrong-run", "run ready is another one");
        for call in [Call::Status(run()), Call::ShardStatus(run())] {
            let name = format!("{call:?}");
            assert_refused(&name, call.send(&foreign).await, elsewhere);
        }
        assert_refused("a pull", foreign.push(0, pull(READY, 0)).await, elsewhere);
        assert_refused("a push", foreign.push(0, pushed()).await, elsewhere);
        let fleet = StatusRequest::default();
        let runs = |client: &Client| {
            let mut coordinator = client.coordinator.clone();
            let fleet = fleet.clone();
            async move {
                answer(coordinator.status(fleet))
                    .await
                    .unwrap()
                    .into_inner()
                    .runs
            }
        };
        assert_eq!(runs(&foreign).await, Vec::<String>::new());
        assert_eq!(runs(&member).await, [READY]);

        // What everybody may whom it is for, they may.
        for client in [&member, &neighbour, &fellow, &reader, &person] {
            client.push(0, pull(READY, 0)).await.unwrap();
            ask(client).await.unwrap();
        }
        member.push(0, pushed()).await.unwrap();
        guarded.told(&MEMBERS).await;
    });
}

#[test]
fn a_client_gives_nothing_to_who_is_no_server_of_its_run() {
    let (own, other) = (
        Authority::new("climate").unwrap(),
        Authority::new("another").unwrap(),
    );
    let hour = 3600;
    let cases = [
        (
            "of another run or fleet",
            other.pass(&Identity::Server(None)).unwrap(),
        ),
        ("not a server's", own.pass(&rank("climate", 0)).unwrap()),
        ("not a server's", own.pass(&Identity::Person(None)).unwrap()),
        (
            "has expired",
            own.pass_for(&Identity::Server(None), -2 * hour..-hour)
                .unwrap(),
        ),
    ];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let shown = own.pass(&rank("climate", 0)).unwrap();
        let shown = Credentials::new("", Some(&shown)).unwrap();
        for (why, pass) in cases {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let played = Credentials::new("", Some(&pass)).unwrap();
            let acceptor = played.tls().unwrap().acceptor();
            let play = async move {
                let (stream, _) = listener.accept().await.unwrap();
                acceptor.accept(stream).await.map(|_| ())
            };
            let played = tokio::spawn(play);
            let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
            let connected = endpoint.connect_with_connector(shown.connector()).await;
            let error = format!("{:?}", connected.unwrap_err());
            let text = "no server of this run or fleet answers there";
            assert!(
                error.contains(text) && error.contains(why),
                "{why}: {error}"
            );
            assert!(played.await.unwrap().is_err(), "{why}");
        }
        // Somebody who speaks no TLS.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            std::future::pending::<()>().await
        });
        let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
        let connected = endpoint.connect_with_connector(shown.connector()).await;
        let error = format!("{:?}", connected.unwrap_err());
        assert!(error.contains("it speaks no TLS"), "{error}");
    });
}

/// A process that ends while it connects is nobody who was refused.
#[test]
fn who_goes_away_before_a_handshake_is_over_is_not_told_of() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let address = guarded.fleet.coordinator_address();
        let said = async |bytes: &[u8]| {
            let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            // The server has closed it, too, so that it has told what it has to tell.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        // Nothing, and the beginning of a greeting.
        said(b"").await;
        said(b"\x16\x03\x01\x01").await;
        assert_eq!(guarded.events("caller_refused", "reason"), BTreeSet::new());
        said(b"GET / HTTP/1.1\r\n\r\n").await;
        guarded.told(&["no-tls"]).await;
    });
}
