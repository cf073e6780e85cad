use std::path::Path;

use tokio::sync::oneshot;
use tradewind_common::{Clock, GroupId, Rank, RunId, ShardId};
use tradewind_proto::auth::Credentials;
use tradewind_proto::refusal::Reason;
use tradewind_proto::v1::{JoinReply, Placement};

use super::*;
use crate::coordinator::{CoordinatorAt, Joined};
use crate::directory::{Directory, testing::holding};
use crate::network::Reach;
use crate::testing::{Does, FakeCoordinator};

/// For a slow and noisy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const BEAT: Duration = Duration::from_millis(5);

/// Steps a second of the fastest group.
const FASTEST: f64 = 12.5;

fn id() -> RankId {
    RankId {
        run: RunId::new("r").unwrap(),
        group: GroupId(2),
        rank: Rank(1),
    }
}

fn coordinator(at: CoordinatorAt, retry: Duration) -> Coordinator {
    let reach = Reach {
        credentials: Credentials::default(),
        retry,
        connections: 1,
    };
    Coordinator::new(at, reach)
}

/// A rank that beats.
struct Rig {
    heartbeat: Arc<HeartbeatState>,
    directory: Directory,
    lost: oneshot::Receiver<MembershipError>,
    _beats: Heartbeat,
}

fn beating(at: CoordinatorAt, patience: Duration) -> Rig {
    beating_beside(&coordinator(at, patience), patience)
}

/// The same, of a rank that has spoken to the coordinator before.
fn beating_beside(coordinator: &Coordinator, patience: Duration) -> Rig {
    let (directory, news) = Directory::new(holding(3, Some((0, "a:1"))));
    let heartbeat = Arc::<HeartbeatState>::default();
    heartbeat.set_clock(Clock(9));
    heartbeat.set_speed(2.5);
    let lease = Lease {
        id: id(),
        incarnation: Incarnation(4),
        pause: BEAT,
        length: patience,
        heartbeat: heartbeat.clone(),
        news,
    };
    let (lose, lost) = oneshot::channel();
    let beats = keep_lease(coordinator, lease, |error| {
        lose.send(error).unwrap();
    });
    Rig {
        heartbeat,
        directory,
        lost,
        _beats: beats,
    }
}

