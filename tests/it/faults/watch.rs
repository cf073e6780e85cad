//! What is seen of a run from outside.

use tradewind_proto::v1::{
    self, Event, PullFrame, PushFrame, SnapshotRequest, StatusReply, StatusRequest, push_frame,
};
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::until;

use super::{RUN, gradient};

/// The status page, if there is a coordinator that knows the run.
pub(super) async fn try_status(client: &Client) -> Option<StatusReply> {
    let mut coordinator = client.coordinator.clone();
    let request = StatusRequest { run: RUN.into() };
    let reply = answer(coordinator.status(request)).await.ok()?;
    Some(reply.into_inner())
}

pub(super) async fn status(client: &Client) -> StatusReply {
    try_status(client).await.expect("a coordinator")
}

/// Waits until the status page shows something.
pub(super) async fn shows<T>(
    client: &Client,
    what: &str,
    look: impl Fn(&StatusReply) -> Option<T>,
) -> T {
    until(what, async || look(&try_status(client).await?)).await
}

pub(super) fn holders(status: &StatusReply, shard: usize) -> &v1::Holders {
    let placement = status.placement.as_ref().expect("a run has one");
    let holding = placement.holding.as_ref().expect("a run has one");
    &holding.holders[shard]
}

/// Waits until a shard has this primary.
pub(super) async fn answers(client: &Client, shard: usize, server: u32) {
    let what = format!("server {server} to answer for shard {shard}");
    shows(client, &what, |status| {
        (holders(status, shard).primary == Some(server)).then_some(())
    })
    .await;
}

/// Waits until every shard has so many copies, all of them full.
pub(super) async fn all_full(client: &Client, copies: usize) {
    shows(client, "full copies", |status| {
        let placement = status.placement.as_ref()?;
        let mut all = placement.holding.as_ref()?.holders.iter();
        let full = |h: &v1::Holders| h.copies.len() == copies && h.copies.iter().all(|c| c.full);
        all.all(|h| h.primary.is_some() && full(h)).then_some(())
    })
    .await;
}

/// The events of a kind, oldest first.
pub(super) fn events(status: &StatusReply, kind: &str) -> Vec<Event> {
    let of_kind = status.events.iter().filter(|event| event.kind == kind);
    of_kind.cloned().collect()
}

/// Takes a snapshot; its number.
pub(super) async fn snapshot(client: &Client) -> u64 {
    let mut coordinator = client.coordinator.clone();
    let request = SnapshotRequest { run: RUN.into() };
    let reply = answer(coordinator.snapshot(request)).await.unwrap();
    reply.into_inner().number
}

/// Every copy has the bits of its primary; where `version` is given, so many updates of each block.
pub(super) async fn assert_copies_agree(fleet: &Fleet, version: impl Into<Option<u64>>) {
    let version = version.into();
    let client = fleet.client().await;
    let status = status(&client).await;
    let shards = status.placement.as_ref().unwrap().holding.as_ref().unwrap();
    for (shard, holders) in (0u32..).zip(&shards.holders) {
        let primary = holders.primary.unwrap();
        let held = |server: u32| client.status_of(server as usize, RUN, shard);
        // A snapshot that is taken meanwhile is a record, too.
        let first = until("all records to be confirmed", async || {
            let reply = held(primary).await.unwrap();
            (reply.unconfirmed == 0).then_some(reply)
        })
        .await;
        if let Some(version) = version {
            let versions = (first.version_min, first.version_max);
            assert_eq!(versions, (version, version), "shard {shard}");
        }
        assert!(first.primary, "shard {shard}");
        for copy in &holders.copies {
            let copy = held(copy.server).await.unwrap();
            assert!(!copy.primary);
            assert_eq!(copy.digest, first.digest, "shard {shard}");
        }
    }
}

/// A frame of a group's gradient at a clock for a block of 8 values.
pub(super) fn frame((group, incarnation): (u32, u64), (clock, block): (u64, u32)) -> PushFrame {
    let values = gradient(group, clock, (block as usize + 1) * 8);
    let values = &values[block as usize * 8..];
    let gradient = v1::Gradient {
        samples: 4,
        dtype: v1::DType::DtypeF32.into(),
        values: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ..v1::Gradient::default()
    };
    PushFrame {
        run: RUN.into(),
        group,
        incarnation,
        clock,
        block,
        action: Some(push_frame::Action::Gradient(gradient)),
        ..PushFrame::default()
    }
}

/// A bare pull.
pub(super) fn pull(block: u32) -> PushFrame {
    PushFrame {
        run: RUN.into(),
        block,
        action: Some(push_frame::Action::Pull(v1::Pull {})),
        ..PushFrame::default()
    }
}

/// The values of an answer.
pub(super) fn values(answer: &PullFrame) -> Vec<f32> {
    let value = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four bytes"));
    answer.values.chunks(4).map(value).collect()
}
