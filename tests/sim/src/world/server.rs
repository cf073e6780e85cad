//! A server's process: its shards, its bond with the coordinator, and how it obeys orders.

use std::collections::{BTreeMap, VecDeque};

use tradewind_common::holders::Role;
use tradewind_common::{BlockId, Clock, Generation, ServerId, ShardId};
use tradewind_core::block::Block;
use tradewind_core::mark::{self, Lacking, Mark};
use tradewind_core::order::{NotCaptured, Order, Restore, ShardFile, ShardReport};
use tradewind_core::shard::Shard;
use tradewind_core::view::{Acknowledge, View};

use super::World;
use super::event::{Done, Event, Life, Up};
use super::saboteur::Saboteur;
use super::ways::Way;
use crate::checker::{Rule, Violation};
use crate::scenario::Sabotage;

/// A server through its lives.
#[derive(Default)]
pub(super) struct Server {
    pub(super) up: Option<Running>,
    pub(super) lives: u64,
}

/// A server's process.
pub(super) struct Running {
    pub(super) life: Life,
    pub(super) shards: BTreeMap<ShardId, Held>,
    pub(super) bond: Option<Bond>,
    /// The highest incarnation of a coordinator that was obeyed.
    pub(super) obeyed: u64,
    latest: Generation,
    pub(super) view: View,
    /// One order at a time; the first is being obeyed if it has to read.
    orders: VecDeque<Box<Order>>,
    reading: bool,
}

/// A server's bond with a coordinator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bond {
    pub(super) number: u64,
    pub(super) coordinator: u64,
}

/// A shard that is held here.
pub(super) struct Held {
    pub(super) shard: Shard,
    pub(super) lineage: Generation,
    restored: Option<u64>,
    damaged: Vec<String>,
    lost: Lacking,
    /// Where its blocks began in that lineage.
    starts: BTreeMap<BlockId, Mark>,
    /// Values were restored, and are not primary's yet.
    unmarked: bool,
    pub(super) capture: Option<CaptureState>,
    pub(super) ways: BTreeMap<ServerId, Way>,
    pub(super) saboteur: Saboteur,
    /// When the shard is asked again, at the latest.
    pub(super) timeout_us: Option<u64>,
    /// As a copy: the last record that it confirmed.
    pub(super) last_record: Option<(Generation, Generation, u64)>,
    /// What it acknowledged last.
    pub(super) last_seen: Acknowledge,
}

/// The part of a snapshot that was asked for last.
pub(super) struct CaptureState {
    pub(super) number: u64,
    pub(super) at_clock: Option<Clock>,
    /// What came of it; `None` while it is under way.
    pub(super) result: Option<Result<ShardFile, NotCaptured>>,
}

impl Running {
    pub(super) fn new(life: Life) -> Self {
        Self {
            life,
            shards: BTreeMap::new(),
            bond: None,
            obeyed: 0,
            latest: Generation(0),
            view: View::default(),
            orders: VecDeque::new(),
            reading: false,
        }
    }

    fn must_read(&self, order: &Order) -> bool {
        order.restore.iter().any(|restore| {
            let held = self.shards.get(&restore.shard);
            let lineage = held.map_or(Generation(0), |held| held.lineage);
            let role = order.holders[restore.shard.0 as usize].role(self.life.server);
            matches!(role, Some(Role::Heir(since)) if lineage < since)
        })
    }
}

impl World {
    /// A process that is up, if it still is that one.
    pub(super) fn running(&mut self, life: Life) -> Option<&mut Running> {
        running(&mut self.servers, life)
    }

    /// An order comes; what has to be read takes its time, and later orders wait.
    pub(super) fn order(&mut self, life: Life, order: Box<Order>) -> Result<(), Violation> {
        let Some(server) = self.running(life) else {
            return Ok(());
        };
        server.orders.push_back(order);
        self.next_order(life)
    }

    fn next_order(&mut self, life: Life) -> Result<(), Violation> {
        while let Some(server) = self.running(life) {
            let Some(order) = server.orders.front().filter(|_| !server.reading) else {
                break;
            };
            if server.must_read(order) {
                server.reading = true;
                let takes_us = self.disk.takes_us(self.now_us);
                self.after(takes_us, Event::Server(life, Done::Obey));
                break;
            }
            let order = server.orders.pop_front().expect("looked at above");
            self.obey(life, *order)?;
        }
        Ok(())
    }

    /// What an order needed has been read.
    pub(super) fn read_for_order(&mut self, life: Life) -> Result<(), Violation> {
        let Some(server) = self.running(life) else {
            return Ok(());
        };
        server.reading = false;
        let order = server.orders.pop_front().expect("it was being obeyed");
        self.obey(life, *order)?;
        self.next_order(life)
    }

