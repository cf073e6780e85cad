//! What servers say of the shards that they hold.

use tradewind_common::holders::Role;
use tradewind_common::loss::Loss;
use tradewind_common::{Generation, ServerId, ShardId};

use super::{Phase, Run};
use crate::event::{Event, EventKind};
use crate::fleet::Fleet;
use crate::mark::Lacking;
use crate::order::ShardReport;
use crate::view::Acknowledge;

impl Run {
    /// A holder of a shard has followed an order, or has got further. Reports of the same server
    /// may overtake each other.
    pub(crate) fn report(
        &mut self,
        server: ServerId,
        report: ShardReport,
        fleet: &Fleet,
        now_ms: u64,
    ) {
        let (shard, seen) = (report.shard, &report.seen);
        // Whoever has seen a clock: no later life of a group may begin before it.
        if seen.clock_seen > self.clock_seen {
            self.clock_seen = seen.clock_seen;
            self.dirty = true;
        }
        let known = self.holders.get(shard.0 as usize);
        let role = known.and_then(|holders| {
            let role = holders.role(server)?;
            Some((role, holders.since(server).unwrap_or_default()))
        });
        let Some((role, since)) = role else {
            return;
        };
        // What it said of an earlier time as a holder says nothing of this one.
        if seen.generation < since || self.is_over() {
            return;
        }
        if report.failure.is_none() {
            self.remember(shard, server, seen);
        }
        if !matches!(role, Role::Heir(_))
            && report.restored.is_some()
            && self.lose_more(shard, report.lost)
        {
            return;
        }
        match role {
            Role::Primary(_) => self.primary_reports(server, &report, (fleet, now_ms)),
            Role::Heir(_) => self.heir_reports(server, report),
            Role::Copy(_) | Role::Candidate => {}
        }
        if self.is_unsettled() || !self.is_replicated(shard) {
            self.place(None, fleet, now_ms);
        } else {
            self.advance(now_ms);
        }
    }

    /// Whether a shard has as many holders as it shall have.
    fn is_replicated(&self, shard: ShardId) -> bool {
        let holders = self.holders[shard.0 as usize].servers().count();
        holders >= self.spec.faults.replication as usize
    }

    fn remember(&mut self, shard: ShardId, server: ServerId, seen: &Acknowledge) {
        let known = self.acknowledged.entry((shard, server)).or_default();
        known.generation = known.generation.max(seen.generation);
        known.complete |= seen.complete;
    }

    fn heir_reports(&mut self, server: ServerId, report: ShardReport) {
        let shard = report.shard;
        if !self.restoring.contains_key(&shard) {
            return;
        }
        if let Some(failure) = &report.failure {
            self.tell_damaged(shard, server, &report.damaged);
            self.fail(format!("shard {shard} cannot be restored: {failure}"));
        } else if report.seen.complete && report.restored.is_some() {
            self.restored.insert(shard, report);
        }
    }

    fn primary_reports(&mut self, server: ServerId, report: &ShardReport, now: (&Fleet, u64)) {
        let (shard, seen) = (report.shard, &report.seen);
        let follows = self.ready_at.is_some_and(|at| seen.generation >= at);
        if follows && !seen.complete {
            // Rule 6: a shard that follows the ready run without values has lost them.
            self.fail(format!(
                "server {server} has lost the values of shard {shard}"
            ));
            return;
        }
        self.copies_are_full(shard, &seen.full);
        self.remove_stalled(shard, &seen.stalled, now);
    }

    /// A former primary that was cut off has answered more than was known when the shard was restored.
    /// Whether the run does not go on without that.
    fn lose_more(&mut self, shard: ShardId, lacking: Lacking) -> bool {
        let lost = self.newly_lost(shard, lacking);
        if lost.is_none() {
            return false;
        }
        if self.ends_over(lost) {
            self.stop(format!(
                "shard {shard} lacks {lost} that were acknowledged by a server that had been cut off"
            ));
            return true;
        }
        let lineage = self.holders[shard.0 as usize].lineage;
        self.add_loss(shard, lineage, lacking);
        false
    }

    /// Whether the run ends because of a loss. To resume a run is to accept what it lacks.
    pub(super) fn ends_over(&self, lost: Loss) -> bool {
        let resumes = self.phase == Phase::Restoring;
        !resumes && self.spec.faults.stops_at(lost)
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

    /// What restored values lack that is not counted yet. The loss of a lineage of which nothing was
    /// told is in what they lack once more.
    pub(super) fn newly_lost(&self, shard: ShardId, lacking: Lacking) -> Loss {
        let of_shard = self.losses.get(&shard).into_iter().flatten();
        let later = of_shard.filter(|(lineage, _)| **lineage > lacking.told_of);
        let counted = later.fold(Loss::default(), |sum, (_, lost)| sum.plus(*lost));
        lacking.loss.without(counted)
    }

    /// What was acknowledged is missing in the values of a lineage.
    pub(super) fn add_loss(&mut self, shard: ShardId, lineage: Generation, lacking: Lacking) {
        let lost = self.newly_lost(shard, lacking);
        if !lacking.loss.is_none() {
            let losses = self.losses.entry(shard).or_default();
            losses.retain(|of, _| *of <= lacking.told_of);
            losses.insert(lineage, lacking.loss);
            self.dirty = true;
        }
        if lost.is_none() {
            return;
        }
        let text = format!("shard {shard} lacks {lost} that were acknowledged");
        let event = Event::new(EventKind::UpdatesLost, text);
        self.tell(event.shard(shard).lineage(lineage).lost(lost));
    }
}
