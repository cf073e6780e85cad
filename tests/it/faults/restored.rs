//! One server holds each shard, and the fleet has a folder: a server that dies comes back with what
//! its newest whole snapshot has, and what is missing is counted.

use std::fs;
use std::path::{Path, PathBuf};

use tradewind_common::spec::RunSpec;
use tradewind_tests::cluster::fleet::{Fleet, Setup};
use tradewind_tests::cluster::member::read;

use super::pushing::{member, pushes};
use super::watch::{events, holders, shows, snapshot, status};
use super::{RUN, after, layout, spec};

/// Kills server 1 and begins it again; returns when it has restored its shard.
async fn come_back(fleet: &Fleet) {
    let client = fleet.client().await;
    fleet.kill(1);
    fleet.begin(1);
    let lineage = shows(&client, "shard 1 to be restored", |status| {
        let held = holders(status, 1);
        let there = !events(status, "restored").is_empty() && held.primary == Some(1);
        there.then_some(held.lineage)
    })
    .await;
    assert!(lineage > 0);
    assert_eq!(holders(&status(&client).await, 0).lineage, 0);
}

/// Shard 1 has the group's gradients of these clocks, shard 0 all before `to`.
async fn assert_halves(
    fleet: &Fleet,
    spec: &RunSpec,
    [before, then]: [std::ops::Range<u64>; 2],
    to: u64,
) {
    let layout = layout(spec);
    let client = fleet.client().await;
    let shards = status(&client).await.placement.unwrap().shards;
    let restored = after(layout.elements(), &[(0, before), (0, then)]);
    let whole = after(layout.elements(), &[(0, 0..to)]);
    let seen = read(fleet, RUN, &layout).await;
    for (block, shard) in layout.blocks.iter().zip(shards) {
        let of = if shard == 1 { &restored } else { &whole };
        let range = block.elements.clone();
        assert_eq!(seen[range.clone()], of[range], "block {}", block.id);
    }
}

/// Blocks of shard 1.
async fn blocks(fleet: &Fleet) -> u64 {
    let client = fleet.client().await;
    let shards = status(&client).await.placement.unwrap().shards;
    shards.iter().filter(|shard| **shard == 1).count() as u64
}

/// The file of shard 1 in a snapshot.
fn file(folder: &Path, number: u64) -> PathBuf {
    let path = format!("snapshots/{RUN}/{number:08}/shard-0001.safetensors");
    folder.join(path)
}

/// Changes one bit.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_server_comes_back_from_its_newest_snapshot_and_what_is_lost_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(2).folder(folder.path()).start();
    fleet.block_on(async {
        let spec = spec(&[1], 1);
        let mut group = member(&fleet, 0, &spec).await;
        let client = fleet.client().await;
        pushes(0, &mut group, 5).await;
        snapshot(&client).await;
        pushes(0, &mut group, 3).await;
        come_back(&fleet).await;
        assert_halves(&fleet, &spec, [0..5, 8..8], 8).await;

        pushes(0, &mut group, 4).await;
        assert!(!group.lost(), "the group went on in its life");
        assert_halves(&fleet, &spec, [0..5, 8..12], 12).await;
        let lost = 3 * blocks(&fleet).await;
        let status = shows(&client, "the loss", |status| {
            (status.lost_updates >= lost).then(|| status.clone())
        })
        .await;
        assert_eq!(status.lost_updates, lost, "three clocks of each block");
        let told = &events(&status, "updates_lost");
        assert_eq!(told.last().unwrap().shard, Some(1));

        // Once more, from a snapshot that has seen the gap: nothing is counted twice.
        snapshot(&client).await;
        fleet.kill(1);
        fleet.begin(1);
        pushes(0, &mut group, 2).await;
        assert_halves(&fleet, &spec, [0..5, 8..14], 14).await;
        assert_eq!(super::watch::status(&client).await.lost_updates, lost);
    });
}

#[test]
fn a_damaged_snapshot_is_named_and_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(2).folder(folder.path()).start();
    fleet.block_on(async {
        let spec = spec(&[1], 1);
        let mut group = member(&fleet, 0, &spec).await;
        let client = fleet.client().await;
        pushes(0, &mut group, 2).await;
        snapshot(&client).await;
        pushes(0, &mut group, 2).await;
        let newest = snapshot(&client).await;
        damage(&file(folder.path(), newest));
        pushes(0, &mut group, 1).await;

        come_back(&fleet).await;
        assert_halves(&fleet, &spec, [0..2, 5..5], 5).await;
        let status = status(&client).await;
        let damaged = events(&status, "damaged_snapshot");
        let [damaged] = damaged.as_slice() else {
            panic!("{damaged:?}")
        };
        assert_eq!(damaged.shard, Some(1));
        let name = format!("{newest:08}/shard-0001.safetensors");
        assert!(damaged.text.contains(&name), "{}", damaged.text);
        pushes(0, &mut group, 1).await;
        assert_halves(&fleet, &spec, [0..2, 5..6], 6).await;
    });
}

/// Rule 6: a shard whose values are lost fails the run, and says so.
#[test]
fn a_shard_of_which_no_snapshot_can_be_used_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(2).folder(folder.path()).start();
    fleet.block_on(async {
        let spec = spec(&[1], 1);
        let mut group = member(&fleet, 0, &spec).await;
        let client = fleet.client().await;
        pushes(0, &mut group, 2).await;
        let newest = snapshot(&client).await;
        (1..=newest).for_each(|number| damage(&file(folder.path(), number)));
        fleet.kill(1);
        fleet.begin(1);
        let why = shows(&client, "the run to fail", |status| {
            (status.phase == "failed").then(|| status.failure.clone())
        })
        .await;
        let want = "shard 1 cannot be restored: no snapshot can be used; ";
        assert!(why.starts_with(want), "{why}");
        let name = format!("{newest:08}/shard-0001.safetensors");
        assert!(why.contains(&name), "{why}");
    });
}
