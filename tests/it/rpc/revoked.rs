//! Certificates that a person takes back.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};
use tradewind_common::identity::Identity;
use tradewind_proto::refusal;
use tradewind_proto::v1::{Beat, CoordinateRequest, PingRequest, RevokeRequest};
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
const WITHOUT_TLS: Expected = (
    Code::FailedPrecondition,
    "without-tls",
    "cluster.security is not tls",
);

/// What is refused here.
pub(super) const REFUSED: [Expected; 2] = [REVOKED, WITHOUT_TLS];

/// A block of each server's shard.
const OF_SERVERS: [u32; 2] = [0, 1];

/// Servers that have not said that they keep it.
const NOBODY: [u32; 0] = [];

async fn revoke(client: &Client, groups: &[u32]) -> Result<Vec<u32>, Status> {
    let request = RevokeRequest {
        run: READY.into(),
        groups: groups.to_vec(),
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

#[test]
fn a_group_is_shut_out_at_once_and_others_go_on() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let [member, shut_out] = [0, 1].map(|group| guarded.client(&rank(READY, group)));
        let person = guarded.client(&Identity::Person);
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
            let status = refused(async || ask(client).await).await;
            assert_refused("a status", status, REVOKED);
            for (server, block) in OF_SERVERS.into_iter().enumerate() {
                let pulled = refused(async || client.push(server, pull(READY, block)).await);
                assert_refused("a pull", pulled.await, REVOKED);
            }
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
        let person = guarded.client(&Identity::Person);
        assert_eq!(revoke(&person, &[1]).await.unwrap(), NOBODY);
        guarded.fleet.kill(0);
        let server = guarded.client(&Identity::Server);
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
        let person = guarded.client(&Identity::Person);
        assert_eq!(revoke(&person, &[1]).await.unwrap(), NOBODY);
        ask(&guarded.client(&rank(READY, 0))).await.unwrap();
    });
}

#[test]
fn what_cannot_be_revoked_is_refused() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let person = guarded.client(&Identity::Person);
        let none = (Code::InvalidArgument, "malformed", "groups: is missing");
        assert_refused("no group", revoke(&person, &[]).await, none);
        let unknown = (Code::NotFound, "unknown-group", "groups 0 to 1, not 2");
        assert_refused("another group", revoke(&person, &[1, 2]).await, unknown);
        ask(&guarded.client(&rank(READY, 1))).await.unwrap();
    });
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let revoked = revoke(&client, &[0]).await;
        assert_refused("with a token alone", revoked, WITHOUT_TLS);
    });
}
