//! What follows when something has happened to a run: groups form, values are created, the run is
//! ready, groups are admitted, callers answered. Each step is taken when its conditions are met,
//! whoever met them.

use super::Run;
use super::admission::Conditions;
use super::group::Standing;
use super::phase::Creator;
use crate::event::{Event, EventKind};

impl Run {
    /// Takes every step whose conditions are met.
    pub(super) fn advance(&mut self, now_ms: u64) {
        if self.progress.is_over() {
            return;
        }
        let spec = &self.identity.spec;
        self.membership
            .form(&self.roster, spec, now_ms, &mut self.out);
        self.choose_creator();
        self.advance_snapshots(now_ms);
        self.become_ready(now_ms);
        self.admit(now_ms);
        self.answer();
    }

    fn choose_creator(&mut self) {
        if !self.progress.lacks_creator() {
            return;
        }
        if let Some((group, incarnation)) = self.membership.first_joined() {
            self.progress.let_create(Creator {
                group,
                incarnation,
                since: self.out.change(),
            });
        }
    }

    fn become_ready(&mut self, now_ms: u64) {
        let how = if let Some(creator) = self.progress.creator() {
            let created = self.holders.are_complete(&self.reports);
            if !(created && self.snapshots.first_taken()) {
                return;
            }
            format!("group {} has created its values", creator.group)
        } else if self.progress.is_resuming() && self.holders.are_restored(&self.reports) {
            "it is resumed".to_owned()
        } else {
            return;
        };
        let text = format!("run {} is ready: {how}", self.name());
        self.out.tell(Event::new(EventKind::RunReady, text));
        self.progress.become_ready(self.out.change());
        let interval_ms = self.identity.spec.faults.snapshot_ms;
        self.snapshots.schedule(interval_ms, now_ms);
    }

    /// Groups start one past the highest clock that any shard has seen.
    fn admit(&mut self, now_ms: u64) {
        if !self.progress.is_ready() {
            return;
        }
        let conditions = Conditions {
            followed: self.holders.followed(&self.reports),
            start: self.reports.next_clock(),
            grace_ms: self.identity.spec.start_grace_ms,
            now_ms,
        };
        self.admission.admit(
            &mut self.membership,
            &self.roster,
            conditions,
            &mut self.out,
        );
    }

    fn answer(&mut self) {
        let followed = self.holders.followed(&self.reports);
        let creator = self.progress.creator();
        let creator = creator.filter(|creator| Some(creator.since) <= followed);
        let standing = Standing {
            followed,
            creator: creator.map(|creator| creator.group),
            origin: self.data.origin(),
        };
        self.membership.answer(standing, &mut self.out);
    }
}
