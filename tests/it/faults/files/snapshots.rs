//! Snapshots.

use std::path::{Path, PathBuf};

use tradewind_common::RunId;
use tradewind_common::spec::RunSpec;
use tradewind_tests::cluster::client::Client;
use tradewind_tests::cluster::fleet::{Fleet, Setup};
use tradewind_tests::cluster::member::{Joining, Member, read};
use tradewind_tests::cluster::until;

use super::super::pushing::{all_go_on, member, pushes};
use super::super::watch::{all_full, events, shows, snapshot, status};
use super::super::{RUN, after, layout, spec};
use super::{SERVERS, all_fail, all_is_well, fleet, nobody_panicked, pushing};

/// Snapshots one after the other.
const OFTEN_MS: u64 = 300;

fn manifest(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("snapshots/{RUN}/{number:08}/manifest.json"))
}

/// Waits for a whole snapshot after `number`.
async fn after_snapshot(client: &Client, number: u64) -> u64 {
    shows(client, "a later snapshot", |status| {
        status.snapshot.filter(|newest| *newest > number)
    })
    .await
}

/// While none can be written the groups train, it is told, and the last one stays; the coordinator's server
/// is killed. There are snapshots again when the disk is well.
fn cannot_be_written(rule: &str) {
    let (folder, fleet) = fleet();
    fleet.block_on(async {
        let mut spec = spec(&[1, 1], 2);
        spec.faults.snapshot_ms = OFTEN_MS;
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        after_snapshot(&client, 1).await;
        all_fail(&fleet, &[rule]);
        let told = shows(&client, "a snapshot to fail", |status| {
            events(status, "snapshot_failed").first().cloned()
        });
        let text = told.await.text;
        assert!(text.contains("/snapshots/"), "it names the file: {text}");
        all_go_on(&groups, 3).await;
        let last = status(&client).await.snapshot.unwrap();
        assert!(manifest(folder.path(), last).exists());

        fleet.kill(0);
        let client = super::coordinate(&fleet, 1).await;
        all_go_on(&groups, 3).await;
        assert!(manifest(folder.path(), last).exists());
        all_fail(&fleet, &[]);
        after_snapshot(&client, last).await;
        all_is_well(&fleet, &spec, groups, Some(client)).await;
    });
}

#[test]
fn input_and_output_errors() {
    cannot_be_written("eio create,write,sync,rename,mkdir */snapshots/*");
}

#[test]
fn no_space() {
    cannot_be_written("enospc write */snapshots/*");
}

/// Whoever writes is killed within it: what it left is no snapshot, and the next one is whole.
fn is_killed_at_it(server: u32, rule: &str) {
    let (_folder, fleet) = fleet();
    fleet.block_on(async {
        let mut spec = spec(&[1, 1], 2);
        spec.faults.snapshot_ms = OFTEN_MS;
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        let last = after_snapshot(&client, 1).await;
        fleet.disks().set(server, &[rule]);
        until("its end", async || fleet.has_ended(server).then_some(())).await;
        fleet.disks().set(server, &[]);
        if server != 0 {
            fleet.kill(server);
            fleet.begin(server);
            all_full(&client, 1).await;
            all_go_on(&groups, 3).await;
            after_snapshot(&client, last + 1).await;
        }
        // Beside it, or because of it.
        fleet.kill(0);
        let client = super::coordinate(&fleet, 1).await;
        after_snapshot(&client, last + 1).await;
        all_is_well(&fleet, &spec, groups, Some(client)).await;
        let damaged = events(&status(&fleet.client().await).await, "damaged_snapshot");
        assert!(damaged.is_empty(), "{damaged:?}");
    });
}

#[test]
fn a_server_killed_within_its_part() {
    is_killed_at_it(2, "torn write */snapshots/*/shard-*.part bytes=500");
}

#[test]
fn the_coordinator_killed_within_a_manifest() {
    is_killed_at_it(0, "torn write */snapshots/*/manifest.json.part bytes=500");
}

#[test]
fn the_coordinator_killed_before_a_manifest_is_synced() {
    is_killed_at_it(0, "kill rename */snapshots/*/manifest.json");
}

#[test]
fn written_late() {
    let (_folder, fleet) = fleet();
    fleet.block_on(async {
        let mut spec = spec(&[1, 1], 2);
        spec.faults.snapshot_ms = OFTEN_MS;
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        let last = status(&client).await.snapshot.unwrap();
        all_fail(&fleet, &["delay write,sync */snapshots/* ms=900"]);
        all_go_on(&groups, 3).await;
        let last = after_snapshot(&client, last).await;
        fleet.kill(0);
        let client = super::coordinate(&fleet, 1).await;
        after_snapshot(&client, last).await;
        all_fail(&fleet, &[]);
        all_is_well(&fleet, &spec, groups, Some(client)).await;
    });
}

/// One group, one holder a shard; snapshots after two and four exchanges, and one exchange more. Their
/// numbers.
async fn two_snapshots(fleet: &Fleet, spec: &RunSpec) -> (Member, [u64; 2]) {
    let mut group = member(fleet, 0, spec).await;
    let client = fleet.client().await;
    pushes(0, &mut group, 2).await;
    let first = snapshot(&client).await;
    pushes(0, &mut group, 2).await;
    let second = snapshot(&client).await;
    pushes(0, &mut group, 1).await;
    (group, [first, second])
}