    fn obey(&mut self, life: Life, order: Order) -> Result<(), Violation> {
        let Some(server) = self.running(life) else {
            return Ok(());
        };
        if order.view.generation < server.latest {
            return Ok(());
        }
        server.latest = order.view.generation;
        server.view = order.view.clone();
        if order.view.ready() && self.scenario.folder && !self.disk.any_whole() {
            let text = "the run is ready, but there is no snapshot";
            return Err(Violation::new(Rule::NoFreshStart, text));
        }
        for index in 0..order.holders.len() {
            let shard = ShardId(index as u32);
            let last = self.is_last(life, shard);
            match order.holders[index].role(life.server) {
                None => self.let_go(life, shard)?,
                Some(role) => self.hold(life, &order, shard, role)?,
            }
            if last {
                self.check_last(life, shard, &order.holders[index])?;
            }
        }
        Ok(())
    }

    fn let_go(&mut self, life: Life, id: ShardId) -> Result<(), Violation> {
        let now_us = self.now_us;
        let server = self.running(life).expect("it obeys");
        let Some(mut held) = server.shards.remove(&id) else {
            return Ok(());
        };
        held.shard.close();
        let outputs: Vec<_> = std::iter::from_fn(|| held.shard.poll_output()).collect();
        self.checker
            .after((life.server, id), &held.shard, (&[], now_us), &outputs)?;
        self.checker.dropped(life.server, Some(id));
        for output in outputs {
            self.emit(life, id, output)?;
        }
        Ok(())
    }

    fn hold(
        &mut self,
        life: Life,
        order: &Order,
        id: ShardId,
        role: Role,
    ) -> Result<(), Violation> {
        let holders = &order.holders[id.0 as usize];
        let new = || Held {
            shard: self.new_shard(life.server, id, order),
            lineage: Generation(0),
            restored: None,
            damaged: Vec::new(),
            lost: Lacking::default(),
            starts: BTreeMap::new(),
            unmarked: false,
            capture: None,
            ways: BTreeMap::new(),
            saboteur: Saboteur::new(self.scenario.sabotage, self.common.spec.samples),
            timeout_us: None,
            last_record: None,
            last_seen: Acknowledge::default(),
        };
        let up = self.servers[&life.server].up.as_ref().expect("it obeys");
        let fresh = (!up.shards.contains_key(&id)).then(new);
        let server = self.running(life).expect("it obeys");
        server.shards.extend(fresh.map(|held| (id, held)));
        let lineage = server.shards[&id].lineage;
        let restore = order.restore.iter().find(|restore| restore.shard == id);
        if let (Role::Heir(since), Some(restore)) = (role, restore)
            && lineage < since
            && !self.restore(life, *restore, (order.view.generation, since))?
        {
            return Ok(());
        }
        self.recount(life, (id, holders.lineage));
        let now_us = self.now_us;
        let server = self.running(life).expect("it obeys");
        let held = server.shards.get_mut(&id).expect("it is held");
        held.saboteur.before_order(&mut held.shard, role);
        let seen = held.shard.handle_order(order.view.clone(), holders, now_us);
        held.last_seen = seen.clone();
        let mut report = plain_report(id, seen);
        if role == Role::Heir(held.lineage) || holders.lineage == held.lineage {
            (report.restored, report.lost) = (held.restored, held.lost);
            report.damaged = held.damaged.clone();
        }
        let follows = held.shard.generation() == order.view.generation;
        let leads = held.leads();
        if leads && std::mem::take(&mut held.unmarked) {
            let lineage = held.shard.lineage();
            let mark = |of: &Block| Mark {
                lineage,
                version: of.version(),
                samples: of.samples_applied(),
            };
            let blocks = held.shard.blocks();
            let marks: Vec<_> = blocks.map(|(id, of)| (id, mark(of))).collect();
            for (block, mark) in marks {
                self.mark((life.server, block), mark);
            }
        }
        let held = &self.servers[&life.server]
            .up
            .as_ref()
            .expect("it obeys")
            .shards[&id];
        self.checker
            .ordered(life.server, id, &held.shard, &order.view)?;
        match role {
            Role::Primary(_) if leads && follows => self.goes_on(id, life.server, holders),
            Role::Heir(since) if follows => self.fences(id, since),
            _ => {}
        }
        let all: Vec<BlockId> = self.common.placement.blocks(id).collect();
        self.follow_ways(life, id, order, role);
        let captures: Vec<_> = order
            .capture
            .iter()
            .filter(|c| c.shard == id)
            .copied()
            .collect();
        for capture in captures {
            self.begin_capture(life, id, capture);
        }
        self.drain_shard(life, id, &all)?;
        self.report_up(life, Up::Report(Box::new(report)));
        Ok(())
    }

