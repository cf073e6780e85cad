//! Snapshots of a run as a whole: its parts tell when one can be taken, and what its manifest says.

use tradewind_common::{Clock, ServerId, ShardId};

use super::Run;
use super::snapshots::{Part, Situation, Stage};
use crate::ReplyTo;
use crate::order::{NotCaptured, ShardFile};
use crate::saved::ManifestData;

impl Run {
    /// Somebody asks for a snapshot, and is answered when one that begins now or later is whole.
    pub(crate) fn snapshot(&mut self, to: ReplyTo, now_ms: u64) {
        match self.progress.over() {
            Some(over) => self.out.reply(to, Err(over)),
            None => self.snapshots.ask(to, self.stage(), &mut self.out),
        }
        self.advance(now_ms);
    }

    /// A primary has written its part, or could not.
    pub(crate) fn captured(
        &mut self,
        server: ServerId,
        shard: ShardId,
        number: u64,
        result: Result<ShardFile, NotCaptured>,
        now_ms: u64,
    ) {
        let holding = self.holders.get(shard);
        if !holding.is_some_and(|holding| holding.is_primary(server)) {
            return;
        }
        match self.snapshots.part(shard, number, result, &mut self.out) {
            None => return,
            Some(Part::Taken) => {}
            Some(Part::Passed { clock, margin }) => {
                self.reports.see(Some(clock), &mut self.out);
                let (situation, ledger) = (self.situation(now_ms), self.data.ledger());
                self.snapshots
                    .begin(margin, situation, ledger, &mut self.out);
            }
            Some(Part::Failed(why)) => {
                let why = format!("server {server} could not write shard {shard}: {why}");
                let situation = self.situation(now_ms);
                self.snapshots.give_up(why, situation, &mut self.out);
            }
        }
        self.advance(now_ms);
    }

    /// The manifest is on disk, or could not be written.
    pub(crate) fn written(&mut self, number: u64, result: Result<(), String>, now_ms: u64) {
        let situation = self.situation(now_ms);
        let out = &mut self.out;
        if self
            .snapshots
            .manifest_is_written(number, result, situation, out)
        {
            self.prune_snapshots();
            self.advance(now_ms);
        }
    }

    /// Begins a snapshot that is due, or has one whose parts are all there made whole.
    pub(super) fn advance_snapshots(&mut self, now_ms: u64) {
        let (situation, ledger) = (self.situation(now_ms), self.data.ledger());
        if self.snapshots.advance(situation, ledger, &mut self.out) {
            self.write_manifest();
        }
    }

    /// Deletes the oldest snapshots, but none while a shard may be read from it.
    pub(super) fn prune_snapshots(&mut self) {
        if !self.holders.restore_any() {
            let kept = self.identity.spec.faults.snapshots_kept;
            self.snapshots.prune(kept, &mut self.out);
        }
    }

    /// Has the manifest of the snapshot written whose parts are all there: it is whole once this is on
    /// disk.
    pub(super) fn write_manifest(&mut self) {
        if let Some(manifest) = self.manifest() {
            self.out.write_manifest(manifest);
        }
    }

    /// The whole of a run but its values.
    fn manifest(&self) -> Option<ManifestData> {
        let taking = self.snapshots.written_out()?;
        let decided = taking
            .files()
            .filter_map(|file| file.clock_next.0.checked_sub(1));
        let least = taking.files().map(|file| file.samples.0).min();
        let most = taking.files().map(|file| file.samples.1).max();
        let lost = self.lost();
        Some(ManifestData {
            run: self.name().clone(),
            number: taking.number(),
            generation: self.generation(),
            spec: self.spec().as_ref().clone(),
            clock: self.clock_known().max(decided.max().map(Clock)),
            at_clock: taking.at_clock(),
            origin: self.data.origin(),
            groups: self.membership.saved(),
            lives_before: self.membership.lives_before(),
            samples: (least.unwrap_or(0), most.unwrap_or(0)),
            files: taking.files().cloned().collect(),
            shards: self.placement().shards().iter().map(|s| s.0).collect(),
            ledger: taking.ledger().clone(),
            lost: lost.updates,
            lost_samples: lost.samples,
        })
    }

    /// The highest clock that is known of any group, pushed or about to be.
    fn clock_known(&self) -> Option<Clock> {
        self.reports.clock_seen().max(self.membership.clock())
    }

    fn situation(&self, now_ms: u64) -> Situation {
        let spec = &self.identity.spec;
        Situation {
            stage: self.stage(),
            sync: spec.consistency.waits_for_all(),
            interval_ms: spec.faults.snapshot_ms,
            trains: self.membership.trains(),
            answered: self.holders.answer_everywhere() && !self.holders.restore_any(),
            shards: self.holders.len(),
            clock: self.clock_known(),
            now_ms,
        }
    }

    /// How far the run has come, for whether a snapshot of it can begin.
    fn stage(&self) -> Stage {
        if self.progress.is_ready() {
            Stage::Ready
        } else if self.progress.creator().is_some() {
            let complete = self.holders.are_complete(&self.reports);
            Stage::Creating { complete }
        } else {
            Stage::Other
        }
    }
}
