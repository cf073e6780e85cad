//! Certificates that a person takes back.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};
use tradewind_common::identity::{Identity, PersonName};
use tradewind_common::{GroupId, Rank, RunId, ServerId};
use tradewind_proto::refusal;
use tradewind_proto::v1::{Beat, CoordinateRequest, PingRequest, RankOfGroup, RevokeRequest};
use tradewind_tests::cluster::client::{Client, answer, collect};
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::until;

use super::roles::{Guarded, ask, pull, rank};
use super::stage::{READY, keep_lease, push_all};
use super::{Expected, TOKEN, assert_refused};

const REVOKED: Expected = (
    Code::Unauthenticated,
    "revoked-certificate",
    "its group was shut out",
);
const REVOKED_RANK: Expected = (REVOKED.0, REVOKED.1, "this rank was shut out");
const REVOKED_SERVER: Expected = (REVOKED.0, REVOKED.1, "this server was shut out");
const REVOKED_PERSON: Expected = (REVOKED.0, REVOKED.1, "this person was shut out");
const HOSTS_COORDINATOR: Expected = (
    Code::FailedPrecondition,
    "hosts-coordinator",
    "end the process of server 0, and revoke it once another",
);
const WITHOUT_TLS: Expected = (
    Code::FailedPrecondition,
    "without-tls",
    "cluster.security is not tls",
);

/// What is refused here.
pub(super) const REFUSED: [Expected; 3] = [REVOKED, WITHOUT_TLS, HOSTS_COORDINATOR];

/// A block of each server's shard.
const OF_SERVERS: [u32; 2] = [0, 1];

/// Servers that have not said that they keep it.
const NOBODY: [u32; 0] = [];

async fn revoke(client: &Client, groups: &[u32]) -> Result<Vec<u32>, Status> {
    let request = RevokeRequest {
        groups: groups.to_vec(),
        ..RevokeRequest::default()
    };
    revoke_all(client, request).await
}

async fn revoke_all(client: &Client, request: RevokeRequest) -> Result<Vec<u32>, Status> {
    let request = RevokeRequest {
        run: READY.into(),
        ..request
    };
    let revoked = answer(client.coordinator.clone().revoke(request)).await?;
    Ok(revoked.into_inner().without)
}

fn beat(group: u32) -> Beat {
    Beat {
        run: READY.into(),
        group,
        incarnation: 1,
        ..Beat::default()
    }
}

/// What a call is refused with; a connection that was closed is made again.
async fn refused<T>(mut call: impl AsyncFnMut() -> Result<T, Status>) -> Result<(), Status> {
    let look = async || match call().await {
        Err(closed) if refusal::reason(&closed).is_none() => None,
        other => Some(other.map(|_| ())),
    };
    until("a refusal", look).await
}

/// Every server refuses what it asks for.
async fn is_refused(client: &Client, want: Expected) {
    let status = refused(async || ask(client).await).await;
    assert_refused("a status", status, want);
    for (server, block) in OF_SERVERS.into_iter().enumerate() {
        let pulled = refused(async || client.push(server, pull(READY, block)).await);
        assert_refused("a pull", pulled.await, want);
    }
}

#[test]
fn a_group_is_shut_out_at_once_and_others_go_on() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let [member, shut_out] = [0, 1].map(|group| guarded.client(&rank(READY, group)));
        let person = guarded.client(&Identity::Person(None));
        let mut goes_on = keep_lease(&member, beat(0)).await.unwrap();
        let ends = keep_lease(&shut_out, beat(1)).await.unwrap();
        // Idle, at the server that does not host the coordinator.
        let (frames, outgoing) = mpsc::channel(1);
        frames.send(pull(READY, OF_SERVERS[1])).await.unwrap();
        let stream = Request::new(ReceiverStream::new(outgoing));
        let idle = answer(shut_out.shards[1].clone().exchange(stream)).await;
        let mut idle = idle.unwrap().into_inner();
        assert!(answer(idle.message()).await.unwrap().is_some());

        assert_eq!(revoke(&person, &[1]).await.unwrap(), NOBODY);
        assert!(collect(ends.replies).await.1.is_err());
        assert!(collect(idle).await.1.is_err());
        // A new certificate of the same group is none, too.
        let anew = guarded.client(&rank(READY, 1));
        for client in [&shut_out, &anew] {
            is_refused(client, REVOKED).await;
        }
        guarded.told(&["revoked-certificate"]).await;

        push_all(&member, (READY, 0, 1), 0, 0).await;
        goes_on.beats.send(beat(0)).await.unwrap();
        assert!(answer(goes_on.replies.message()).await.unwrap().is_some());
        // Asked for again, it is said again.
        assert_eq!(revoke(&person, &[1]).await.unwrap(), NOBODY);
        drop(frames);
    });
}

