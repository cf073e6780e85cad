//! Calls to the coordinator that are refused.

use tonic::{Code, Status};
use tradewind_proto::limits::COUNT_MAX;
use tradewind_proto::v1::{
    AwaitReadyRequest, Beat, JoinRequest, LeaseChunkRequest, LeaveRequest, SnapshotRequest,
    StatusRequest,
};
use tradewind_tests::cluster::client::{Client, answer};

use super::stage::{READY, READY_SIZES, Stage, keep_lease};
use super::{Expected, Row, assert_refused, spec};

/// A call to the coordinator, or for a shard's status.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Join(Box<JoinRequest>),
    AwaitReady(AwaitReadyRequest),
    KeepLease(Beat),
    LeaseChunk(LeaseChunkRequest),
    Leave(LeaveRequest),
    Snapshot(String),
    Status(String),
    ShardStatus(String),
}

impl Call {
    pub(super) fn join(request: JoinRequest) -> Self {
        Self::Join(Box::new(request))
    }

    pub(super) async fn send(self, client: &Client) -> Result<(), Status> {
        let mut coordinator = client.coordinator.clone();
        match self {
            Self::Join(request) => answer(coordinator.join(*request)).await.map(|_| ()),
            Self::AwaitReady(request) => answer(coordinator.await_ready(request)).await.map(|_| ()),
            Self::KeepLease(beat) => {
                let kept = keep_lease(client, beat).await?;
                // It lasts until the server ends it: an end of this side would be the rank's.
                tokio::spawn(async move {
                    let mut kept = kept;
                    while let Ok(Some(_)) = kept.replies.message().await {}
                });
                Ok(())
            }
            Self::LeaseChunk(request) => answer(coordinator.lease_chunk(request)).await.map(|_| ()),
            Self::Leave(request) => answer(coordinator.leave(request)).await.map(|_| ()),
            Self::Snapshot(run) => answer(coordinator.snapshot(SnapshotRequest { run }))
                .await
                .map(|_| ()),
            Self::Status(run) => answer(coordinator.status(StatusRequest { run }))
                .await
                .map(|_| ()),
            Self::ShardStatus(run) => client.shard_status(1, &run).await.map(|_| ()),
        }
    }
}

/// Who calls.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) run: String,
    pub(super) group: u32,
    pub(super) incarnation: u64,
    pub(super) rank: u32,
}

/// Rank 0 of group 0, which may call.
pub(super) fn member() -> Who {
    Who {
        run: READY.into(),
        group: 0,
        incarnation: 2,
        rank: 0,
    }
}

pub(super) fn await_ready(who: Who) -> Call {
    Call::AwaitReady(AwaitReadyRequest {
        run: who.run,
        group: who.group,
        incarnation: who.incarnation,
        rank: who.rank,
        created: false,
    })
}

pub(super) fn heartbeat(who: Who) -> Call {
    Call::KeepLease(Beat {
        run: who.run,
        group: who.group,
        incarnation: who.incarnation,
        rank: who.rank,
        clock: 3,
        ..Beat::default()
    })
}

pub(super) fn lease(who: Who, finished: &[u64], held: &[u64]) -> Call {
    Call::LeaseChunk(LeaseChunkRequest {
        run: who.run,
        group: who.group,
        incarnation: who.incarnation,
        finished: finished.to_vec(),
        held: held.to_vec(),
    })
}

pub(super) fn leave(who: Who) -> Call {
    Call::Leave(LeaveRequest {
        run: who.run,
        group: who.group,
        incarnation: who.incarnation,
        rank: who.rank,
        finished: Vec::new(),
    })
}

/// A restart of rank 0 of group 2, which has never come.
pub(super) fn join() -> JoinRequest {
    JoinRequest {
        run: READY.into(),
        group: 2,
        rank: 0,
        life: 5,
        spec: Some(spec(READY_SIZES)),
        store_address: String::new(),
    }
}

/// What is wrong with a caller.
pub(super) const CALLERS: &[Row<fn(&mut Who)>] = &[
    (
        "a run name that is none",
        |w| w.run = "a b".into(),
        (Code::InvalidArgument, "malformed", "run name \"a b\""),
    ),
    (
        "an unknown run",
        |w| w.run = "other".into(),
        (Code::NotFound, "unknown-run", "run other is not known"),
    ),
    (
        "an unknown group",
        |w| w.group = 3,
        (Code::NotFound, "unknown-group", "groups 0 to 2, not 3"),
    ),
    (
        "a group that has not joined",
        |w| w.group = 2,
        (Code::PermissionDenied, "not-live", "group 2 is not live"),
    ),
    (
        "incarnation 0",
        |w| w.incarnation = 0,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 0 of group 0",
        ),
    ),
    (
        "a former incarnation",
        |w| w.incarnation = 1,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 1 of group 0",
        ),
    ),
    (
        "an incarnation to come",
        |w| w.incarnation = 3,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "the current one is 2",
        ),
    ),
];

/// What is wrong with the rank of a caller; a lease names none.
pub(super) const RANKS: &[Row<fn(&mut Who)>] = &[(
    "an unknown rank",
    |w| w.rank = 1,
    (
        Code::NotFound,
        "unknown-rank",
        "group 0 has ranks 0 to 0, not 1",
    ),
)];

