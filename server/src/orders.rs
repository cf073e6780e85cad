//! Obeys the coordinator's orders: which shards are held here, what they follow, where their values
//! come from.

use std::sync::Arc;
use std::time::Duration;

use tradewind_common::holders::Role;
use tradewind_common::{BlockId, Layout, ShardId};

use crate::core::optimizer;
use crate::core::order::{Order, Restore, ShardReport};
use crate::core::view::Acknowledge;
use crate::registry::{Entry, Held, Registry};
use crate::replication::Copy;
use crate::shard_task::{Gone, Message, Ordered};
use crate::snapshot::read::{NoneLeft, Restored, newest};

/// How often a snapshot that cannot be read is tried, and the pause between two tries.
pub(crate) const READ_TRIES: u32 = 5;
pub(crate) const READ_PAUSE: Duration = Duration::from_secs(2);

/// Obeys, and says what became of every shard that is held here; nothing if a later order was obeyed
/// before. Orders of one run are obeyed one after the other.
pub(crate) async fn obey(
    registry: &Registry,
    order: Order,
    layout: Arc<Layout>,
) -> Vec<ShardReport> {
    if !registry.is_latest(&order.run, order.view.generation) {
        return Vec::new();
    }
    let entry = Entry {
        spec: order.spec.clone(),
        layout,
        placement: order.placement.clone(),
    };
    registry.learn(&order.run, entry.clone());
    let mut reports = Vec::new();
    for index in 0..order.holders.len() {
        let shard = ShardId(index as u32);
        match order.holders[index].role(registry.server()) {
            None => {
                if let Some(handle) = registry.drop_shard(&order.run, shard) {
                    tracing::info!(run = %order.run, %shard, "held no longer");
                    let _ = handle.send(Message::Close).await;
                }
            }
            Some(role) => {
                if let Some(report) = hold(registry, &order, &entry, (shard, role)).await {
                    reports.push(report);
                }
            }
        }
    }
    reports
}

async fn hold(
    registry: &Registry,
    order: &Order,
    entry: &Entry,
    (shard, role): (ShardId, Role),
) -> Option<ShardReport> {
    let holders = &order.holders[shard.0 as usize];
    let mut held = registry.hold(&order.run, shard, entry);
    let restore = order.restore.iter().find(|restore| restore.shard == shard);
    let restored = match restore.filter(|_| held.lineage < holders.lineage) {
        None => None,
        Some(restore) => match load(registry, order, entry, *restore).await {
            Ok(restored) => {
                let number = restored.number;
                tracing::info!(run = %order.run, %shard, number, "restored from a snapshot");
                held.lineage = holders.lineage;
                held.restored = Some(number);
                held.damaged = restored.damaged;
                registry.note(&order.run, shard, held.clone());
                Some((restored.states, holders.lineage))
            }
            Err(failure) => {
                tracing::error!(run = %order.run, %shard, "cannot be restored: {failure}");
                return Some(ShardReport {
                    shard,
                    // Of this time as a holder: what is said of an earlier one is not listened to.
                    seen: Acknowledge {
                        generation: order.view.generation,
                        ..Acknowledge::default()
                    },
                    restored: None,
                    damaged: Vec::new(),
                    failure: Some(failure),
                });
            }
        },
    };
    let copies = match role {
        Role::Primary(_) => copies(order, shard),
        Role::Copy(_) => Vec::new(),
    };
    let captures = order.capture.iter().filter(|c| c.shard == shard);
    let ordered = Ordered {
        view: order.view.clone(),
        holders: holders.clone(),
        copies,
        restored,
        captures: captures.copied().collect(),
    };
    match held.handle.follow(ordered).await {
        Ok(seen) => {
            let (generation, live) = (order.view.generation, order.view.live.len());
            tracing::info!(
                run = %order.run, %shard, ?role, %generation, live, complete = seen.complete,
                "order followed"
            );
            let Held {
                restored, damaged, ..
            } = held;
            Some(ShardReport {
                shard,
                seen,
                restored,
                damaged,
                failure: None,
            })
        }
        Err(Gone) => None,
    }
}

fn copies(order: &Order, shard: ShardId) -> Vec<Copy> {
    let copies = order.holders[shard.0 as usize].copies.iter();
    let with_address = copies.filter_map(|copy| {
        let server = order.servers.get(&copy.server)?;
        Some(Copy {
            server: copy.server,
            since: copy.since,
            address: server.address.clone(),
        })
    });
    with_address.collect()
}

/// Reads a shard's values from the newest snapshot that is whole. A file that cannot be read is tried
/// again before an older one takes its place: the folder may be on its way back.
async fn load(
    registry: &Registry,
    order: &Order,
    entry: &Entry,
    restore: Restore,
) -> Result<Restored, String> {
    let mut tries = 1;
    loop {
        let read = load_once(registry, order, entry, restore).await?;
        let (may_pass, damaged) = match &read {
            Ok(restored) => (restored.may_pass, &restored.damaged),
            Err(none) => (none.may_pass, &none.damaged),
        };
        if !may_pass || tries == READ_TRIES {
            return read.map_err(|error| error.to_string());
        }
        tracing::warn!(run = %order.run, shard = %restore.shard, "tried again: {}", damaged.join("; "));
        tokio::time::sleep(READ_PAUSE).await;
        tries += 1;
    }
}

async fn load_once(
    registry: &Registry,
    order: &Order,
    entry: &Entry,
    restore: Restore,
) -> Result<Result<Restored, NoneLeft>, String> {
    let Some(folder) = registry.surroundings().snapshots() else {
        return Err("this server has no folder to read snapshots from".into());
    };
    let (run, entry) = (order.run.clone(), entry.clone());
    let read = tokio::task::spawn_blocking(move || {
        let blocks: Vec<BlockId> = entry.placement.blocks(restore.shard).collect();
        let slots = optimizer::from_spec(entry.spec.optimizer).slots();
        let wanted = (restore.newest, restore.only);
        newest(&folder, &run, wanted, &blocks, &entry.layout, slots)
    });
    read.await.map_err(|panicked| panicked.to_string())
}