#[test]
fn it_outlives_the_coordinator_and_the_servers() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let person = guarded.client(&Identity::Person(None));
        assert_eq!(revoke(&person, &[1]).await.unwrap(), NOBODY);
        guarded.fleet.kill(0);
        let server = guarded.client(&Identity::Server(None));
        let coordinate = CoordinateRequest { servers: 2 };
        let hosted = answer(server.hosts[1].clone().coordinate(coordinate)).await;
        let address = hosted.unwrap().into_inner().address;
        until("the coordinator's address", async || {
            (guarded.fleet.coordinator_address() == address).then_some(())
        })
        .await;
        let shut_out = guarded.client(&rank(READY, 1));
        assert_refused("a status", ask(&shut_out).await, REVOKED);

        // Another life of a server knows of nothing until it has registered, and holds nothing: it hears of it from
        // who has followed.
        guarded.fleet.begin(0);
        let shut_out = guarded.client(&rank(READY, 1));
        let refused = until("a server that has come back to know of it", async || {
            let mut host = shut_out.hosts[0].clone();
            let pinged = answer(host.ping(PingRequest {})).await;
            let refused = |status: &Status| refusal::reason(status).is_some();
            pinged.err().filter(refused)
        });
        assert_refused("a ping", Err::<(), _>(refused.await), REVOKED);
        let person = guarded.client(&Identity::Person(None));
        assert_eq!(revoke(&person, &[1]).await.unwrap(), NOBODY);
        ask(&guarded.client(&rank(READY, 0))).await.unwrap();
    });
}

fn ranked(group: u32, of: u32) -> Identity {
    Identity::Rank {
        run: RunId::new(READY).unwrap(),
        group: GroupId(group),
        rank: Some(Rank(of)),
    }
}

fn person(name: &str) -> Identity {
    Identity::Person(Some(PersonName::new(name).unwrap()))
}

fn rank_of(group: u32, rank: u32) -> RevokeRequest {
    RevokeRequest {
        ranks: vec![RankOfGroup { group, rank }],
        ..RevokeRequest::default()
    }
}

fn people(name: &str) -> RevokeRequest {
    RevokeRequest {
        people: vec![name.into()],
        ..RevokeRequest::default()
    }
}

fn servers(server: u32) -> RevokeRequest {
    RevokeRequest {
        servers: vec![server],
        ..RevokeRequest::default()
    }
}

#[test]
fn a_rank_and_a_person_are_shut_out_by_name_and_their_likes_are_not() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let owner = guarded.client(&Identity::Person(None));
        let rank_one = guarded.client(&ranked(1, 0));
        let ends = keep_lease(&rank_one, beat(1)).await.unwrap();
        let bob = guarded.client(&person("bob"));
        ask(&bob).await.unwrap();

        let kept = revoke_all(&owner, rank_of(1, 0)).await;
        assert_eq!(kept.unwrap(), NOBODY);
        assert!(collect(ends.replies).await.1.is_err());
        let kept = revoke_all(&owner, people("bob")).await;
        assert_eq!(kept.unwrap(), NOBODY);

        let shut_out = [
            (ranked(1, 0), rank_one, REVOKED_RANK),
            (person("bob"), bob, REVOKED_PERSON),
        ];
        for (identity, open, want) in shut_out {
            for client in [&open, &guarded.client(&identity)] {
                is_refused(client, want).await;
            }
        }
        guarded.told(&["revoked-certificate"]).await;
        // Whose certificates have not been taken back.
        for identity in [ranked(1, 1), ranked(0, 0), person("bobby"), person("alice")] {
            ask(&guarded.client(&identity)).await.unwrap();
        }
        ask(&owner).await.unwrap();
        let member = guarded.client(&rank(READY, 0));
        push_all(&member, (READY, 0, 1), 0, 0).await;
    });
}

