//! Obeys the coordinator's orders: which shards are held here, what they follow, where their values
//! come from.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tradewind_common::holders::Role;
use tradewind_common::{BlockId, Generation, Layout, RunId, ServerId, ShardId};

use crate::marks::{self, Boot};
use crate::registry::{Held, Registry, RunEntry};
use crate::shard_task::Copy;
use crate::shard_task::{Gone, Message, Ordered, Recorder};
use crate::snapshot::read::{NoneLeft, Restored, newest};
use crate::snapshot::{READ_PAUSE, READ_TRIES};
use tradewind_core::mark::{Lacking, Mark, Shortfall};
use tradewind_core::optimizer;
use tradewind_core::order::{Order, Restore, ShardReport};
use tradewind_core::view::{Acknowledge, Behind, OrderedView};

/// Obeys, and says what became of every shard that is held here; `None` if a later order was obeyed
/// before. Orders of one run are obeyed one after the other.
///
/// # Errors
/// If it says what has changed since a view that was not followed here: nothing is done then, and all of the
/// view has to be ordered.
pub(crate) async fn obey(
    registry: &Registry,
    order: Order,
    layout: Arc<Layout>,
) -> Result<Option<Vec<ShardReport>>, Behind> {
    if !registry.follow(&order.run, &order.view)? {
        return Ok(None);
    }
    let entry = RunEntry {
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
                if let Some(report) = hold(registry, &order, &entry, (shard, role)).await? {
                    reports.push(report);
                }
            }
        }
    }
    Ok(Some(reports))
}

async fn hold(
    registry: &Registry,
    order: &Order,
    entry: &RunEntry,
    (shard, role): (ShardId, Role),
) -> Result<Option<ShardReport>, Behind> {
    let holders = &order.holders[shard.0 as usize];
    let mut held = registry.hold(&order.run, shard, entry);
    let restore = order.restore.iter().find(|restore| restore.shard == shard);
    let restore = match (role, restore) {
        (Role::Heir(since), Some(restore)) if held.shortfall.lineage() < since => {
            Some((since, *restore))
        }
        (Role::Heir(_) | Role::Primary(_) | Role::Copy(_) | Role::Candidate, _) => None,
    };
    let restored = match restore {
        None => None,
        Some((lineage, restore)) => match load(registry, order, entry, restore).await {
            Ok(restored) => {
                let number = restored.number;
                let mut shortfall = Shortfall::of(&restored.states, lineage);
                let (marks, problems) = told(registry, order, lineage).await;
                shortfall.read(marks);
                let lost = shortfall.lacking().loss;
                tracing::info!(run = %order.run, %shard, number, %lost, "restored from a snapshot");
                held.shortfall = Arc::new(shortfall);
                held.restored = Some(number);
                held.damaged = restored.damaged;
                held.damaged.extend(problems);
                registry.note(&order.run, shard, held.clone());
                Some((restored.states, lineage))
            }
            Err(failure) => {
                tracing::error!(run = %order.run, %shard, "cannot be restored: {failure}");
                return Ok(Some(ShardReport {
                    shard,
                    // Of this time as a holder: what is said of an earlier one is not listened to.
                    seen: Acknowledge {
                        generation: order.view.generation(),
                        ..Acknowledge::default()
                    },
                    restored: None,
                    damaged: Vec::new(),
                    lost: Lacking::default(),
                    failure: Some(failure),
                }));
            }
        },
    };
    let (copies, recorder) = match role {
        Role::Primary(_) => (
            copies(order, shard),
            record(registry, order, entry, (shard, &mut held)).await,
        ),
        Role::Copy(_) | Role::Heir(_) | Role::Candidate => (Vec::new(), None),
    };
    if held.shortfall.lineage() == holders.lineage {
        recount(registry, order, (shard, &mut held)).await;
    }
    let captures = order.capture.iter().filter(|c| c.shard == shard);
    let ordered = Ordered {
        view: view_for(registry, order, &held),
        holders: holders.clone(),
        copies,
        recorder,
        restored,
        captures: captures.copied().collect(),
    };
    match held.handle.follow(ordered).await {
        Ok(seen) => {
            let seen = seen?;
            held.follows = seen.generation;
            registry.note(&order.run, shard, held.clone());
            let (generation, named) = (order.view.generation(), order.view.named());
            tracing::info!(
                run = %order.run, %shard, ?role, %generation, named, complete = seen.complete,
                "order followed"
            );
            let plain = ShardReport {
                shard,
                seen,
                restored: None,
                damaged: Vec::new(),
                lost: Lacking::default(),
                failure: None,
            };
            // What it restored for an earlier lineage is of no interest any more.
            let lineage = held.shortfall.lineage();
            let restores = role == Role::Heir(lineage) || lineage == holders.lineage;
            Ok(Some(if restores {
                ShardReport {
                    restored: held.restored,
                    damaged: held.damaged,
                    lost: held.shortfall.lacking(),
                    ..plain
                }
            } else {
                plain
            }))
        }
        Err(Gone) => Ok(None),
    }
}

