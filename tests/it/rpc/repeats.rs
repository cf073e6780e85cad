//! What may be retried after a broken connection is answered the same; and fleets that cannot
//! take a run in, or have lost one.

use tonic::Code;
use tradewind_proto::v1::{HeartbeatRequest, LeaseChunkReply, LeaseChunkRequest, LeaveRequest};
use tradewind_tests::cluster::fleet::{Client, Fleet, INCARNATION, answer};

use super::serve::{joinable, play};
use super::stage::{READY, READY_SIZES, Stage, await_ready, join, status};
use super::{Expected, TOKEN, assert_refused, spec};

const MISSING: Expected = (
    Code::Unavailable,
    "servers-missing",
    "of 2 servers have registered",
);
const FULL: Expected = (Code::ResourceExhausted, "too-many-runs", "256 runs already");
const FAILED: Expected = (Code::Aborted, "run-failed", "server 1 came back without");

/// What the fleets below refuse.
pub(super) const FLEETS: [Expected; 3] = [MISSING, FULL, FAILED];

#[test]
fn a_join_that_is_repeated_is_answered_the_same() {
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let rank_0 = |client: Client| async move { join(&client, ("r", 0, 0), 1, &[2]).await };
        while !joinable(&fleet.client().await, 1).await {}
        // The connection breaks while the join waits for rank 1.
        let waiting = tokio::spawn(rank_0(fleet.client().await));
        let client = fleet.client().await;
        while status(&client, "r").await.is_err() {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        let again = tokio::spawn(rank_0(fleet.client().await));
        let other = join(&client, ("r", 0, 1), 1, &[2]).await.unwrap();
        let first = again.await.unwrap().unwrap();
        assert_eq!(first, other, "both ranks are told the same");
        let repeated = rank_0(fleet.client().await).await.unwrap();
        assert_eq!(repeated, first);
        let generation = status(&client, "r").await.unwrap().generation;
        rank_0(fleet.client().await).await.unwrap();
        assert_eq!(status(&client, "r").await.unwrap().generation, generation);
    });
}

#[test]
fn calls_that_are_repeated_happen_once() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let ready = |client: Client| async move {
            await_ready(&client, (READY, 0, 2), false).await.unwrap()
        };
        let first = ready(stage.fleet.client().await).await;
        assert_eq!(ready(stage.fleet.client().await).await, first);

        let lease = |finished: &'static [u64], held: &'static [u64]| {
            let fresh = stage.fleet.client();
            async move {
                let request = LeaseChunkRequest {
                    run: READY.into(),
                    group: 0,
                    incarnation: 2,
                    finished: finished.to_vec(),
                    held: held.to_vec(),
                };
                let mut coordinator = fresh.await.coordinator;
                answer(coordinator.lease_chunk(request))
                    .await
                    .unwrap()
                    .into_inner()
            }
        };
        let number = |chunk: LeaseChunkReply| chunk.chunk;
        let first = lease(&[], &[]).await;
        assert_eq!((first.begin, first.end), (0, 8));
        assert_eq!(lease(&[], &[]).await, first, "the answer was lost");
        assert_eq!(number(lease(&[], &[0]).await), 1);
        assert_eq!(number(lease(&[0], &[1]).await), 2);
        assert_eq!(number(lease(&[0], &[1]).await), 2, "the answer was lost");

        for _ in 0..2 {
            let beat = HeartbeatRequest {
                run: READY.into(),
                group: 0,
                incarnation: 2,
                rank: 0,
                clock: 3,
            };
            let mut coordinator = stage.fleet.client().await.coordinator;
            answer(coordinator.heartbeat(beat)).await.unwrap();
        }

        let leave = || async {
            let leave = LeaveRequest {
                run: READY.into(),
                group: 0,
                incarnation: 2,
                rank: 0,
            };
            let mut coordinator = stage.fleet.client().await.coordinator;
            answer(coordinator.leave(leave)).await.unwrap();
            status(&stage.client, READY).await.unwrap()
        };
        let left = leave().await;
        assert_eq!(left.groups[0].state, "left");
        assert_eq!(leave().await, left);
    });
}

/// A rank that says it has created, but was not told to, still creates when its turn comes.
#[test]
fn creating_cannot_be_claimed() {
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        while !joinable(&client, 1).await {}
        for group in 0..2 {
            join(&client, ("r", group, 0), 1, &[1, 1]).await.unwrap();
        }
        let claims = tokio::spawn({
            let client = client.clone();
            async move { await_ready(&client, ("r", 1, 1), true).await }
        });
        assert!(
            await_ready(&client, ("r", 0, 1), false)
                .await
                .unwrap()
                .create
        );
        let leave = LeaveRequest {
            run: "r".into(),
            group: 0,
            incarnation: 1,
            rank: 0,
        };
        answer(client.coordinator.clone().leave(leave))
            .await
            .unwrap();
        assert!(claims.await.unwrap().unwrap().create);
    });
}

#[test]
fn a_run_waits_for_all_servers() {
    let fleet = Fleet::partial(1, 2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let joined = join(&client, ("r", 0, 0), 1, &[1]).await;
        assert_refused("a server is missing", joined, MISSING);
    });
}

#[test]
fn a_fleet_holds_so_many_runs() {
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        while !joinable(&client, 1).await {}
        let probes = 1;
        for run in probes..256 {
            let name = format!("run-{run}");
            let joined = join(&client, (&name, 0, 0), 1, &[1]).await;
            assert_eq!(joined.unwrap().incarnation, 1);
        }
        let joined = join(&client, ("one-more", 0, 0), 1, &[1]).await;
        assert_refused("a run too many", joined, FULL);
    });
}

#[test]
fn a_server_that_comes_back_without_state_fails_its_runs() {
    let fleet = Fleet::partial(1, 2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let _former = play(&client, INCARNATION).await;
        while !joinable(&client, 1).await {}
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { join(&client, ("r", 0, 0), 1, &[1]).await }
        });
        while status(&client, "r").await.is_err() {
            tokio::task::yield_now().await;
        }
        let _back = play(&client, INCARNATION + 1).await;
        assert_refused("who waited", waiting.await.unwrap(), FAILED);
        let joined = join(&client, ("r", 0, 0), 1, &[1]).await;
        assert_refused("who comes", joined, FAILED);
        assert_eq!(status(&client, "r").await.unwrap().phase, "failed");
    });
}

/// The sizes of [`READY`] are those of its specification.
#[test]
fn a_second_group_joins_under_the_same_specification() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let joined = join(&stage.client, (READY, 2, 0), 9, READY_SIZES)
            .await
            .unwrap();
        let placement = joined.placement.unwrap();
        assert_eq!(placement.owners, [0, 1, 1]);
        assert_eq!(placement.servers.len(), 2);
        assert_eq!(spec(READY_SIZES).group_sizes.len(), 3);
    });
}
