//! Servers are told to end while runs train on them.

use tradewind_common::RunId;
use tradewind_common::spec::RunSpec;
use tradewind_core::saved::ManifestData;
use tradewind_proto::v1::LeaveRequest;
use tradewind_server::snapshot::{Folder, manifest};
use tradewind_tests::cluster::client::answer;
use tradewind_tests::cluster::fleet::{Fleet, Setup};
use tradewind_tests::cluster::member::{Joining, Member};
use tradewind_tests::cluster::until;

use super::pushing::pushes;
use super::{LONG_MS, initial, layout, spec};

/// The only group of a run, which has made so many exchanges.
async fn trains(fleet: &Fleet, run: &str, spec: &RunSpec, exchanges: u32) -> Member {
    let joining = Joining::join(fleet, (run, 0), spec).await.keeping();
    let mut member = joining.begin(&initial(layout(spec).elements())).await;
    pushes(0, &mut member, exchanges).await;
    member
}

/// Makes a last exchange when it is asked to leave, and leaves; how many it has made.
async fn leaves(fleet: &Fleet, run: &str, mut member: Member) -> u64 {
    let client = fleet.client().await;
    until("the group to be asked to leave", async || {
        member.asked_to_leave().then_some(())
    })
    .await;
    pushes(0, &mut member, 1).await;
    let request = LeaveRequest {
        run: run.into(),
        incarnation: member.incarnation.0,
        ..LeaveRequest::default()
    };
    answer(client.coordinator.clone().leave(request))
        .await
        .unwrap();
    member.clock()
}

/// Nobody but the servers tells the groups, which may be jobs of their own.
#[test]
fn what_the_runs_of_a_fleet_have_trained_is_kept_when_its_servers_are_told_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        linger_ms: LONG_MS,
        ..Setup::of(2).folder(folder.path())
    };
    let fleet = setup.start();
    let spec = spec(&[1], 1);
    let runs = ["one", "two"];
    let made = fleet.block_on(async {
        let one = trains(&fleet, runs[0], &spec, 3).await;
        let two = trains(&fleet, runs[1], &spec, 5).await;
        let ((), one, two) = tokio::join!(
            fleet.terminate([0, 1]),
            leaves(&fleet, runs[0], one),
            leaves(&fleet, runs[1], two),
        );
        [one, two]
    });
    assert_eq!(made, [4, 6]);
    for (run, exchanges) in runs.into_iter().zip(made) {
        let (snapshots, run) = (Folder::new(folder.path()), RunId::new(run).unwrap());
        let found = manifest::newest_whole::<ManifestData>(&snapshots, &run, &mut |_, _| ());
        let (whole, damaged) = found.unwrap();
        assert!(damaged.is_empty());
        let samples = 4 * exchanges;
        assert_eq!(whole.unwrap().data.samples, (samples, samples), "{run}");
    }
}
