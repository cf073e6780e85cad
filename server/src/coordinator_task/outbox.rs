//! Orders on their way to one server. It holds of each run the newest, so that it is never too full,
//! however fast orders come and however slowly the server takes them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tradewind_common::RunId;

use crate::newest::Newest;
use tradewind_core::order::{Order, ServerMessage};
use tradewind_core::revoked::RevokedIdentities;

type Waiting = Arc<Mutex<ToTell>>;

/// What a server is still to be told.
#[derive(Default)]
struct ToTell {
    /// Before all else.
    revoked: Option<RevokedIdentities>,
    orders: Newest<RunId, Box<Order>>,
}

/// Where the coordinator puts a server's orders.
pub struct Outbox {
    waiting: Waiting,
    wake: mpsc::Sender<()>,
}

/// Where the server's stream takes them.
pub struct Taken {
    waiting: Waiting,
    woken: mpsc::Receiver<()>,
}

/// Both ends. The stream ends when the coordinator's is dropped.
pub fn outbox() -> (Outbox, Taken) {
    let waiting = Waiting::default();
    // One word says that there is something, however much it is.
    let (wake, woken) = mpsc::channel(1);
    let taken = Taken {
        waiting: waiting.clone(),
        woken,
    };
    (Outbox { waiting, wake }, taken)
}

impl Outbox {
    /// Puts an order in; `false` if nobody takes any more.
    pub(super) fn put(&self, told: ServerMessage) -> bool {
        match told {
            ServerMessage::Order(order) => {
                let run = order.run.clone();
                lock(&self.waiting).orders.order(run, order);
            }
            ServerMessage::Runs(runs) => {
                lock(&self.waiting).orders.keep(runs.into_iter().collect());
            }
            ServerMessage::Revoked(all) => lock(&self.waiting).revoked = Some(all),
        }
        !matches!(
            self.wake.try_send(()),
            Err(mpsc::error::TrySendError::Closed(()))
        )
    }
}

impl Taken {
    /// The next order, waiting for it; `None` when none comes any more. May be dropped and called again.
    pub async fn next(&mut self) -> Option<ServerMessage> {
        loop {
            if let Some(told) = take(&self.waiting) {
                return Some(told);
            }
            self.woken.recv().await?;
        }
    }
}

fn take(waiting: &Waiting) -> Option<ServerMessage> {
    let mut waiting = lock(waiting);
    if let Some(revoked) = waiting.revoked.take() {
        return Some(ServerMessage::Revoked(revoked));
    }
    let orders = &mut waiting.orders;
    let kept = orders.take_kept(|_| true).map(runs);
    kept.or_else(|| {
        let order = orders.take(|_| true);
        order.map(|(_, order)| ServerMessage::Order(order))
    })
}

fn runs(kept: BTreeSet<RunId>) -> ServerMessage {
    ServerMessage::Runs(kept.into_iter().collect())
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, ToTell> {
    // Nothing in here leaves it half-changed.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> RunId {
        RunId::new(name).unwrap()
    }

    #[tokio::test]
    async fn who_waits_is_woken_and_who_is_gone_takes_nothing() {
        let (outbox, mut taken) = outbox();
        let waits = tokio::spawn(async move {
            let first = taken.next().await;
            (first, taken.next().await.is_none())
        });
        tokio::task::yield_now().await;
        assert!(outbox.put(ServerMessage::Runs(vec![run("a"), run("b")])));
        tokio::task::yield_now().await;
        drop(outbox);
        let (first, none_after) = waits.await.unwrap();
        assert!(matches!(first, Some(ServerMessage::Runs(runs)) if runs == [run("a"), run("b")]));
        assert!(none_after, "the coordinator has dropped it");

        let (outbox, taken) = super::outbox();
        drop(taken);
        assert!(!outbox.put(ServerMessage::Runs(Vec::new())));
    }

    #[tokio::test]
    async fn thousands_are_one_for_who_takes_none() {
        let (outbox, mut taken) = outbox();
        for number in 0..5_000 {
            let runs = (0..number % 3).map(|n| run(&format!("r{n}"))).collect();
            assert!(outbox.put(ServerMessage::Runs(runs)));
        }
        assert!(matches!(taken.next().await, Some(ServerMessage::Runs(runs)) if runs.is_empty()));
        drop(outbox);
        assert!(taken.next().await.is_none());
    }
}
