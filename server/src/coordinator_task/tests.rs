//! What is told of what has been decided.

use tempfile::TempDir;
use tokio::sync::oneshot;
use tradewind_common::{GroupId, Incarnation, Rank, RunId, ServerId};

use super::{CallError, CoordinatorHandle, Message, outbox};
use crate::clock::Origin;
use crate::durable::Disk;
use crate::shard_task::tests::spec;
use crate::store::Store;
use tradewind_core::coordinator::Coordinator;
use tradewind_core::order::Server;
use tradewind_core::run::Join;

fn begin(folder: &TempDir) -> CoordinatorHandle {
    let claimed = Store::claim(folder.path()).unwrap();
    let disk = Disk::new((claimed.store, claimed.incarnation), folder.path()).unwrap();
    let core = Coordinator::new(1, true, 10_000);
    CoordinatorHandle::spawn(core, Some((disk, "here:1".into())), Origin::start())
}

/// A join and a question about it are decided together.
#[tokio::test]
async fn who_only_asks_hears_nothing_that_is_not_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = begin(&folder);
    let run = RunId::new("r").unwrap();
    let status = |reply| Message::Status(run.clone(), reply);
    let (orders, _taken) = outbox();
    let server = Server {
        incarnation: Incarnation(1),
        address: "here:2".into(),
        host: "here".into(),
    };
    let register = |reply| Message::Register(ServerId(0), server, orders, reply);
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
