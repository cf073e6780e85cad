//! A disk that is full or fails: training goes on, loudly, and all is well again when there is room.
//! What stands for it is a file where a folder should be, which stops whoever runs the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tradewind_common::spec::RunSpec;
use tradewind_proto::v1::{JoinRequest, LeaveRequest, RemoveRequest, ResumeRequest};
use tradewind_tests::cluster::client::answer;
use tradewind_tests::cluster::fleet::Setup;
use tradewind_tests::cluster::member::{Joining, read};
use tradewind_tests::cluster::{until, wait_for};

use super::pushing::{Pushing, member, pushes};
use super::watch::{events, shows, snapshot, status};
use super::{RUN, after, initial, layout, spec};

/// A folder in whose place there is a file for as long as this lives.
struct Broken {
    folder: PathBuf,
    aside: PathBuf,
}

impl Broken {
    fn new(folder: &Path) -> Self {
        let aside = folder.with_extension("aside");
        fs::rename(folder, &aside).unwrap();
        fs::write(folder, "").unwrap();
        Self {
            folder: folder.to_owned(),
            aside,
        }
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        fs::remove_file(&self.folder).unwrap();
        fs::rename(&self.aside, &self.folder).unwrap();
    }
}

#[test]
fn while_the_coordinator_cannot_write_groups_train_and_joins_wait() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(2).folder(folder.path()).start();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let client = fleet.client().await;
        let zero = Pushing::start(0, member(&fleet, 0, &spec).await);
        zero.goes_on(2).await;

        let broken = Broken::new(&folder.path().join("coordinator"));
        let request = JoinRequest {
            run: RUN.into(),
            group: 1,
            life: 1,
            spec: Some((&spec).into()),
            ..JoinRequest::default()
        };
        let mut coordinator = client.coordinator.clone();
        let joining = tokio::spawn(async move { coordinator.join(request).await });
        shows(&client, "the failing disk among the events", |status| {
            let told = events(status, "disk");
            told.iter()
                .any(|event| event.text.contains("nobody can join"))
                .then_some(())
        })
        .await;
        zero.goes_on(10).await;
        assert!(!joining.is_finished(), "nobody would know of it later");
        let seen = status(&client).await;
        assert_eq!(events(&seen, "disk").len(), 1, "it is said once");

        drop(broken);
        let joined = answer(async { joining.await.unwrap() }).await.unwrap();
        assert_eq!(joined.into_inner().incarnation, 1);
        shows(&client, "the good disk among the events", |status| {
            let told = events(status, "disk");
            told.iter()
                .any(|event| event.text.contains("can be written again"))
                .then_some(())
        })
        .await;
        let path = folder.path().join("events.jsonl");
        wait_for("both in the folder", || {
            let told = fs::read_to_string(&path).unwrap();
            let all = ["nobody can join", "can be written again"];
            all.iter().all(|text| told.contains(text)).then_some(())
        });
        // The same process asks again, and is answered the same.
        let one = Joining::join(&fleet, (RUN, 1), &spec).await.keeping();
        let mut one = one.begin(&initial(layout(&spec).elements())).await;
        let start = one.clock();
        pushes(1, &mut one, 3).await;
        let zero = zero.stop().await;
        let layout = layout(&spec);
        let pushed = [(0, 0..zero.clock()), (1, start..one.clock())];
        let all = after(layout.elements(), &pushed);
        assert_eq!(read(&fleet, RUN, &layout).await, all);
    });
}

/// A successor would not know of it, and have the run created anew.
#[test]
fn while_the_coordinator_cannot_write_nobody_hears_that_a_run_will_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(1).folder(folder.path()).start();
    fleet.block_on(async {
        let spec = spec(&[1], 1);
        let client = fleet.client().await;
        let mut group = member(&fleet, 0, &spec).await;
        pushes(0, &mut group, 2).await;
        let mut coordinator = client.coordinator.clone();
        let leave = LeaveRequest {
            run: RUN.into(),
            incarnation: group.incarnation.0,
            ..LeaveRequest::default()
        };
        answer(coordinator.leave(leave)).await.unwrap();
        until("its last snapshot", async || {
            let run = RUN.into();
            let mut coordinator = client.coordinator.clone();
            answer(coordinator.remove(RemoveRequest { run })).await.ok()
        })
        .await;

        let broken = Broken::new(&folder.path().join("coordinator"));
        let resume = ResumeRequest { run: RUN.into() };
        let resuming = tokio::spawn(async move { coordinator.resume(resume).await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!resuming.is_finished(), "nobody would know of it later");
        drop(broken);
        answer(async { resuming.await.unwrap() }).await.unwrap();
        let group = Joining::join(&fleet, (RUN, 0), &spec).await.keeping();
        let never = vec![f32::NAN; layout(&spec).elements()];
        let group = group.begin(&never).await;
        let layout = layout(&spec);
        assert_eq!(group.values, after(layout.elements(), &[(0, 0..2)]));
    });
}

#[test]
fn while_snapshots_cannot_be_written_groups_train_and_the_last_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(2).folder(folder.path()).start();
    fleet.block_on(async {
        let mut spec: RunSpec = spec(&[1], 1);
        spec.faults.snapshot_ms = 100;
        let client = fleet.client().await;
        let zero = Pushing::start(0, member(&fleet, 0, &spec).await);
        zero.goes_on(2).await;
        let runs = folder.path().join("snapshots").join(RUN);
        let broken = Broken::new(&runs);
        let failed = shows(&client, "a snapshot to fail", |status| {
            events(status, "snapshot_failed").first().cloned()
        })
        .await;
        assert!(failed.text.contains(RUN), "{}", failed.text);
        zero.goes_on(10).await;
        let last = status(&client).await.snapshot.expect("the first one");
        drop(broken);
        let manifest = runs.join(format!("{last:08}/manifest.json"));
        assert!(manifest.exists(), "{}", manifest.display());
        shows(&client, "a later snapshot", |status| {
            status.snapshot.filter(|number| *number > last)
        })
        .await;
        snapshot(&client).await;
        zero.stop().await;
    });
}
