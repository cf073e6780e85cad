//! A fleet with a run that is ready and one whose values are being created.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tradewind_proto::refusal;
use tradewind_proto::v1::{
    AwaitReadyReply, AwaitReadyRequest, Beat, BeatReply, JoinReply, JoinRequest, LeaveRequest,
    ShardStatusReply, StatusReply, StatusRequest,
};
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::until;

use super::{BLOCKS, TOKEN, create, push, spec};

/// Ready: group 0 lives its second life and expects clock 3, group 1 its first, group 2 has never
/// come.
pub(super) const READY: &str = "ready";
pub(super) const READY_SIZES: &[u32] = &[1, 1, 1];

/// Two groups have joined; group 0 shall create and has not.
pub(super) const YOUNG: &str = "young";

/// Pause between two tries, and how many there are: a minute on an idle machine.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS_MAX: u32 = 6_000;

pub(super) struct Stage {
    pub(super) client: Client,
    pub(super) fleet: Fleet,
}

/// What must not change.
#[derive(Debug, PartialEq)]
pub(super) struct Snapshot {
    runs: Vec<StatusReply>,
    shards: Vec<ShardStatusReply>,
    /// Of [`READY`] on each server, then of [`YOUNG`].
    pub(super) refused: Vec<u64>,
}

impl Stage {
    pub(super) fn new() -> Self {
        let fleet = Fleet::start(2, TOKEN);
        let client = fleet.block_on(async {
            let client = fleet.client().await;
            set_ready(&client).await;
            for group in 0..2 {
                join(&client, (YOUNG, group, 0), 1, &[1, 1]).await.unwrap();
            }
            let told = await_ready(&client, (YOUNG, 0, 1), false).await.unwrap();
            assert!(told.create);
            client
        });
        Self { client, fleet }
    }

    /// Everything that a refusal leaves as it was; the counter of refusals stands apart.
    pub(super) async fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            runs: Vec::new(),
            shards: Vec::new(),
            refused: Vec::new(),
        };
        for run in [READY, YOUNG] {
            snapshot.runs.push(status(&self.client, run).await.unwrap());
            for server in 0..2 {
                let mut shard = self.client.shard_status(server, run).await.unwrap();
                snapshot.refused.push(std::mem::take(&mut shard.refused));
                // What was refused has travelled all the same.
                (shard.pushed_bytes, shard.pulled_bytes) = (0, 0);
                snapshot.shards.push(shard);
            }
        }
        snapshot
    }
}

async fn set_ready(client: &Client) {
    for group in 0..2 {
        let joined = join(client, (READY, group, 0), 1, READY_SIZES).await;
        assert_eq!(joined.unwrap().incarnation, 1);
    }
    create_all(client, READY, 0, 1).await;
    for group in [0, 1] {
        let ready = await_ready(client, (READY, group, 1), group == 0).await;
        assert_eq!(ready.unwrap().start_clock, 0);
    }
    push_all(client, (READY, 0, 1), 0, 0).await;
    let leave = LeaveRequest {
        run: READY.into(),
        group: 0,
        incarnation: 1,
        rank: 0,
        finished: Vec::new(),
    };
    answer(client.coordinator.clone().leave(leave))
        .await
        .unwrap();
    let joined = join(client, (READY, 0, 0), 2, READY_SIZES).await.unwrap();
    assert_eq!(joined.incarnation, 2);
    let ready = await_ready(client, (READY, 0, 2), false).await.unwrap();
    assert_eq!(ready.start_clock, 1, "one past the clock that was seen");
    for clock in 1..3 {
        push_all(client, (READY, 0, 2), clock, clock).await;
    }
}

/// Joins as (run, group, rank), the process being called `life`.
pub(super) async fn join(
    client: &Client,
    (run, group, rank): (&str, u32, u32),
    life: u64,
    sizes: &[u32],
) -> Result<JoinReply, Status> {
    join_as(client, request((run, group, rank), life, sizes)).await
}

/// Joins, or is told what is missing.
pub(super) async fn join_once(
    client: &Client,
    rank: (&str, u32, u32),
    sizes: &[u32],
) -> Result<JoinReply, Status> {
    let mut coordinator = client.coordinator.clone();
    let joined = answer(coordinator.join(request(rank, 1, sizes))).await;
    joined.map(Response::into_inner)
}

