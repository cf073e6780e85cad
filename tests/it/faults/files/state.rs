//! The coordinator's state.

use tradewind_proto::v1::JoinRequest;
use tradewind_tests::cluster::client::Client;
use tradewind_tests::cluster::until;

use super::super::pushing::all_go_on;
use super::super::watch::{answers, events, shows, snapshot, status};
use super::super::{RUN, spec};
use super::{ALWAYS, all_fail, all_is_well, coordinate, fleet, pushing, try_coordinate};

/// Has a third group join, which the coordinator has to write down.
fn join(client: &Client) {
    let request = JoinRequest {
        run: RUN.into(),
        group: 2,
        life: 1,
        spec: Some((&spec(&[1, 1, 1], 2)).into()),
        ..JoinRequest::default()
    };
    let mut coordinator = client.coordinator.clone();
    tokio::spawn(async move { coordinator.join(request).await });
}

/// While it cannot be written the groups train; the coordinator's server is killed; nobody else can host
/// it, which is said, until the disk is well again.
fn cannot_be_written(rules: &[&str]) {
    let (folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1, 1, 1], 2);
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        all_fail(&fleet, rules);
        join(&client);
        let told = shows(&client, "the failing disk among the events", |status| {
            events(status, "disk").first().cloned()
        });
        let text = told.await.text;
        assert!(text.contains("coordinator/journal-1-"), "{text}");
        all_go_on(&groups, 3).await;

        fleet.kill(0);
        for server in [1, 2] {
            let refused = try_coordinate(&fleet, server).await.unwrap_err();
            let within = folder.path().join("coordinator");
            assert!(refused.contains(within.to_str().unwrap()), "{refused}");
        }
        all_fail(&fleet, &[]);
        all_is_well(&fleet, &spec, groups, None).await;
    });
}

#[test]
fn input_and_output_errors() {
    cannot_be_written(&["eio create,write,sync,rename,unlink */coordinator/*"]);
}

#[test]
fn no_space() {
    cannot_be_written(&["enospc create,write */coordinator/*"]);
}

#[test]
fn nothing_can_be_synced() {
    cannot_be_written(&["eio sync */coordinator*"]);
}

/// The coordinator is killed while it writes: as much as there was before is what the next one reads.
fn is_killed_at_it(rule: &str) {
    let (_folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1, 1, 1], 2);
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        fleet.disks().set(0, &[rule]);
        join(&client);
        until("its end", async || fleet.has_ended(0).then_some(())).await;
        fleet.kill(0);
        all_is_well(&fleet, &spec, groups, None).await;
    });
}

#[test]
fn killed_within_a_write() {
    is_killed_at_it("torn write */coordinator/journal-1-*.json bytes=100");
}

#[test]
fn killed_before_it_is_synced() {
    is_killed_at_it("kill write */coordinator/journal-1-*.json");
}

#[test]
fn killed_before_it_is_acted_on() {
    is_killed_at_it("kill sync */coordinator/journal-1-*.json");
}

#[test]
fn written_late() {
    let (_folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1, 1, 1], 2);
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        all_fail(&fleet, &["delay write,sync */coordinator/* ms=700"]);
        join(&client);
        all_go_on(&groups, 5).await;
        // Within a write.
        fleet.kill(0);
        let client = coordinate(&fleet, 1).await;
        answers(&client, 0, 1).await;
        let groups_of = status(&client).await.groups;
        assert!(
            groups_of
                .iter()
                .all(|group| group.group == 2 || group.state == "live"),
            "a slow disk is no reason to take anybody for dead: {groups_of:?}"
        );
        all_fail(&fleet, &[]);
        all_is_well(&fleet, &spec, groups, Some(client)).await;
    });
}

/// Its bytes are gone though it was synced, as on a disk that lies. It is named, and no older one is taken.
#[test]
fn cut_short_when_the_machine_died() {
    let (folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1, 1, 1], 2);
        let client = fleet.client().await;
        let groups = pushing(&fleet, &spec).await;
        let path = folder.path().join("coordinator/state-1.json");
        fleet.disks().set(
            0,
            &[
                // What has changed cannot be written, so that all is.
                "eio write */coordinator/journal-1-*.json times=1",
                "cut rename */coordinator/state-1.json bytes=300",
            ],
        );
        join(&client);
        until("a state that is cut short", async || {
            (std::fs::metadata(&path).ok()?.len() == 300).then_some(())
        })
        .await;
        fleet.kill(0);
        for server in [1, 2, 1] {
            let refused = try_coordinate(&fleet, server).await.unwrap_err();
            assert!(refused.contains(path.to_str().unwrap()), "{refused}");
            assert!(refused.contains("--resume"), "the way out: {refused}");
            assert!(!fleet.has_ended(server as u32));
        }
        let claims = std::fs::read_dir(folder.path().join("coordinator")).unwrap();
        let claims = claims.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_str().unwrap().starts_with("claim")
        });
        assert_eq!(claims.count(), 1, "who cannot start deposes nobody");
        drop(groups);
    });
}

/// The servers see the coordinator's folder as it was when they looked at it first: a successor takes the
/// next number and the last state all the same, and the one before finds that it is deposed.
#[test]
fn listed_as_it_was_before() {
    let (_folder, fleet) = fleet();
    fleet.block_on(async {
        let spec = spec(&[1, 1, 1], 2);
        all_fail(&fleet, &[&format!("lag list */coordinator {ALWAYS}")]);
        let groups = pushing(&fleet, &spec).await;
        let mut taken = snapshot(&fleet.client().await).await;
        // Each has it in its turn, so that each has looked. What a former one has decided, such as the
        // number of a snapshot, is in its state, and in none before.
        for (server, life) in [1, 2, 0, 2, 1, 0].into_iter().zip(2..) {
            let client = coordinate(&fleet, server).await;
            shows(&client, "the next coordinator", |status| {
                (status.coordinator == life).then_some(())
            })
            .await;
            let next = snapshot(&client).await;
            assert!(next > taken, "snapshot {next} after {taken}: an old state");
            taken = next;
        }
        fleet.kill(0);
        all_is_well(&fleet, &spec, groups, None).await;
    });
}
