//! What servers say of the shards that they hold, and what follows when one comes or goes: each shard's
//! holders decide, and the run tells them what they need to know of the rest.

use tradewind_common::holders::{Primary, Role};
use tradewind_common::loss::Loss;
use tradewind_common::{ServerId, ShardId};

use super::Run;
use super::holders::{Choice, LostServer};
use crate::event::{Event, EventKind};
use crate::fleet::Fleet;
use crate::mark::Lacking;
use crate::order::{Restore, ShardReport};

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
        self.reports.see(seen.clock_seen, &mut self.out);
        let Some(holding) = self.holders.get(shard) else {
            return;
        };
        let (role, since) = (holding.role(server), holding.holders().since(server));
        let Some(role) = role else {
            return;
        };
        // What it said of an earlier time as a holder says nothing of this one.
        if seen.generation < since.unwrap_or_default() || self.progress.is_over() {
            return;
        }
        if report.failure.is_none() {
            self.reports.remember(shard, server, seen);
        }
        if !matches!(role, Role::Heir(_))
            && report.restored.is_some()
            && self.lose_more(shard, report.lost)
        {
            return;
        }
        match role {
            Role::Primary(_) => self.primary_reports(server, &report, fleet, now_ms),
            Role::Heir(_) => self.heir_reports(server, report),
            Role::Copy(_) | Role::Candidate => {}
        }
        let replication = self.identity.spec.faults.replication;
        if self.is_unsettled() || self.holders.of(shard).lacks_holders(replication) {
            self.place(None, fleet, now_ms);
        } else {
            self.advance(now_ms);
        }
    }

    fn heir_reports(&mut self, server: ServerId, report: ShardReport) {
        let shard = report.shard;
        let holding = self.holders.of_mut(shard);
        if holding.restore().is_none() {
            return;
        }
        if let Some(failure) = &report.failure {
            holding.tell_damaged(server, &report.damaged, &mut self.out);
            self.fail(format!("shard {shard} cannot be restored: {failure}"));
        } else if report.seen.complete && report.restored.is_some() {
            holding.heir_has_restored(report);
        }
    }

    fn primary_reports(
        &mut self,
        server: ServerId,
        report: &ShardReport,
        fleet: &Fleet,
        now_ms: u64,
    ) {
        let (shard, seen) = (report.shard, &report.seen);
        if self.progress.knows_ready(seen.generation) && !seen.complete {
            // Rule 6: a shard that follows the ready run without values has lost them.
            self.fail(format!(
                "server {server} has lost the values of shard {shard}"
            ));
            return;
        }
        let holding = self.holders.of_mut(shard);
        let filled = holding.copies_are_full(&seen.full);
        if !filled.is_empty() {
            self.out.change();
        }
        for server in filled {
            let text = format!("server {server} has a full copy of shard {shard}");
            let event = Event::new(EventKind::CopyFull, text);
            self.out.tell(event.server(server).shard(shard));
        }
        if holding.remove_stalled(&seen.stalled, fleet, now_ms, &mut self.out) {
            self.out.change();
        }
    }

    /// A former primary that was cut off has answered more than was known when the shard was restored.
    /// Whether the run does not go on without that.
    fn lose_more(&mut self, shard: ShardId, lacking: Lacking) -> bool {
        let lost = self.losses.uncounted(shard, lacking);
        if lost.is_none() {
            return false;
        }
        if self.ends_over(lost) {
            self.stop(format!(
                "shard {shard} lacks {lost} that were acknowledged by a server that had been cut off"
            ));
            return true;
        }
        let lineage = self.holders.of(shard).holders().lineage;
        self.losses.add(shard, lineage, lacking, &mut self.out);
        false
    }

    /// Whether the run ends because of a loss. To resume a run is to accept what it lacks.
    fn ends_over(&self, lost: Loss) -> bool {
        !self.progress.is_resuming() && self.identity.spec.faults.stops_at(lost)
    }

    /// A life of a server is gone. What follows from that is for [`place`](Self::place).
    pub(crate) fn server_lost(&mut self, lost: LostServer, fleet: &Fleet) {
        if self.progress.is_over() {
            return;
        }
        self.reports.forget_server(lost.server);
        let missed = self.holders.lose(lost, fleet, &mut self.out);
        if missed.any {
            self.out.change();
        }
        let mut primaries = missed.primaries.iter();
        if primaries.any(|shard| self.snapshots.capture(*shard).is_some()) {
            self.snapshots.disturb(&mut self.out);
        }
    }

    /// Takes every step about holders whose conditions are met: after a server has come, when one has
    /// said something, or when one is not waited for any more.
    pub(crate) fn place(&mut self, newcomer: Option<ServerId>, fleet: &Fleet, now_ms: u64) {
        if self.progress.is_over() {
            return;
        }
        let mut changed = false;
        for shard in self.holders.ids() {
            changed |= self.place_shard(shard, newcomer, fleet);
            if self.progress.is_over() {
                return;
            }
        }
        let replication = self.identity.spec.faults.replication;
        changed |= self
            .holders
            .add_copies(newcomer, replication, fleet, &mut self.out);
        if changed {
            self.out.change();
        }
        self.advance(now_ms);
    }

    /// The steps about one shard. Whether there are any.
    fn place_shard(&mut self, shard: ShardId, newcomer: Option<ServerId>, fleet: &Fleet) -> bool {
        let patience_ms = self.identity.spec.faults.patience_ms;
        let holding = self.holders.of_mut(shard);
        if let Some(newcomer) = newcomer {
            holding.stay(newcomer);
        }
        let mut changed = holding.remove_departed(&self.reports, fleet, patience_ms, &mut self.out);
        if holding.primary().is_none() {
            changed |= self.settle_heir(shard, fleet);
        }
        if self.progress.is_over() {
            return changed;
        }
        let holding = self.holders.of_mut(shard);
        if holding.primary().is_none() {
            changed |= holding.go_on(fleet, &mut self.out) || self.choose(shard, fleet);
        }
        changed
    }

    /// Makes the heir the primary, if it has acknowledged that it is to be. Whether anything has changed.
    fn settle_heir(&mut self, shard: ShardId, fleet: &Fleet) -> bool {
        let faults = &self.identity.spec.faults;
        let (patience_ms, replication) = (faults.patience_ms, faults.replication);
        let holding = self.holders.of_mut(shard);
        let Some(ready) = holding.heir_that_follows(&self.reports, fleet, patience_ms) else {
            return false;
        };
        let heir = ready.heir;
        let restores = holding.restore().is_some();
        if restores {
            let Some(report) = holding.restored().cloned() else {
                return false;
            };
            self.take_restored(shard, heir, &report);
            if self.progress.is_over() {
                return false;
            }
        } else if self.progress.is_trained() && !ready.complete {
            holding.heir_has_lost(heir.server, &mut self.out);
            return true;
        }
        let holding = self.holders.of_mut(shard);
        holding.promote(heir, replication, fleet, &self.out);
        if !restores {
            let text = format!("server {} answers for shard {shard}", heir.server);
            let event = Event::new(EventKind::Promoted, text);
            self.out.tell(event.server(heir.server).shard(shard));
        }
        true
    }

    /// A shard has its values from a snapshot, and lacks what was told after that.
    fn take_restored(&mut self, shard: ShardId, heir: Primary, report: &ShardReport) {
        let holding = self.holders.of_mut(shard);
        holding.tell_damaged(heir.server, &report.damaged, &mut self.out);
        let lost = self.losses.uncounted(shard, report.lost);
        let number = report.restored.unwrap_or_default();
        if self.ends_over(lost) {
            return self.stop(format!(
                "shard {shard} could be restored from snapshot {number} only without {lost} that were acknowledged"
            ));
        }
        self.holders.of_mut(shard).begin_lineage(heir.since);
        let what = match lost.is_none() {
            true => "nothing that was acknowledged is missing".to_owned(),
            false => format!("without {lost}"),
        };
        let text = format!(
            "server {} has restored shard {shard} from snapshot {number}: {what}",
            heir.server
        );
        let event = Event::new(EventKind::Restored, text).lineage(heir.since);
        self.out.tell(event.server(heir.server).shard(shard));
        let out = &mut self.out;
        self.losses.add(shard, heir.since, report.lost, out);
        self.prune_snapshots();
    }

    /// Chooses who is to answer for a shard. Whether somebody is chosen.
    fn choose(&mut self, shard: ShardId, fleet: &Fleet) -> bool {
        let trained = self.progress.is_trained();
        let patience_ms = self.identity.spec.faults.patience_ms;
        let holding = self.holders.of_mut(shard);
        match holding.choose(trained, fleet, patience_ms, &mut self.out) {
            Choice::None => false,
            Choice::Heir => {
                self.reports.forget_shard(shard);
                true
            }
            Choice::StartAnew => {
                let free = self.holders.least_loaded(fleet);
                free.is_some_and(|server| self.start_anew(shard, server))
            }
        }
    }

    /// The values of a shard are gone: a server restores them, or they are created again where no
    /// training has happened.
    fn start_anew(&mut self, shard: ShardId, server: ServerId) -> bool {
        let newest = self.snapshots.newest();
        let holding = self.holders.of_mut(shard);
        if !self.progress.is_trained() {
            holding.appoint_empty(server, &self.out);
            self.reports.forget_shard(shard);
            self.create_again();
            return true;
        }
        let restore = holding.restore().or_else(|| {
            newest.map(|newest| Restore {
                shard,
                newest,
                only: false,
            })
        });
        let Some(restore) = restore else {
            self.fail(format!(
                "shard {shard} is lost: every server that had its values is gone, and there is no snapshot"
            ));
            return false;
        };
        holding.appoint_to_restore(server, restore, &self.out);
        self.reports.forget_shard(shard);
        true
    }

    /// What has been created is gone in part. The creator joins anew, so that what it said of the
    /// first time is not taken for the second.
    fn create_again(&mut self) {
        self.snapshots.disturb(&mut self.out);
        if let Some(creator) = self.progress.creator() {
            let group = creator.group;
            let text = format!("group {group} forms again: what it created is lost with a server");
            let event = Event::new(EventKind::GroupReforms, text);
            self.out.tell(event.group(group));
            self.gather(group);
        }
    }
}