fn request((run, group, rank): (&str, u32, u32), life: u64, sizes: &[u32]) -> JoinRequest {
    JoinRequest {
        run: run.into(),
        group,
        rank,
        life,
        spec: Some(spec(sizes)),
        store_address: String::new(),
    }
}

/// Joins; again while servers are missing.
pub(super) async fn join_as(client: &Client, request: JoinRequest) -> Result<JoinReply, Status> {
    for _ in 0..LOOKS_MAX {
        match answer(client.coordinator.clone().join(request.clone())).await {
            Err(status) if status.code() == Code::Unavailable => tokio::time::sleep(LOOK).await,
            other => return other.map(Response::into_inner),
        }
    }
    panic!("servers are missing")
}

/// Waits until the coordinator has heard of a run.
pub(super) async fn known(client: &Client, run: &str) {
    until("a run", async || status(client, run).await.ok()).await;
}

/// Waits until so many ranks have joined a run, or wait to.
pub(super) async fn members(client: &Client, run: &str, count: usize) {
    until("ranks to join", async || {
        let status = status(client, run).await.ok()?;
        let ranks = status.groups.iter().map(|group| group.ranks.len());
        (ranks.sum::<usize>() == count).then_some(())
    })
    .await;
}

/// Waits as rank 0 of (run, group, incarnation).
pub(super) async fn await_ready(
    client: &Client,
    (run, group, incarnation): (&str, u32, u64),
    created: bool,
) -> Result<AwaitReadyReply, Status> {
    let request = AwaitReadyRequest {
        run: run.into(),
        group,
        incarnation,
        rank: 0,
        created,
    };
    Ok(answer(client.coordinator.clone().await_ready(request))
        .await?
        .into_inner())
}

/// Creates all blocks as zeros, once `group` is told to.
pub(super) async fn create_all(client: &Client, run: &str, group: u32, incarnation: u64) {
    let told = await_ready(client, (run, group, incarnation), false).await;
    let told = match told {
        Ok(told) => told,
        Err(refused) => panic!("{refused}\n{:#?}", status(client, run).await),
    };
    assert!(told.create);
    for (block, (server, length)) in BLOCKS.iter().enumerate() {
        let zeros = create((run, group, incarnation), block as u32, &vec![0.0; *length]);
        // A server that has just come back answers for its shards when it has heard that they are its own.
        until("its holder to answer for the shard", async || match client
            .push(*server, zeros.clone())
            .await
        {
            Ok(_) => Some(()),
            Err(status) if refusal::reason(&status) == Some("not-primary") => None,
            Err(status) => panic!("{status}"),
        })
        .await;
    }
}

/// Pushes a gradient of ones for every block, computed on `version`.
pub(super) async fn push_all(client: &Client, sender: (&str, u32, u64), clock: u64, version: u64) {
    for (block, (server, length)) in BLOCKS.iter().enumerate() {
        let ones = push(sender, (clock, block as u32), version, &vec![1.0; *length]);
        client.push(*server, ones).await.unwrap();
    }
}

/// A lease that is held for as long as this lives.
pub(super) struct Kept {
    pub(super) beats: mpsc::Sender<Beat>,
    pub(super) replies: Streaming<BeatReply>,
}

/// Holds the lease of whom a beat names, once the beat is answered.
pub(super) async fn keep_lease(client: &Client, beat: Beat) -> Result<Kept, Status> {
    let (beats, outgoing) = mpsc::channel(4);
    beats.send(beat).await.expect("there is room");
    let stream = Request::new(ReceiverStream::new(outgoing));
    let mut coordinator = client.coordinator.clone();
    let mut replies = answer(coordinator.keep_lease(stream)).await?.into_inner();
    answer(replies.message()).await?;
    Ok(Kept { beats, replies })
}

/// A run as the coordinator shows it, without the time left on leases.
pub(super) async fn status(client: &Client, run: &str) -> Result<StatusReply, Status> {
    let request = StatusRequest { run: run.into() };
    let reply = answer(client.coordinator.clone().status(request)).await?;
    let mut reply = reply.into_inner();
    for group in &mut reply.groups {
        group.lease_left_ms = 0;
        group
            .ranks
            .iter_mut()
            .for_each(|rank| rank.lease_left_ms = 0);
    }
    reply.servers.iter_mut().for_each(|s| s.lease_left_ms = 0);
    Ok(reply)
}