/// Kills the coordinator's server, and then server 2, whose shard goes back to a snapshot.
async fn come_back(fleet: &Fleet) -> Client {
    fleet.kill(0);
    let client = super::coordinate(fleet, 1).await;
    fleet.begin(0);
    fleet.kill(2);
    fleet.begin(2);
    shows(&client, "shards to be restored", |status| {
        let restored = events(status, "restored");
        let has = |shard: u32| restored.iter().any(|event| event.shard == Some(shard));
        (has(0) && has(2)).then_some(())
    })
    .await;
    client
}

/// The shard that server 2 holds is as after so many of the group's exchanges.
async fn is_as_after(fleet: &Fleet, client: &Client, spec: &RunSpec, exchanges: u64) {
    let layout = layout(spec);
    let wanted = after(layout.elements(), &[(0, 0..exchanges)]);
    let shards = status(client).await.placement.unwrap().shards;
    let seen = read(fleet, RUN, &layout).await;
    for (block, shard) in layout.blocks.iter().zip(shards) {
        let range = block.elements.clone();
        if shard == 2 {
            assert_eq!(seen[range.clone()], wanted[range], "block {}", block.id);
        }
    }
}

/// A file's bytes are gone though it was synced: the snapshot is named, and the one before it is used.
#[test]
fn cut_short_when_the_machine_died() {
    for what in ["shard-0002.safetensors", "manifest.json"] {
        let (_folder, fleet) = fleet();
        fleet.block_on(async {
            let spec = spec(&[1], 1);
            let rule = format!("cut rename */snapshots/*/{what} bytes=700 after=2 times=1");
            all_fail(&fleet, &[&rule]);
            let (_group, [_, second]) = two_snapshots(&fleet, &spec).await;
            let client = come_back(&fleet).await;
            is_as_after(&fleet, &client, &spec, 2).await;
            let damaged = events(&status(&client).await, "damaged_snapshot");
            let name = format!("{second:08}/{what}");
            assert!(
                damaged.iter().any(|event| event.text.contains(&name)),
                "{name}: {damaged:?}"
            );
            nobody_panicked(&fleet);
        });
    }
}

/// A mount that is away for a while: the newest snapshot is waited for.
#[test]
fn not_readable_for_a_while() {
    let (_folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1], 1);
        let (_group, _) = two_snapshots(&fleet, &spec).await;
        // Servers 0 and 2 come back and read: twice nothing of it.
        all_fail(&fleet, &["eio read */snapshots/*/shard-* times=2"]);
        let client = come_back(&fleet).await;
        is_as_after(&fleet, &client, &spec, 4).await;
        let log = fleet.disks().log(2);
        assert!(log.contains("tried again"), "{log}");
        assert!(events(&status(&client).await, "damaged_snapshot").is_empty());
        nobody_panicked(&fleet);
    });
}

#[test]
fn not_readable_for_a_while_when_the_run_is_resumed() {
    let (folder, fleet) = fleet();
    fleet.block_on(async { drop(two_snapshots(&fleet, &spec(&[1], 1)).await) });
    drop(fleet);
    let setup = Setup {
        resume: Some(RunId::new(RUN).unwrap()),
        ..Setup::of(SERVERS).folder(folder.path())
    };
    let setup = setup.on_disks();
    let disks = setup.disks.as_ref().unwrap();
    disks.set(0, &["eio read */snapshots/*/shard-* times=1"]);
    let fleet = setup.start();
    fleet.block_on(async {
        let spec = spec(&[1], 1);
        let group = Joining::join(&fleet, (RUN, 0), &spec).await.keeping();
        let never = vec![f32::NAN; layout(&spec).elements()];
        let group = group.begin(&never).await;
        assert!(group.values == after(never.len(), &[(0, 0..4)]));
        let log = fleet.disks().log(0);
        assert!(log.contains("tried again"), "{log}");
        nobody_panicked(&fleet);
    });
}

/// Whoever restores, and the coordinator, see the snapshots that there were before.
#[test]
fn listed_as_they_were_before() {
    let (folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1], 1);
        let mut group = member(&fleet, 0, &spec).await;
        pushes(0, &mut group, 2).await;
        let client = fleet.client().await;
        let first = snapshot(&client).await;
        let within = folder.path().join(format!("snapshots/{RUN}"));
        all_fail(&fleet, &[&fleet.disks().as_now(&within)]);
        pushes(0, &mut group, 2).await;
        let second = snapshot(&client).await;
        pushes(0, &mut group, 1).await;
        let client = come_back(&fleet).await;
        is_as_after(&fleet, &client, &spec, 4).await;
        // Numbers go on past what is not listed, and what is whole is not swept away.
        let third = snapshot(&client).await;
        assert!(first < second && second < third);
        for number in [first, second, third] {
            assert!(manifest(folder.path(), number).exists(), "{number}");
        }
        nobody_panicked(&fleet);
    });
}
