//! A whole fleet ends, and another one goes on with its run from a snapshot.

use std::path::Path;

use tradewind_common::spec::RunSpec;
use tradewind_common::{RunId, TensorKind, TensorSpec};
use tradewind_core::coordinator::Coordinator;
use tradewind_proto::v1::{LeaseChunkReply, LeaseChunkRequest};
use tradewind_server::store::Store;
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::{Fleet, Setup};
use tradewind_tests::cluster::member::{Joining, Member, read};
use tradewind_tests::cluster::until;

use super::coordinator::coordinate;
use super::pushing::{Pushing, member, pushes};
use super::watch::{all_full, events, shows, snapshot, status};
use super::{LEASE_MS, RUN, after, initial, layout, spec};

async fn lease(client: &Client, group: u32, incarnation: u64, finished: &[u64]) -> LeaseChunkReply {
    let request = LeaseChunkRequest {
        run: RUN.into(),
        group,
        incarnation,
        finished: finished.to_vec(),
        held: Vec::new(),
    };
    let chunk = answer(client.coordinator.clone().lease_chunk(request)).await;
    chunk.unwrap().into_inner()
}

#[test]
fn a_run_goes_on_with_other_numbers_of_servers_and_groups() {
    let folder = tempfile::tempdir().unwrap();
    let (saved, clock, begun) = {
        let fleet = Setup::of(2).folder(folder.path()).start();
        fleet.block_on(async {
            let spec = spec(&[1], 1);
            let client = fleet.client().await;
            let mut group = member(&fleet, 0, &spec).await;
            let first = lease(&client, 0, 1, &[]).await;
            pushes(0, &mut group, 4).await;
            // One chunk is used up, the next one is out when the snapshot is taken.
            let second = lease(&client, 0, 1, &[first.chunk]).await;
            snapshot(&client).await;
            pushes(0, &mut group, 2).await;
            assert_eq!(second.begin, first.end);
            let of = after(layout(&spec).elements(), &[(0, 0..4)]);
            (of, 4, second)
        })
    };

    let setup = Setup {
        resume: Some(RunId::new(RUN).unwrap()),
        ..Setup::of(3).folder(folder.path())
    };
    let fleet = setup.start();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let client = fleet.client().await;
        let zero = Joining::join(&fleet, (RUN, 0), &spec).await.keeping();
        let one = Joining::join(&fleet, (RUN, 1), &spec).await.keeping();
        let lives = [&zero, &one].map(|joining| joining.joined.incarnation.0);
        assert!(lives.iter().all(|life| *life > 1), "{lives:?}");
        // Nobody creates anything.
        let elements = layout(&spec).elements();
        let never = vec![f32::NAN; elements];
        let mut zero = zero.begin(&never).await;
        let mut one = one.begin(&never).await;
        assert_eq!((&zero.values, &one.values), (&saved, &saved));
        assert!(zero.clock() >= clock && one.clock() >= clock);
        let status = status(&client).await;
        assert_eq!(events(&status, "restored").len(), 3);

        let next = lease(&client, 1, lives[1], &[]).await;
        assert_eq!((next.epoch, next.begin), (begun.epoch, begun.begin));
        let (starts, times) = ([zero.clock(), one.clock()], 3);
        pushes(0, &mut zero, times).await;
        pushes(1, &mut one, times).await;
        let mut all = saved;
        let fresh = initial(elements);
        let pushed = [(0, starts[0]..zero.clock()), (1, starts[1]..one.clock())];
        for ((value, then), now) in all.iter_mut().zip(fresh).zip(after(elements, &pushed)) {
            *value += now - then;
        }
        assert_eq!(read(&fleet, RUN, &layout(&spec)).await, all);
        all_full(&client, 1).await;
        // Copies, snapshots: all of it goes on.
        let number = snapshot(&client).await;
        shows(&client, "a snapshot", |status| {
            (status.snapshot == Some(number)).then_some(())
        })
        .await;
    });
}

/// Its specification, as its snapshot has it, says in which buckets blocks lie; whoever joins does not.
#[test]
fn a_run_of_an_earlier_version_goes_on_with_its_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = |name: &str, elements| TensorSpec {
        name: name.into(),
        shape: vec![elements],
        kind: TensorKind::Parameter,
    };
    let now = |servers| RunSpec {
        tensors: vec![tensor("a", 10), tensor("b", 7), tensor("c", 100)],
        ..spec(&[1], servers)
    };
    let before = RunSpec {
        bucket_bytes: Some(64),
        ..now(1)
    };
    let saved = {
        let fleet = Setup::of(2).folder(folder.path()).start();
        fleet.block_on(async {
            let mut group = member(&fleet, 0, &before).await;
            pushes(0, &mut group, 4).await;
            snapshot(&fleet.client().await).await;
            group.values
        })
    };
    assert_eq!(saved, after(117, &[(0, 0..4)]));

    let fleet = resuming(folder.path()).start();
    fleet.block_on(async {
        let joining = Joining::join(&fleet, (RUN, 0), &now(2)).await.keeping();
        assert_eq!(joining.joined.bucket_bytes, Some(64));
        let (old, new) = (layout(&before), layout(&now(2)));
        assert_eq!(joining.joined.placement.shards().len(), old.blocks.len());
        assert_ne!(old.blocks, new.blocks);
        let mut group = joining.begin(&[f32::NAN; 117]).await;
        assert_eq!(group.values, saved);
        pushes(0, &mut group, 2).await;
        assert_eq!(read(&fleet, RUN, &old).await, group.values);
        // Its next snapshot is one of the same blocks.
        snapshot(&fleet.client().await).await;
    });
}