    /// Records what leaves, or is restored, where it survives processes.
    pub(super) fn mark(&mut self, of: (ServerId, BlockId), mut mark: Mark) {
        if self.breaks(Sabotage::MarksTooLate) {
            mark.version = mark.version.saturating_sub(1);
        }
        let known = self.marks.entry(of).or_default();
        *known = mark.max(*known);
    }

    /// What is recorded of blocks before a lineage.
    fn marks_before(&self, lineage: Generation) -> BTreeMap<BlockId, Mark> {
        let mut highest = BTreeMap::<BlockId, Mark>::new();
        let before = self.marks.iter().filter(|(_, mark)| mark.lineage < lineage);
        for ((_, block), mark) in before {
            let known = highest.entry(*block).or_default();
            *known = (*mark).max(*known);
        }
        highest
    }

    /// Whoever was cut off when a shard was restored may have answered more meanwhile.
    fn recount(&mut self, life: Life, of: (ShardId, Generation)) {
        let server = self.running(life).expect("it obeys");
        let held = server.shards.get_mut(&of.0).expect("it is held");
        if held.lineage != of.1 || held.starts.is_empty() {
            return;
        }
        self.checker.recounts_lost(of);
        if self.breaks(Sabotage::CountsOnce) {
            return;
        }
        let marks = self.marks_before(of.1);
        let server = self.running(life).expect("it obeys");
        let held = server.shards.get_mut(&of.0).expect("it is held");
        let lost = mark::lost(&marks, &held.starts);
        if lost.loss.updates > held.lost.loss.updates {
            held.lost = lost;
        }
    }

    fn new_shard(&self, server: ServerId, id: ShardId, order: &Order) -> Shard {
        let blocks = order.placement.blocks(id);
        let shard = Shard::new(server, id, order.spec.clone(), &self.common.layout, blocks);
        super::saboteur::policy(shard, self.scenario.sabotage, &order.spec)
    }

    /// Reads a shard's values from a snapshot; `false` if there is none, which is reported.
    fn restore(
        &mut self,
        life: Life,
        restore: Restore,
        (generation, lineage): (Generation, Generation),
    ) -> Result<bool, Violation> {
        let id = restore.shard;
        let blocks: Vec<BlockId> = self.common.placement.blocks(id).collect();
        let upto = (restore.newest, restore.only);
        let by_listing = self.breaks(Sabotage::ReadsByListing);
        let found = match self.disk.newest(upto, &blocks, (self.now_us, by_listing)) {
            Ok(found) => found,
            Err(failure) => {
                let seen = Acknowledge {
                    generation,
                    ..Acknowledge::default()
                };
                let report = ShardReport {
                    failure: Some(failure),
                    ..plain_report(id, seen)
                };
                self.report_up(life, Up::Report(Box::new(report)));
                return Ok(false);
            }
        };
        let read = (found.number, restore.newest, &found.damaged[..]);
        self.check_restore(life, (id, lineage), read)?;
        let mut states = found.states;
        if self.scenario.sabotage == Some(Sabotage::CreatesOverTrained) {
            super::saboteur::forget_training(&mut states);
        }
        if self.scenario.sabotage == Some(Sabotage::ForgetsOnTakingOver) {
            states.iter_mut().for_each(|state| state.decided.clear());
        }
        self.checker.restores(id, lineage, found.saved);
        let starts = mark::starts(&states, lineage);
        let lost = mark::lost(&self.marks_before(lineage), &starts);
        self.checker.counts_lost((id, lineage), &states);
        let server = self.running(life).expect("it obeys");
        let held = server.shards.get_mut(&id).expect("it is held");
        held.shard.restore(states, lineage);
        (held.lost, held.starts, held.unmarked) = (lost, starts, true);
        (held.lineage, held.restored, held.damaged) = (lineage, Some(found.number), found.damaged);
        // Whoever it was before, it is not any more.
        self.checker.dropped(life.server, Some(id));
        Ok(true)
    }
}

/// A process that is up, if it still is that one.
pub(super) fn running(
    servers: &mut BTreeMap<ServerId, Server>,
    life: Life,
) -> Option<&mut Running> {
    let up = servers.get_mut(&life.server)?.up.as_mut();
    up.filter(|up| up.life == life)
}

/// A report that says nothing of snapshots.
pub(super) fn plain_report(shard: ShardId, seen: Acknowledge) -> ShardReport {
    ShardReport {
        shard,
        seen,
        restored: None,
        damaged: Vec::new(),
        lost: Lacking::default(),
        failure: None,
    }
}
