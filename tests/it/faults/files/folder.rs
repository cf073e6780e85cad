//! The whole folder: state, snapshots and events at once, as when a disk is full.

use tradewind_tests::cluster::{until, wait_for};

use super::super::pushing::all_go_on;
use super::super::spec;
use super::super::watch::{events, shows, status};
use super::{all_fail, all_is_well, fleet, nobody_panicked, pushing, try_coordinate};

fn fails(rule: &str) {
    let (folder, fleet) = fleet();
    fleet.block_on(async {
        let mut spec = spec(&[1, 1], 2);
        spec.faults.snapshot_ms = 300;
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        let rule = format!("{rule} {}/*", folder.path().display());
        all_fail(&fleet, &[&rule]);
        shows(&client, "the failing disk among the events", |status| {
            events(status, "disk").first().cloned()
        })
        .await;
        all_go_on(&groups, 3).await;
        fleet.kill(0);
        try_coordinate(&fleet, 1).await.unwrap_err();
        all_fail(&fleet, &[]);
        let last = last_snapshot(folder.path());
        let client = super::coordinate(&fleet, 1).await;
        until("snapshots to go on", async || {
            status(&client)
                .await
                .snapshot
                .filter(|number| *number > last)
        })
        .await;
        all_is_well(&fleet, &spec, groups, Some(client)).await;
    });
}

/// The number of the newest snapshot that has a manifest.
fn last_snapshot(folder: &std::path::Path) -> u64 {
    let within = folder.join("snapshots").join(super::RUN);
    let snapshots = std::fs::read_dir(within).unwrap().map(Result::unwrap);
    let whole = snapshots.filter(|entry| entry.path().join("manifest.json").exists());
    let number = |name: std::ffi::OsString| name.to_str()?.parse().ok();
    let newest = whole.filter_map(|entry| number(entry.file_name())).max();
    newest.expect("the first one is there")
}

#[test]
fn no_space() {
    fails("enospc create,write,mkdir");
}

/// The launcher gives up what ends again and again.
#[test]
fn no_space_where_a_server_begins() {
    let (_folder, fleet) = fleet();
    fleet.kill(2);
    fleet.disks().set(2, &["enospc write */server-2*.part"]);
    let told = || fleet.disks().log(2).contains("waiting for some");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for("a word about the full disk", || told().then_some(()));
            fleet.disks().set(2, &[]);
        });
        fleet.begin(2);
    });
    assert!(told());
    nobody_panicked(&fleet);
}

#[test]
fn input_and_output_errors() {
    fails("eio create,write,sync,rename,unlink,mkdir");
}

#[test]
fn only_to_be_read() {
    fails("erofs create,write,rename,unlink,mkdir");
}