/// What is wrong with a join that would be answered otherwise.
pub(super) const JOINS: &[Row<fn(&mut JoinRequest)>] = &[
    (
        "a run name that is none",
        |j| j.run = ".hidden".into(),
        (Code::InvalidArgument, "malformed", "run name \".hidden\""),
    ),
    (
        "an unknown group",
        |j| j.group = 3,
        (Code::NotFound, "unknown-group", "groups 0 to 2, not 3"),
    ),
    (
        "an unknown rank",
        |j| j.rank = 1,
        (
            Code::NotFound,
            "unknown-rank",
            "group 2 has ranks 0 to 0, not 1",
        ),
    ),
    (
        "no life",
        |j| j.life = 0,
        (Code::InvalidArgument, "malformed", "life: is missing"),
    ),
    (
        "no specification",
        |j| j.spec = None,
        (Code::InvalidArgument, "malformed", "spec: is missing"),
    ),
    (
        "a store that is nowhere",
        |j| j.store_address = "nowhere".into(),
        (
            Code::InvalidArgument,
            "malformed",
            "store_address: \"nowhere\" is not host:port",
        ),
    ),
    (
        "a store with a long name",
        |j| j.store_address = "x".repeat(300) + ":1",
        (
            Code::InvalidArgument,
            "malformed",
            "store_address: has more than 260 bytes",
        ),
    ),
];

/// Names of runs that no status page has.
pub(super) const PAGES: &[Row<&str>] = &[
    (
        "a run name that is none",
        "a/b",
        (Code::InvalidArgument, "malformed", "run name \"a/b\""),
    ),
    (
        "an unknown run",
        "other",
        (Code::NotFound, "unknown-run", "run other is not known"),
    ),
];

/// Snapshots that cannot be taken.
pub(super) const SNAPSHOTS: &[Row<&str>] = &[
    PAGES[0],
    PAGES[1],
    (
        "a fleet without a folder",
        READY,
        (
            Code::FailedPrecondition,
            "no-folder",
            "no folder for snapshots",
        ),
    ),
];

/// (finished, held) of a group that holds chunks 0 to 3.
pub(super) const LEASES: &[(&str, &[u64], &[u64], Expected)] = &[
    (
        "a chunk more than a group may hold",
        &[],
        &[0, 1, 2, 3],
        (
            Code::FailedPrecondition,
            "lease-refused",
            "already holds 4 chunks",
        ),
    ),
    (
        "a chunk that it does not hold",
        &[0],
        &[1, 2, 3, 99],
        (
            Code::FailedPrecondition,
            "lease-refused",
            "does not hold chunk 99",
        ),
    ),
    (
        "a chunk both finished and held",
        &[0],
        &[0, 1, 2, 3],
        (
            Code::FailedPrecondition,
            "lease-refused",
            "does not hold chunk 0",
        ),
    ),
    (
        "nothing of the above was finished",
        &[],
        &[0, 1, 2, 3],
        (
            Code::FailedPrecondition,
            "lease-refused",
            "already holds 4 chunks",
        ),
    ),
];

#[test]
fn a_bad_call_is_refused_and_changes_nothing() {
    let mut calls: Vec<(String, Call, Expected)> = Vec::new();
    for (name, change, want) in CALLERS.iter().chain(RANKS) {
        let mut who = member();
        change(&mut who);
        let named = |call: &str| format!("{call} of {name}");
        calls.push((named("await_ready"), await_ready(who.clone()), *want));
        calls.push((named("heartbeat"), heartbeat(who.clone()), *want));
        calls.push((named("leave"), leave(who.clone()), *want));
        if want.1 != "unknown-rank" {
            calls.push((named("lease_chunk"), lease(who, &[], &[]), *want));
        }
    }
    for (name, change, want) in JOINS {
        let mut request = join();
        change(&mut request);
        calls.push((format!("join with {name}"), Call::join(request), *want));
    }
    for (name, finished, held, want) in LEASES {
        let call = lease(member(), finished, held);
        calls.push((format!("lease_chunk: {name}"), call, *want));
    }
    for (name, run, want) in PAGES {
        let run = (*run).to_owned();
        let status = Call::Status(run.clone());
        calls.push((format!("status of {name}"), status, *want));
        calls.push((
            format!("shard_status of {name}"),
            Call::ShardStatus(run),
            *want,
        ));
    }

    for (name, run, want) in SNAPSHOTS {
        let call = Call::Snapshot((*run).to_owned());
        calls.push((format!("snapshot of {name}"), call, *want));
    }

    let stage = Stage::new();
    stage.fleet.block_on(async {
        for held in [&[][..], &[0], &[0, 1], &[0, 1, 2]] {
            lease(member(), &[], held)
                .send(&stage.client)
                .await
                .unwrap();
        }
        let before = stage.snapshot().await;
        for (name, call, want) in calls {
            assert_refused(&name, call.send(&stage.client).await, want);
            assert_eq!(stage.snapshot().await, before, "{name}");
        }
        Call::join(join()).send(&stage.client).await.unwrap();
        for good in [
            await_ready,
            heartbeat,
            |who| lease(who, &[0], &[1, 2, 3]),
            leave,
        ] {
            good(member()).send(&stage.client).await.unwrap();
        }
    });
}

/// Such a clock would be where the group's next life begins, and the one after it would be 0.
#[test]
fn a_clock_past_all_that_there_are_is_refused_and_changes_nothing() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let before = stage.snapshot().await;
        for clock in [u64::MAX, COUNT_MAX + 1] {
            let Call::KeepLease(beat) = heartbeat(member()) else {
                unreachable!("a beat")
            };
            let call = Call::KeepLease(Beat { clock, ..beat });
            let want = (Code::InvalidArgument, "malformed", "clock: ");
            let told = call.send(&stage.client).await;
            assert_refused(&format!("clock {clock}"), told, want);
        }
        assert_eq!(stage.snapshot().await, before);
    });
}
