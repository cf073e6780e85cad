//! What servers say of the shards that they hold.

use tradewind_common::{Generation, ServerId, ShardId};

use super::{Phase, Run};
use crate::core::event::{Event, EventKind};
use crate::core::order::ShardReport;
use crate::core::view::Acknowledge;

/// Most problems of one report that are told.
const DAMAGED_MAX: usize = 8;

impl Run {
    /// A holder of a shard has followed an order, or has got further. Reports of the same server
    /// may overtake each other.
    pub(in crate::core) fn report(&mut self, server: ServerId, report: ShardReport, now_ms: u64) {
        let (shard, seen) = (report.shard, &report.seen);
        // Whoever has seen a clock: no later life of a group may begin before it.
        if seen.clock_seen > self.clock_seen {
            self.clock_seen = seen.clock_seen;
            self.dirty = true;
        }
        let known = self.holders.get(shard.0 as usize);
        let Some(since) = known.and_then(|holders| holders.since(server)) else {
            return;
        };
        // What it said of an earlier time as a holder says nothing of this one.
        if seen.generation < since || matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        if report.failure.is_none() {
            self.remember(shard, server, seen);
        }
        if self.primary(shard).is_some_and(|p| p.server == server) {
            self.primary_reports(server, report);
        }
        self.advance(now_ms);
    }

    fn remember(&mut self, shard: ShardId, server: ServerId, seen: &Acknowledge) {
        let known = self.acknowledged.entry((shard, server)).or_default();
        known.generation = known.generation.max(seen.generation);
        known.complete |= seen.complete;
    }

    fn primary_reports(&mut self, server: ServerId, report: ShardReport) {
        let (shard, seen) = (report.shard, &report.seen);
        let lineage = self.holders[shard.0 as usize].lineage;
        if seen.generation < lineage {
            return;
        }
        let restored = seen.complete || report.failure.is_some();
        if restored && self.restoring.contains_key(&shard) {
            for damaged in report.damaged.iter().take(DAMAGED_MAX) {
                let text = format!("a snapshot of shard {shard} is passed over: {damaged}");
                let event = Event::new(EventKind::DamagedSnapshot, text);
                self.tell(event.server(server).shard(shard));
            }
        }
        if let Some(failure) = report.failure {
            self.fail(format!("shard {shard} cannot be restored: {failure}"));
            return;
        }
        if seen.complete && self.restoring.remove(&shard).is_some() {
            let from = report.restored.map(|number| number.to_string());
            let from = from.unwrap_or_else(|| "it named".into());
            let text = format!("server {server} has restored shard {shard} from snapshot {from}");
            let event = Event::new(EventKind::Restored, text);
            self.tell(event.server(server).shard(shard));
            self.prune();
            // Its primary need not be told again.
            self.dirty = true;
        }
        let follows = self.ready_at.is_some_and(|at| seen.generation >= at);
        if follows && !seen.complete && !self.restoring.contains_key(&shard) {
            // Rule 6: a shard that follows the ready run without values has lost them.
            self.fail(format!(
                "server {server} has lost the values of shard {shard}"
            ));
            return;
        }
        self.copies_are_full(shard, &seen.full);
        self.count_lost(shard, lineage, seen.lost);
    }

    fn copies_are_full(&mut self, shard: ShardId, full: &[(ServerId, Generation)]) {
        let mut filled = Vec::new();
        for copy in &mut self.holders[shard.0 as usize].copies {
            if !copy.full && full.contains(&(copy.server, copy.since)) {
                copy.full = true;
                filled.push(copy.server);
            }
        }
        if filled.is_empty() {
            return;
        }
        self.change();
        for server in filled {
            let text = format!("server {server} has a full copy of shard {shard}");
            let event = Event::new(EventKind::CopyFull, text);
            self.tell(event.server(server).shard(shard));
        }
    }

    fn count_lost(&mut self, shard: ShardId, lineage: Generation, lost: u64) {
        let (of, known) = self.lost.get(&shard).copied().unwrap_or((lineage, 0));
        let (before, counted) = if of == lineage {
            (0, known)
        } else {
            (known, 0)
        };
        if lost <= counted {
            return;
        }
        self.lost_before += before;
        self.lost.insert(shard, (lineage, lost));
        self.dirty = true;
        let more = lost - counted;
        let text = format!("shard {shard} was restored without {more} contributions of groups");
        let event = Event::new(EventKind::UpdatesLost, text);
        self.tell(event.shard(shard));
    }
}
