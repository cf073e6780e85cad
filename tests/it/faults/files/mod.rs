//! Servers that are processes, on disks that fail: what is under the coordinator's state, snapshots and
//! events cannot be written, is written late or in part, or is listed as it was a while ago. Beside each
//! fault the coordinator's server is killed.

mod events;
mod folder;
mod snapshots;
mod state;

use std::path::Path;

use tempfile::TempDir;
use tradewind_common::spec::RunSpec;
use tradewind_proto::v1::CoordinateRequest;
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::{Fleet, Setup};
use tradewind_tests::cluster::member::read;
use tradewind_tests::cluster::until;

use super::pushing::{Pushing, all_go_on, all_stop, member};
use super::watch::{all_full, answers, assert_copies_agree, status};
use super::{LEASE_MS, RUN, after, layout};

/// Servers of these fleets; the first one hosts the coordinator.
const SERVERS: u32 = 3;

/// Longer than any test.
const ALWAYS: &str = "ms=600000";

/// A fleet on disks that are well, and its folder.
fn fleet() -> (TempDir, Fleet) {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        lease_ms: LEASE_MS,
        ..Setup::of(SERVERS).folder(folder.path())
    };
    (folder, setup.on_disks().start())
}

/// The disks of all servers fail so: they share the folder.
fn all_fail(fleet: &Fleet, rules: &[&str]) {
    for server in 0..SERVERS {
        fleet.disks().set(server, rules);
    }
}

/// Two groups that push, and every shard is complete.
async fn pushing(fleet: &Fleet, spec: &RunSpec) -> Vec<Pushing> {
    let client = fleet.client().await;
    let members = [member(fleet, 0, spec).await, member(fleet, 1, spec).await];
    let groups = (0..).zip(members);
    let groups: Vec<_> = groups.map(|(group, m)| Pushing::start(group, m)).collect();
    all_full(&client, spec.faults.replication as usize - 1).await;
    all_go_on(&groups, 3).await;
    groups
}

/// Has a server host the coordinator, as the launcher does; what it says if it does not.
async fn try_coordinate(fleet: &Fleet, server: usize) -> Result<(), String> {
    let client = fleet.client_of(server).await;
    let request = CoordinateRequest { servers: SERVERS };
    let reply = answer(client.hosts[server].clone().coordinate(request)).await;
    reply
        .map(drop)
        .map_err(|refused| refused.message().to_owned())
}

/// Has a server host the coordinator, and waits until everybody can find it.
async fn coordinate(fleet: &Fleet, server: usize) -> Client {
    let address = fleet.addresses()[server].clone();
    until("the coordinator to be hosted", async || {
        try_coordinate(fleet, server).await.ok()
    })
    .await;
    until("the coordinator's new address", async || {
        (fleet.try_coordinator_address()? == address).then_some(())
    })
    .await;
    fleet.client().await
}

/// After the first server was killed: another one hosts the coordinator, the copies take over, the server
/// comes back, and every update that was answered is there, once.
async fn all_is_well(fleet: &Fleet, spec: &RunSpec, groups: Vec<Pushing>, former: Option<Client>) {
    let client = match former {
        Some(client) => client,
        None => coordinate(fleet, 1).await,
    };
    answers(&client, 0, 1).await;
    all_go_on(&groups, 3).await;
    fleet.begin(0);
    all_full(&client, 1).await;
    all_go_on(&groups, 3).await;
    let pushed = all_stop(groups).await;
    let layout = layout(spec);
    let all = after(layout.elements(), &pushed);
    assert!(read(fleet, RUN, &layout).await == all, "after {pushed:?}");
    assert_copies_agree(fleet, None).await;
    let seen = status(&client).await;
    assert_eq!((seen.lost_updates, seen.phase.as_str()), (0, "ready"));
    nobody_panicked(fleet);
}

fn nobody_panicked(fleet: &Fleet) {
    for server in 0..SERVERS {
        let log = fleet.disks().log(server);
        assert!(!log.contains("panicked"), "server {server}:\n{log}");
        assert!(!fleet.has_ended(server), "server {server}:\n{log}");
    }
}

/// The lines of the fleet's events that are whole.
fn told(folder: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.filter_map(Result::ok).collect()
}
