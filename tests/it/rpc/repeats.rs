//! What may be retried after a broken connection is answered the same; and fleets that cannot
//! take a run in, or have lost one.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Streaming};
use tradewind_proto::v1::{
    Beat, JoinReply, JoinRequest, LeaseChunkReply, LeaseChunkRequest, LeaveRequest, PullFrame,
    PushFrame, Verdict, push_frame,
};
use tradewind_tests::cluster::client::{Client, answer, collect};
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::until;

use super::coordinator::{self, Call};
use super::stage::{
    READY, READY_SIZES, Stage, await_ready, create_all, join, join_as, keep_lease, known, members,
    status,
};
use super::{Expected, TOKEN, assert_refused, bytes, choice, create, frame, push, spec};

const MISSING: Expected = (
    Code::Unavailable,
    "servers-missing",
    "of 2 servers have registered",
);
const FULL: Expected = (Code::ResourceExhausted, "too-many-runs", "256 runs already");
const FAILED: Expected = (
    Code::Aborted,
    "run-failed",
    "shard 1 is lost: every server that had its values is gone, and there is no snapshot",
);
const REPLACED: Expected = (
    Code::Aborted,
    "replaced",
    "rank 0 of group 0 has called again",
);

const SUPERSEDED: Expected = (
    Code::Aborted,
    "superseded",
    "block 1 has come on many streams",
);

/// What is refused here.
pub(super) const REFUSED: [Expected; 5] = [MISSING, FULL, FAILED, REPLACED, SUPERSEDED];

/// docs/protocol.md, "Limits".
const STREAMS_WAITING_MAX: usize = 8;

#[test]
fn a_join_that_is_repeated_is_answered_the_same() {
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let rank_0 = |client: Client| async move { join(&client, ("r", 0, 0), 1, &[2]).await };
        let waiting = tokio::spawn(rank_0(fleet.client().await));
        let client = fleet.client().await;
        known(&client, "r").await;
        let broken = tokio::spawn(rank_0(fleet.client().await));
        // Whoever waits for the answer to an earlier call is told.
        assert_refused("the call before", waiting.await.unwrap(), REPLACED);
        // The connection breaks while the join waits for rank 1.
        broken.abort();
        let again = tokio::spawn(rank_0(fleet.client().await));
        let other = join(&client, ("r", 0, 1), 1, &[2]).await.unwrap();
        let first = again.await.unwrap().unwrap();
        assert_eq!((first.group_rank, other.group_rank), (0, 1));
        let as_first = JoinReply {
            group_rank: 0,
            ..other
        };
        assert_eq!(first, as_first, "both ranks are told the same");
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

        let mut leases = Vec::new();
        for _ in 0..2 {
            let beat = Beat {
                run: READY.into(),
                group: 0,
                incarnation: 2,
                rank: 0,
                clock: 3,
                ..Beat::default()
            };
            let kept = keep_lease(&stage.fleet.client().await, beat.clone()).await;
            let mut kept = kept.unwrap();
            for _ in 0..2 {
                kept.beats.send(beat.clone()).await.unwrap();
                answer(kept.replies.message()).await.unwrap().unwrap();
            }
            leases.push(kept);
        }

        let leave = || async {
            let leave = LeaveRequest {
                run: READY.into(),
                group: 0,
                incarnation: 2,
                rank: 0,
                finished: Vec::new(),
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
        for group in 0..2 {
            join(&client, ("r", group, 0), 1, &[1, 1]).await.unwrap();
        }
        let claim = || {
            let client = client.clone();
            tokio::spawn(async move { await_ready(&client, ("r", 1, 1), true).await })
        };
        // The second to arrive takes the place of the first: both have been heard.
        let (mut first, mut second) = (claim(), claim());
        let (replaced, claims) = tokio::select! {
            ended = &mut first => (ended, second),
            ended = &mut second => (ended, first),
        };
        assert_eq!(replaced.unwrap().unwrap_err().code(), Code::Aborted);
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
            finished: Vec::new(),
        };
        answer(client.coordinator.clone().leave(leave))
            .await
            .unwrap();
        assert!(claims.await.unwrap().unwrap().create);
    });
}

/// Under `sync` a frame waits for the other group. Meanwhile it may be sent again, on the same
/// stream or on others, and each time it is answered; only so many streams may wait.
#[test]
fn a_frame_that_waits_may_be_repeated() {
    let fleet = Fleet::start(2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        for group in 0..2 {
            let mut spec = spec(&[1, 1]);
            spec.consistency = Some(choice("sync", &[]));
            let request = JoinRequest {
                run: "r".into(),
                group,
                spec: Some(spec),
                ..coordinator::join()
            };
            join_as(&client, request).await.unwrap();
        }
        create_all(&client, "r", 0, 1).await;
        for group in 0..2 {
            let ready = await_ready(&client, ("r", group, 1), group == 0).await;
            assert_eq!(ready.unwrap().start_clock, 0);
        }
        let frame_of = |group| push(("r", group, 1), (0, 1), 0, &[1.0; 3]);
        let mut streams = Vec::new();
        for stream in 0..=STREAMS_WAITING_MAX {
            let times = 1 + stream % 2;
            let (up, mut down) = open(&client).await;
            for _ in 0..times {
                up.send(frame_of(0)).await.unwrap();
            }
            // Answered at once, so what was sent before it has arrived.
            let pull = push_frame::Action::Pull(Default::default());
            up.send(frame(("r", 0, 1), 1, pull)).await.unwrap();
            let read = answer(down.message()).await.unwrap().unwrap();
            assert_eq!(read.verdict(), Verdict::Read);
            streams.push((times, down));
        }
        let (_, first) = streams.remove(0);
        let superseded = collect(first).await.1;
        assert_refused("the first of too many streams", superseded, SUPERSEDED);
        client.push(1, frame_of(1)).await.unwrap();
        for (times, down) in streams {
            let (answers, end) = collect(down).await;
            end.unwrap();
            let facts = answers.iter().map(|a| (a.verdict(), a.version));
            assert!(facts.eq(vec![(Verdict::Applied, 1); times]), "{answers:?}");
        }
    });
}