/// Trains the run on a fleet that then ends; the values of its snapshot, which is after four exchanges.
fn interrupted(folder: &Path) -> Vec<f32> {
    let fleet = Setup::of(2).folder(folder).start();
    fleet.block_on(async {
        let spec = spec(&[1], 1);
        let mut group = member(&fleet, 0, &spec).await;
        pushes(0, &mut group, 4).await;
        snapshot(&fleet.client().await).await;
        pushes(0, &mut group, 2).await;
        after(layout(&spec).elements(), &[(0, 0..4)])
    })
}

/// Three servers that are to resume it.
fn resuming(folder: &Path) -> Setup {
    Setup {
        resume: Some(RunId::new(RUN).unwrap()),
        ..Setup::of(3).folder(folder)
    }
}

/// Its group comes, creates nothing and has the snapshot's values.
async fn goes_on(fleet: &Fleet, saved: &Vec<f32>) -> Member {
    let spec = spec(&[1], 2);
    let joining = Joining::join(fleet, (RUN, 0), &spec).await.keeping();
    assert!(joining.joined.incarnation.0 > 1);
    let never = vec![f32::NAN; layout(&spec).elements()];
    let mut group = joining.begin(&never).await;
    assert_eq!(&group.values, saved);
    assert!(group.clock() >= 4);
    pushes(0, &mut group, 2).await;
    group
}

/// The first host has claimed the folder and, before it died, written down what this says, if
/// anything; then the other servers are there, and nobody has told them to host.
fn without_the_first(setup: Setup, state: Option<&Coordinator>) -> Fleet {
    let folder = setup.folder.clone().unwrap();
    let setup = Setup {
        started: 0,
        stand_in: true,
        ..setup
    };
    let fleet = setup.start();
    let claimed = Store::claim(&folder).unwrap();
    if let Some(state) = state {
        let state = serde_json::to_vec(&state.durable()).unwrap();
        claimed.store.write(&state).unwrap();
    }
    (0..3).for_each(|server| fleet.begin(server));
    fleet
}

#[test]
fn who_is_asked_to_host_resumes_what_the_first_host_has_not_written_down() {
    let empty = Coordinator::new(3, true, LEASE_MS);
    for state in [None, Some(&empty)] {
        let folder = tempfile::tempdir().unwrap();
        let saved = interrupted(folder.path());
        let fleet = without_the_first(resuming(folder.path()), state);
        fleet.block_on(async {
            assert!(coordinate(&fleet, 1).await > 1);
            goes_on(&fleet, &saved).await;
        });
    }
}

#[test]
fn who_stands_in_resumes_what_the_first_host_has_not_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let saved = interrupted(folder.path());
    let setup = Setup {
        lease_ms: LEASE_MS,
        ..resuming(folder.path())
    };
    let fleet = without_the_first(setup, None);
    fleet.block_on(async {
        until("a coordinator", async || fleet.try_coordinator_address()).await;
        goes_on(&fleet, &saved).await;
    });
}

#[test]
fn who_hosts_after_the_run_has_gone_on_does_not_go_back_to_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let saved = interrupted(folder.path());
    let setup = Setup {
        lease_ms: LEASE_MS,
        ..resuming(folder.path())
    };
    let fleet = setup.start();
    fleet.block_on(async {
        let group = goes_on(&fleet, &saved).await;
        let client = fleet.client().await;
        all_full(&client, 1).await;
        let pushing = Pushing::start(0, group);
        pushing.goes_on(2).await;
        let before = status(&client).await;
        fleet.kill(0);
        let life = coordinate(&fleet, 1).await;
        assert!(life > before.coordinator);
        pushing.goes_on(2).await;
        fleet.begin(0);
        all_full(&fleet.client().await, 1).await;
        let group = pushing.stop().await;
        assert!(!group.lost(), "it went on in its life");
        let status = status(&fleet.client().await).await;
        assert_eq!(status.coordinator, life);
        // What had been answered after the snapshot was lost, and nothing since.
        assert!(before.lost_updates > 0);
        assert_eq!(status.lost(), before.lost());
        assert_eq!(read(&fleet, RUN, &group.layout).await, group.values);
    });
}
