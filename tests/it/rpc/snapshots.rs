//! Snapshots that are not taken.

use std::fs;

use tonic::Code;
use tradewind_proto::v1::{JoinRequest, RunSpec, SnapshotRequest};
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::Setup;
use tradewind_tests::cluster::until;

use super::stage::{await_ready, create_all, join_as};
use super::{Expected, assert_refused, choice, spec};

const RUN: &str = "kept";

const FAILED: Expected = (Code::Aborted, "snapshot-failed", "could not write shard");
const WAITING: Expected = (
    Code::ResourceExhausted,
    "too-many-waiting",
    "64 callers wait for that already",
);

/// What is refused here.
pub(super) const REFUSED: [Expected; 2] = [FAILED, WAITING];

/// A run of one group that may push; docs/protocol.md, "Limits".
const WAITING_MAX: usize = 64;

async fn ready(client: &Client, consistency: &str) {
    let request = JoinRequest {
        run: RUN.into(),
        life: 1,
        spec: Some(RunSpec {
            consistency: Some(choice(consistency, &[])),
            ..spec(&[1])
        }),
        ..JoinRequest::default()
    };
    join_as(client, request).await.unwrap();
    create_all(client, RUN, 0, 1).await;
    await_ready(client, (RUN, 0, 1), true).await.unwrap();
}

fn request() -> SnapshotRequest {
    SnapshotRequest { run: RUN.into() }
}

#[test]
fn who_asks_is_told_why_there_is_no_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(2).folder(folder.path()).start();
    fleet.block_on(async {
        let client = fleet.client().await;
        ready(&client, "async").await;
        let ask = || answer_to(&client);
        let first = ask().await.unwrap();
        let within = folder.path().join("snapshots");
        // A file where a folder should be, whoever runs the test.
        let aside = folder.path().join("aside");
        fs::rename(&within, &aside).unwrap();
        fs::write(&within, "").unwrap();
        assert_refused("the disk fails", ask().await.map(|_| ()), FAILED);
        fs::remove_file(&within).unwrap();
        fs::rename(&aside, &within).unwrap();
        let number = ask().await.unwrap();
        assert!(number > first, "{number}");
    });
}

async fn answer_to(client: &Client) -> Result<u64, tonic::Status> {
    let mut coordinator = client.coordinator.clone();
    let reply = answer(coordinator.snapshot(request())).await?;
    Ok(reply.into_inner().number)
}

/// Under `sync` a snapshot waits for a clock, and nobody pushes here.
#[test]
fn so_many_may_wait_for_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(2).folder(folder.path()).start();
    fleet.block_on(async {
        let client = fleet.client().await;
        ready(&client, "sync").await;
        let ask = || {
            let client = client.clone();
            tokio::spawn(async move { client.coordinator.clone().snapshot(request()).await })
        };
        let mut asking: Vec<_> = (0..WAITING_MAX).map(|_| ask()).collect();
        until("one too many", async || {
            let asked = ask();
            tokio::select! {
                told = asked => {
                    assert_refused("one too many", told.unwrap(), WAITING);
                    Some(())
                }
                () = tokio::time::sleep(std::time::Duration::from_millis(100)) => None,
            }
        })
        .await;
        asking.iter_mut().for_each(|asked| asked.abort());
    });
}