/// A stream to server 1.
async fn open(client: &Client) -> (mpsc::Sender<PushFrame>, Streaming<PullFrame>) {
    let (up, frames) = mpsc::channel(4);
    let mut shard = client.shards[1].clone();
    let frames = Request::new(ReceiverStream::new(frames));
    let down = answer(shard.exchange(frames)).await.unwrap();
    (up, down.into_inner())
}

#[test]
fn a_run_waits_for_all_servers() {
    let fleet = Fleet::partial(1, 2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let joined = Call::join(coordinator::join()).send(&client).await;
        assert_refused("a server is missing", joined, MISSING);
    });
}

#[test]
fn a_fleet_holds_so_many_runs() {
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        for run in 0..256 {
            let name = format!("run-{run}");
            let joined = join(&client, (&name, 0, 0), 1, &[1]).await;
            assert_eq!(joined.unwrap().incarnation, 1);
        }
        let joined = join(&client, ("one-more", 0, 0), 1, &[1]).await;
        assert_refused("a run too many", joined, FULL);
    });
}

/// One copy, and no snapshot: a run that has trained cannot go on, and says so.
#[test]
fn a_server_that_comes_back_without_state_fails_its_runs() {
    let fleet = Fleet::start(2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        join(&client, ("r", 0, 0), 1, &[1, 2]).await.unwrap();
        create_all(&client, "r", 0, 1).await;
        until("the run to be ready", async || {
            let status = status(&client, "r").await.unwrap();
            (status.phase == "ready").then_some(())
        })
        .await;
        // A rank waits for the other one of its group.
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { join(&client, ("r", 1, 0), 1, &[1, 2]).await }
        });
        members(&client, "r", 2).await;
        fleet.kill(1);
        fleet.begin(1);
        assert_refused("who waited", waiting.await.unwrap(), FAILED);
        let joined = join(&client, ("r", 0, 0), 2, &[1, 2]).await;
        assert_refused("who comes", joined, FAILED);
        let status = status(&client, "r").await.unwrap();
        assert_eq!(status.phase, "failed");
        assert!(status.failure.contains(FAILED.2), "{}", status.failure);
    });
}

/// Before anything was trained, nothing is lost that could not be created again.
#[test]
fn a_server_that_comes_back_before_the_run_is_ready_has_its_shard_created_again() {
    let fleet = Fleet::start(2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        join(&client, ("r", 0, 0), 1, &[1]).await.unwrap();
        let told = await_ready(&client, ("r", 0, 1), false).await.unwrap();
        assert!(told.create);
        let half = create(("r", 0, 1), 1, &[7.0; 3]);
        client.push(1, half).await.unwrap();
        fleet.kill(1);
        fleet.begin(1);
        let client = fleet.client().await;
        // Who has created a part joins anew, so that it is not taken for the whole.
        until("the group to form anew", async || {
            let status = status(&client, "r").await.unwrap();
            (status.groups[0].state == "dead").then_some(())
        })
        .await;
        let joined = join(&client, ("r", 0, 0), 1, &[1]).await.unwrap();
        assert_eq!(joined.incarnation, 2);
        create_all(&client, "r", 0, 2).await;
        let ready = await_ready(&client, ("r", 0, 2), true).await.unwrap();
        assert_eq!((ready.create, ready.start_clock), (false, 0));
        let pull = push_frame::Action::Pull(Default::default());
        let read = client.push(1, frame(("r", 0, 0), 1, pull)).await.unwrap();
        assert_eq!(read.values, bytes(&[0.0; 3]), "what was created last");
    });
}

/// A process that is started in the place of another one takes over: the group forms anew, and
/// the former process can do nothing any more.
#[test]
fn another_process_in_a_seat_replaces_the_first() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let client = &stage.client;
        let beat = Beat {
            run: READY.into(),
            group: 1,
            incarnation: 1,
            ..Beat::default()
        };
        let kept = keep_lease(client, beat).await.unwrap();
        let joined = join(client, (READY, 1, 0), 9, READY_SIZES).await.unwrap();
        assert_eq!(joined.incarnation, 2);
        let told = collect(kept.replies).await.1;
        let stale = (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 1 of group 1 is fenced; the current one is 2",
        );
        assert_refused("its lease", told, stale);
        let late = push((READY, 1, 1), (0, 1), 0, &[1.0; 3]);
        assert_refused("its frame", client.push(1, late).await, stale);
        let ready = await_ready(client, (READY, 1, 2), false).await.unwrap();
        assert_eq!(ready.start_clock, 3, "one past the clock that was seen");
    });
}
