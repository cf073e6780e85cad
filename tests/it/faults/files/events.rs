//! `events.jsonl`. Nothing depends on it.

use super::super::pushing::all_go_on;
use super::super::spec;
use super::super::watch::{events, shows, snapshot, status};
use super::{all_fail, all_is_well, coordinate, fleet, pushing, told};
use tradewind_tests::cluster::until;

/// Whether an event of this kind is in the folder.
fn has(folder: &std::path::Path, kind: &str) -> bool {
    let told = told(folder);
    told.iter().any(|event| event["kind"] == kind)
}

/// While they cannot be written all goes on as it does otherwise, a failover included; those that happen
/// later are told.
fn cannot_be_written(rule: &str) {
    let (folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        all_fail(&fleet, &[rule]);
        snapshot(&client).await;
        all_go_on(&groups, 3).await;
        fleet.kill(0);
        let client = coordinate(&fleet, 1).await;
        shows(&client, "the failover among the events", |status| {
            events(status, "promoted").first().cloned()
        })
        .await;
        assert!(!has(folder.path(), "promoted"));
        let log = fleet.disks().log(1);
        assert_eq!(log.matches("cannot write events").count(), 1, "{log}");
        let before = told(folder.path()).len();
        all_fail(&fleet, &[]);
        all_is_well(&fleet, &spec, groups, Some(client)).await;
        until("what happened later", async || {
            (told(folder.path()).len() > before).then_some(())
        })
        .await;
    });
}

#[test]
fn input_and_output_errors() {
    cannot_be_written("eio create,write */events.jsonl");
}

#[test]
fn no_space() {
    cannot_be_written("enospc write */events.jsonl");
}

/// A disk that takes seconds for a line holds up neither the coordinator nor its successor.
#[test]
fn written_late() {
    let (folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        all_fail(&fleet, &["delay write */events.jsonl ms=4000"]);
        for _ in 0..5 {
            snapshot(&client).await;
        }
        all_go_on(&groups, 3).await;
        fleet.kill(0);
        let client = coordinate(&fleet, 1).await;
        for _ in 0..5 {
            snapshot(&client).await;
        }
        let lost = events(&status(&client).await, "rank_lost");
        assert!(lost.is_empty(), "{lost:?}");
        for server in 0..super::SERVERS {
            let log = fleet.disks().log(server);
            assert!(!log.contains("held up"), "server {server}:\n{log}");
        }
        all_fail(&fleet, &[]);
        all_is_well(&fleet, &spec, groups, Some(client)).await;
        until("all of them", async || {
            has(folder.path(), "promoted").then_some(())
        })
        .await;
    });
}

/// The coordinator is killed within a line: it spoils none that follows.
#[test]
fn killed_within_a_line() {
    let (folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        fleet
            .disks()
            .set(0, &["torn write */events.jsonl bytes=20"]);
        let mut coordinator = client.coordinator.clone();
        let run = super::RUN.into();
        tokio::spawn(async move {
            let request = tradewind_proto::v1::SnapshotRequest { run };
            coordinator.snapshot(request).await
        });
        until("its end", async || fleet.has_ended(0).then_some(())).await;
        fleet.disks().set(0, &[]);
        fleet.kill(0);
        let client = coordinate(&fleet, 1).await;
        all_is_well(&fleet, &spec, groups, Some(client)).await;
        let text = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
        let spoilt = text.lines().filter(|line| {
            !line.is_empty() && serde_json::from_str::<serde_json::Value>(line).is_err()
        });
        let spoilt: Vec<&str> = spoilt.collect();
        assert!(
            matches!(spoilt[..], [line] if line.len() == 20),
            "the one that was cut off: {spoilt:?}"
        );
    });
}