async fn until(good: impl Fn() -> bool) {
    let wait = async {
        while !good() {
            tokio::time::sleep(BEAT).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("it happens");
}

fn renewed(holding: Option<Holding>) -> Does<BeatReply> {
    Does::Answers(BeatReply {
        generation: 3,
        holding: holding.as_ref().map(Into::into),
        steps_per_second_max: FASTEST,
        leave: false,
    })
}

fn write(path: &Path, incarnation: u64, address: &str) {
    let text = format!(r#"{{"incarnation":{incarnation},"address":"{address}"}}"#);
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn beats_tell_clock_and_speed_and_bring_news() {
    let fake = FakeCoordinator::beats(|beat| {
        renewed((beat.clock > 9).then(|| holding(5, Some((1, "b:1")))))
    });
    let running = fake.run();
    let mut rig = beating(CoordinatorAt::Address(running.address.clone()), PATIENCE);
    until(|| fake.heard().len() > 2).await;
    let first = &fake.heard()[0];
    assert_eq!((first.run.as_str(), first.group, first.rank), ("r", 2, 1));
    assert_eq!((first.incarnation, first.clock), (4, 9));
    assert_eq!(first.steps_per_second, 2.5);
    until(|| rig.heartbeat.fastest() == FASTEST).await;
    rig.heartbeat.set_clock(Clock(10));
    let moved = || rig.directory.primary(ShardId(0)).unwrap().endpoint.address == "b:1";
    until(moved).await;
    assert_eq!(fake.streams(), 1);
    assert!(rig.lost.try_recv().is_err());
}

#[tokio::test]
async fn a_refusal_is_the_end_of_the_life() {
    let fenced = || tradewind_proto::refusal::status(Reason::NotLive, "fenced".into());
    let fake = FakeCoordinator::beats(move |beat| match beat.clock {
        9 => renewed(None),
        _ => Does::Ends(Err(fenced())),
    });
    let running = fake.run();
    let rig = beating(CoordinatorAt::Address(running.address.clone()), PATIENCE);
    until(|| fake.heard().len() > 1).await;
    rig.heartbeat.set_clock(Clock(10));
    let lost = tokio::time::timeout(PATIENCE, rig.lost).await.unwrap();
    let lost = lost.unwrap();
    assert!(matches!(lost, MembershipError::Refused { .. }), "{lost}");
    assert_eq!(fake.streams(), 1);
}

#[tokio::test]
async fn a_stream_that_ends_is_made_anew() {
    let fake = FakeCoordinator::beats(|beat| match beat.clock {
        9 => Does::Ends(Ok(())),
        _ => renewed(None),
    });
    let running = fake.run();
    let mut rig = beating(CoordinatorAt::Address(running.address.clone()), PATIENCE);
    until(|| fake.streams() > 2).await;
    rig.heartbeat.set_clock(Clock(10));
    until(|| fake.heard().iter().filter(|beat| beat.clock == 10).count() > 2).await;
    assert!(rig.lost.try_recv().is_err());
}

#[tokio::test]
async fn calls_and_beats_share_a_connection_and_the_next_one_too() {
    let fake = FakeCoordinator::beats(|beat| match beat.clock {
        9 => renewed(None),
        10 => Does::Ends(Ok(())),
        _ => renewed(None),
    });
    let fake = fake.joined(|_| Ok(joined(4)));
    let running = fake.run();
    let at = CoordinatorAt::Address(running.address.clone());
    let mut coordinator = coordinator(at, PATIENCE);
    let (id, spec) = (id(), crate::testing::spec());
    let join = coordinator.join(&id, 1, &spec, "", Incarnation(0));
    let joined = tokio::time::timeout(PATIENCE, join).await.unwrap();
    assert_eq!(joined.unwrap().incarnation, Incarnation(4));
    let rig = beating_beside(&coordinator, PATIENCE);
    until(|| fake.heard().len() > 1).await;
    assert_eq!(running.connections(), 1);

    rig.heartbeat.set_clock(Clock(10));
    until(|| fake.heard().iter().any(|beat| beat.clock == 10)).await;
    rig.heartbeat.set_clock(Clock(11));
    until(|| fake.heard().iter().any(|beat| beat.clock == 11)).await;
    let connections = running.connections();
    assert!(
        connections > 1,
        "the stream's end is taken for the connection's"
    );
    let ready = coordinator.await_ready(&id, Incarnation(4), false);
    tokio::time::timeout(PATIENCE, ready)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(running.connections(), connections);
}

#[tokio::test]
async fn a_coordinator_that_has_moved_is_found() {
    let fakes = [(); 2].map(|()| FakeCoordinator::beats(|_| renewed(None)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("address.json");
    let old = fakes[0].run();
    // Before there is a file the rank waits for it.
    let mut rig = beating(CoordinatorAt::File(path.clone()), PATIENCE);
    tokio::time::sleep(BEAT).await;
    write(&path, 1, &old.address);
    until(|| !fakes[0].heard().is_empty()).await;
    let new = fakes[1].run();
    write(&path, 2, &new.address);
    drop(old);
    until(|| fakes[1].heard().len() > 1).await;
    assert!(rig.lost.try_recv().is_err());
}

#[tokio::test]
async fn nobody_there_for_too_long_is_the_end_too() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let rig = beating(CoordinatorAt::Address(address.clone()), BEAT);
    let lost = tokio::time::timeout(PATIENCE, rig.lost).await.unwrap();
    let lost = lost.unwrap();
    assert!(
        matches!(lost, MembershipError::Unreachable { .. }),
        "{lost}"
    );
    assert!(lost.to_string().contains(&address), "{lost}");
}

fn joined(incarnation: u64) -> JoinReply {
    JoinReply {
        incarnation,
        store_address: "a:7".into(),
        placement: Some(Placement {
            bucket_bytes: None,
            shards: vec![0],
            holding: Some((&holding(3, Some((0, "a:1")))).into()),
        }),
        group_size: 2,
        group_rank: 1,
        origin_clock: 40,
        origin_samples: 27,
    }
}

async fn join(fake: &FakeCoordinator, after: u64) -> Result<Joined, MembershipError> {
    let running = fake.run();
    let at = CoordinatorAt::Address(running.address.clone());
    let mut coordinator = coordinator(at, PATIENCE);
    let (id, spec) = (id(), crate::testing::spec());
    let join = coordinator.join(&id, 1, &spec, "", Incarnation(after));
    tokio::time::timeout(PATIENCE, join).await.unwrap()
}

#[tokio::test]
async fn a_rank_enters_when_its_former_life_has_ended() {
    let status = tradewind_proto::refusal::status;
    let fake = FakeCoordinator::joins(move |before| match before {
        0 => Err(status(Reason::ServersMissing, "one of two".into())),
        // The coordinator has not heard yet that the incarnation is over.
        1 => Ok(joined(4)),
        _ => Ok(joined(5)),
    });
    let joined = join(&fake, 4).await.unwrap();
    assert_eq!(joined.incarnation, Incarnation(5));
    assert_eq!((joined.group_size, joined.group_rank), (2, Rank(1)));
    assert_eq!(joined.origin, (Clock(40), 27));
    assert_eq!(joined.holding, holding(3, Some((0, "a:1"))));
    assert_eq!(joined.placement.shards(), [ShardId(0)]);
}

#[tokio::test]
async fn a_rank_that_cannot_enter_is_told_why() {
    let status = tradewind_proto::refusal::status;
    let differs = move |_| Err(status(Reason::SpecificationDiffers, "seed differs".into()));
    let error = join(&FakeCoordinator::joins(differs), 0).await.unwrap_err();
    assert!(error.to_string().contains("seed differs"), "{error}");
    for (group_rank, group_size) in [(2, 2), (1, u32::MAX)] {
        let cannot_be = move |_| {
            Ok(JoinReply {
                group_rank,
                group_size,
                ..joined(1)
            })
        };
        let fake = FakeCoordinator::joins(cannot_be);
        let error = join(&fake, 0).await.unwrap_err();
        assert!(matches!(error, MembershipError::Refused { .. }), "{error}");
    }
}