/// What a shard is told of membership: what has changed, where it has followed what that goes on from. One that is
/// new here, or could not be restored for an order before, is told all.
fn view_for(registry: &Registry, order: &Order, held: &Held) -> OrderedView {
    match &order.view {
        OrderedView::Since(change) if change.check(held.follows).is_err() => {
            OrderedView::Whole(registry.view(&order.run))
        }
        view => view.clone(),
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

/// Opens the file in which is recorded what leaves a primary; `None` if that is done already, or
/// cannot be done: then what a later holder lacks of it cannot be told.
async fn record(
    registry: &Registry,
    order: &Order,
    entry: &RunEntry,
    (shard, held): (ShardId, &mut Held),
) -> Option<Recorder> {
    let folder = registry.surroundings().folder.clone();
    let folder = folder.filter(|_| !held.marked)?;
    let (run, server) = (order.run.clone(), registry.server());
    let blocks: Vec<BlockId> = entry.placement.blocks(shard).collect();
    let open = move || Recorder::open(&folder, &run, (server, shard), blocks);
    let opened = tokio::task::spawn_blocking(open).await;
    match opened.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
        Ok(marks) => {
            held.marked = true;
            registry.note(&order.run, shard, held.clone());
            Some(marks)
        }
        Err(error) => {
            tracing::error!(
                run = %order.run, %shard,
                "what is acknowledged cannot be recorded, and a loss of it would not be told: {error}"
            );
            None
        }
    }
}

/// What all holders of the run have recorded before a lineage; and what could not be read of that.
async fn told(registry: &Registry, order: &Order, lineage: Generation) -> (Marks, Vec<String>) {
    let shards = (0..order.holders.len() as u32).map(ShardId);
    let holders: Vec<_> = shards.flat_map(|shard| holders_of(order, shard)).collect();
    recorded(registry, order, move |folder, run| {
        let boot = Boot::of_this_machine();
        marks::read_all(folder, run, &holders, lineage.0, &boot)
    })
    .await
}

/// Looks again at what a former primary of the shard has answered that may have been cut off when it was
/// restored, and have heard of that late.
async fn recount(registry: &Registry, order: &Order, (shard, held): (ShardId, &mut Held)) {
    if !held.shortfall.is_restored() {
        return;
    }
    let holders: Vec<_> = holders_of(order, shard).collect();
    let before = held.shortfall.lineage().0;
    let (marks, _) = recorded(registry, order, move |folder, run| {
        let boot = Boot::of_this_machine();
        Ok(marks::read_of(folder, run, &holders, before, &boot))
    })
    .await;
    let shortfall = Arc::make_mut(&mut held.shortfall);
    if shortfall.read(marks) {
        let lost = shortfall.lacking().loss;
        tracing::warn!(run = %order.run, %shard, %lost, "more is lost than was known");
    }
    registry.note(&order.run, shard, held.clone());
}

fn holders_of(order: &Order, shard: ShardId) -> impl Iterator<Item = (ServerId, ShardId)> + '_ {
    order.servers.keys().map(move |server| (*server, shard))
}

/// What is recorded of blocks.
type Marks = Vec<(BlockId, Mark)>;

/// Reads what is recorded of a run, beside the tasks that answer; and what could not be read.
async fn recorded(
    registry: &Registry,
    order: &Order,
    read: impl FnOnce(&Path, &RunId) -> io::Result<marks::Highest> + Send + 'static,
) -> (Marks, Vec<String>) {
    let Some(folder) = registry.surroundings().folder.clone() else {
        return Default::default();
    };
    let run = order.run.clone();
    let read = tokio::task::spawn_blocking(move || read(&folder, &run)).await;
    match read.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
        Ok((marks, problems)) => {
            let mark = |mark: marks::Mark| Mark {
                lineage: Generation(mark.lineage),
                version: mark.version,
                samples: mark.samples,
            };
            let marks = marks.into_iter().map(|(block, of)| (block, mark(of)));
            (marks.collect(), problems)
        }
        Err(error) => {
            let problem = format!("what was acknowledged cannot be read: {error}");
            (Vec::new(), vec![problem])
        }
    }
}

/// Reads a shard's values from the newest snapshot that is whole. A file that cannot be read is tried
/// again before an older one takes its place: the folder may be on its way back.
async fn load(
    registry: &Registry,
    order: &Order,
    entry: &RunEntry,
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
    entry: &RunEntry,
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
