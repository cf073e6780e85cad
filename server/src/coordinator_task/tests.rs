//! What is told of what has been decided.

use tempfile::TempDir;
use tokio::sync::oneshot;
use tradewind_common::spec::RunSpec;
use tradewind_common::{GroupId, Incarnation, Rank, RunId, ServerId};

use super::{CallError, CoordinatorHandle, Message, Taken, outbox};
use crate::clock::Origin;
use crate::durable::Disk;
use crate::shard_task::tests::spec;
use crate::store::Store;
use tradewind_core::coordinator::Coordinator;
use tradewind_core::order::{Order, Server, ServerMessage};
use tradewind_core::run::Join;

fn begin(folder: &TempDir) -> CoordinatorHandle {
    let claimed = Store::claim(folder.path()).unwrap();
    let disk = Disk::new((claimed.store, claimed.incarnation), folder.path()).unwrap();
    let core = Coordinator::new(1, true, 10_000);
    CoordinatorHandle::spawn(core, Some((disk, "here:1".into())), Origin::start())
}

fn server() -> Server {
    Server {
        incarnation: Incarnation(1),
        address: "here:2".into(),
        host: "here".into(),
    }
}

/// A join and a question about it are decided together.
#[tokio::test]
async fn who_only_asks_hears_nothing_that_is_not_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = begin(&folder);
    let run = RunId::new("r").unwrap();
    let status = |reply| Message::Status(run.clone(), reply);
    let (orders, _taken) = outbox();
    let register = |reply| Message::Register(ServerId(0), server(), orders, reply);
    coordinator.call(register).await.unwrap();
    let unknown = coordinator.call(status).await.unwrap_err();
    assert!(matches!(unknown, CallError::Refused(_)), "{unknown:?}");

    // Another one has followed: nothing of what is decided now holds.
    drop(Store::claim(folder.path()).unwrap());
    let join = Join {
        group: GroupId(0),
        rank: Rank(0),
        life: 1,
        store_address: String::new(),
    };
    let (joined, _) = oneshot::channel();
    let join = Message::Join(run.clone(), Box::new(spec()), join, joined);
    let (_, told) = tokio::join!(coordinator.tell(join), coordinator.call(status));
    assert_eq!(told.map(|status| status.groups.len()), Err(CallError::Gone));
}

/// Connections break off as a process ends, which is no loss of a server.
#[tokio::test]
async fn a_coordinator_that_was_ended_hears_of_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = begin(&folder);
    let (orders, mut taken) = outbox();
    let register = |reply| Message::Register(ServerId(0), server(), orders, reply);
    let bond = coordinator.call(register).await.unwrap();
    coordinator.end().await;
    assert!(coordinator.is_over());
    let lost = Message::ServerLost(ServerId(0), Incarnation(1), bond);
    coordinator.tell(lost).await;
    let told = coordinator.call(Message::Fleet).await;
    assert_eq!(told.map(|_| ()), Err(CallError::Gone));
    // What it was told before; then its orders have ended, too.
    while taken.next().await.is_some() {}
}

/// More than any queue of orders held when there was one.
const JOINS: u32 = 1_500;

/// Longer than the test takes.
const LEASE_MS: u64 = 600_000;

/// A run of groups of one rank, whose leases do not run out here.
fn many() -> RunSpec {
    let mut many = RunSpec {
        group_sizes: vec![1; JOINS as usize + 1],
        lease_ms: LEASE_MS,
        ..spec()
    };
    many.faults.patience_ms = 2 * LEASE_MS;
    many
}

/// A group of one rank joins, and what comes of that has been decided and has left.
async fn join_one(coordinator: &CoordinatorHandle, run: &RunId, group: u32) {
    let join = Join {
        group: GroupId(group),
        rank: Rank(0),
        life: 1,
        store_address: String::new(),
    };
    // It waits for its servers, longer than anybody listens here.
    let (joined, _) = oneshot::channel();
    let join = Message::Join(run.clone(), Box::new(many()), join, joined);
    coordinator.tell(join).await;
    let placement = |reply| Message::Placement(run.clone(), reply);
    coordinator.call(placement).await.unwrap();
}

async fn next_order(taken: &mut Taken) -> Box<Order> {
    match taken.next().await {
        Some(ServerMessage::Order(order)) => order,
        other => panic!("no order, but {other:?}"),
    }
}

/// A server on a slow way takes nothing while groups join, each with a change of its own. Orders that are queued one a
/// change would overflow, and the server, which is well, lose its bond.
#[tokio::test]
async fn a_server_that_takes_no_orders_while_thousands_join_keeps_its_bond() {
    let core = Coordinator::new(1, false, LEASE_MS);
    let coordinator = CoordinatorHandle::spawn(core, None, Origin::start());
    let (orders, mut taken) = outbox();
    let register = |reply| Message::Register(ServerId(0), server(), orders, reply);
    coordinator.call(register).await.unwrap();
    let run = RunId::new("r").unwrap();
    for group in 0..JOINS {
        join_one(&coordinator, &run, group).await;
    }
    let order = next_order(&mut taken).await;
    assert_eq!(
        order.view.named(),
        JOINS as usize,
        "the newest, and no other"
    );
    let generation = order.view.generation();

    // It is still heard and told: of what has changed since, and no more.
    let followed = |reply| Message::Followed(ServerId(0), run.clone(), Some(generation), reply);
    coordinator.call(followed).await.unwrap();
    join_one(&coordinator, &run, JOINS).await;
    let order = next_order(&mut taken).await;
    assert!(order.view.generation() > generation && order.view.named() == 1);
    let (_, servers) = coordinator.call(Message::Fleet).await.unwrap();
    assert!(servers[0].alive);
}
