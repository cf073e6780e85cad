//! What people ask of a run: groups that come, groups that leave, and runs that a fleet forgets.

use tonic::Code;
use tradewind_proto::v1::{
    AttachRequest, DrainRequest, JoinRequest, RemoveRequest, ResumeRequest, RunSpec,
};
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::Setup;

use super::stage::{join, join_as};
use super::{Expected, assert_refused, choice, spec};

const FIXED: Expected = (
    Code::FailedPrecondition,
    "fixed-groups",
    "set train.consistency to bounded or async",
);
const TRAINS: Expected = (
    Code::FailedPrecondition,
    "still-trains",
    "run grown still has groups",
);
const DRAINED: Expected = (Code::FailedPrecondition, "drained", "group 1");
const UNKNOWN: Expected = (
    Code::FailedPrecondition,
    "no-snapshot",
    "has no whole snapshot",
);

const EXISTS: Expected = (Code::AlreadyExists, "run-exists", "run grown exists");

/// What is refused here.
pub(super) const REFUSED: [Expected; 5] = [FIXED, TRAINS, DRAINED, UNKNOWN, EXISTS];

async fn attach(client: &Client, run: &str, sizes: &[u32]) -> Result<u32, tonic::Status> {
    let request = AttachRequest {
        run: run.into(),
        sizes: sizes.to_vec(),
    };
    let reply = answer(client.coordinator.clone().attach(request)).await?;
    Ok(reply.into_inner().first_group)
}

async fn drain(client: &Client, run: &str, groups: &[u32]) -> Result<(), tonic::Status> {
    let request = DrainRequest {
        run: run.into(),
        groups: groups.to_vec(),
    };
    answer(client.coordinator.clone().drain(request)).await?;
    Ok(())
}

#[test]
fn people_are_told_what_cannot_be_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Setup::of(2).folder(folder.path()).start();
    fleet.block_on(async {
        let client = fleet.client().await;
        let coordinator = || client.coordinator.clone();
        let of_sync = JoinRequest {
            run: "dealt".into(),
            life: 1,
            spec: Some(RunSpec {
                consistency: Some(choice("sync", &[])),
                ..spec(&[1])
            }),
            ..JoinRequest::default()
        };
        join_as(&client, of_sync).await.unwrap();
        let added = attach(&client, "dealt", &[1]).await;
        assert_refused("a group for a synchronous run", added, FIXED);

        join(&client, ("grown", 0, 0), 1, &[1]).await.unwrap();
        assert_eq!(attach(&client, "grown", &[1, 1]).await.unwrap(), 1);
        let run = || "grown".to_owned();
        let removed = answer(coordinator().remove(RemoveRequest { run: run() })).await;
        assert_refused("a run that trains", removed, TRAINS);
        let resumed = answer(coordinator().resume(ResumeRequest { run: run() })).await;
        assert_refused("a run that is there", resumed, EXISTS);
        let run = "unknown".to_owned();
        let resumed = answer(coordinator().resume(ResumeRequest { run })).await;
        assert_refused("a run without a snapshot", resumed, UNKNOWN);
        drain(&client, "grown", &[1]).await.unwrap();
        let joined = join(&client, ("grown", 1, 0), 1, &[1, 1, 1]).await;
        assert_refused("a group that was asked to leave", joined, DRAINED);
    });
}