#[test]
fn ranks_and_people_stay_shut_out_under_another_coordinator() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let owner = guarded.client(&Identity::Person(None));
        for request in [rank_of(1, 0), people("bob")] {
            assert_eq!(revoke_all(&owner, request).await.unwrap(), NOBODY);
        }
        guarded.fleet.kill(0);
        let server = guarded.client(&Identity::Server(None));
        let coordinate = CoordinateRequest { servers: 2 };
        let hosted = answer(server.hosts[1].clone().coordinate(coordinate)).await;
        let address = hosted.unwrap().into_inner().address;
        until("the coordinator's address", async || {
            (guarded.fleet.coordinator_address() == address).then_some(())
        })
        .await;
        for (identity, want) in [
            (ranked(1, 0), REVOKED_RANK),
            (person("bob"), REVOKED_PERSON),
        ] {
            let shut_out = guarded.client(&identity);
            assert_refused("a status", ask(&shut_out).await, want);
        }
        ask(&guarded.client(&person("alice"))).await.unwrap();
    });
}

#[test]
fn a_server_is_shut_out_and_its_process_ends() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let owner = guarded.client(&Identity::Person(None));
        let hosts = revoke_all(&owner, servers(0)).await;
        assert_refused("the host", hosts, HOSTS_COORDINATOR);
        assert_eq!(revoke_all(&owner, servers(1)).await.unwrap(), NOBODY);
        let ends = async || guarded.fleet.has_ended(1).then_some(());
        until("the end of its process", ends).await;
        // With another certificate of the same name.
        let server = guarded.client(&Identity::Server(Some(ServerId(1))));
        let status = refused(async || ask(&server).await).await;
        assert_refused("a status", status, REVOKED_SERVER);
        guarded.fleet.kill(1);
        guarded.fleet.begin(1);
        until("the end of its next process", ends).await;
        guarded.fleet.kill(1);
        ask(&owner).await.unwrap();
        // Where nobody is left who would refuse it, it does not let itself in either.
        guarded.fleet.kill(0);
        guarded.fleet.begin(1);
        let launcher = guarded.client(&Identity::Server(None));
        let coordinate = CoordinateRequest { servers: 2 };
        let hosted = answer(launcher.hosts[1].clone().coordinate(coordinate)).await;
        let refused = hosted.unwrap_err();
        let want = "server 1 is shut out of the fleet";
        assert!(refused.message().contains(want), "{refused}");
    });
}

#[test]
fn what_cannot_be_revoked_is_refused() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let person = guarded.client(&Identity::Person(None));
        let none = (Code::InvalidArgument, "malformed", "groups: is missing");
        assert_refused("no group", revoke(&person, &[]).await, none);
        let unknown = (Code::NotFound, "unknown-group", "groups 0 to 1, not 2");
        assert_refused("another group", revoke(&person, &[1, 2]).await, unknown);
        let unknown = (Code::NotFound, "unknown-rank", "ranks 0 to 0, not 1");
        let of_group = revoke_all(&person, rank_of(1, 1)).await;
        assert_refused("another rank", of_group, unknown);
        let unknown = (Code::NotFound, "unknown-server", "servers 0 to 1, not 2");
        let of_fleet = revoke_all(&person, servers(2)).await;
        assert_refused("another server", of_fleet, unknown);
        let unnamed = (
            Code::InvalidArgument,
            "malformed",
            "people: a person's name",
        );
        let of_name = revoke_all(&person, people("bob/../alice")).await;
        assert_refused("no name", of_name, unnamed);
        ask(&guarded.client(&rank(READY, 1))).await.unwrap();
    });
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let revoked = revoke(&client, &[0]).await;
        assert_refused("with a token alone", revoked, WITHOUT_TLS);
    });
}
