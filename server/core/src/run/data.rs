//! The training data of a run: which chunks are out, to whom, and where those of `sync` begin.

use tradewind_common::data::{Chunk, DataPosition, Ledger, LedgerChange};
use tradewind_common::shares::{first_step, sync_position};
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, GroupId, Incarnation};

use super::outbox::Outbox;
use crate::answer::Refused;
use crate::saved::ManifestData;

/// How many leases groups have to say what data a former coordinator has leased to them.
const SETTLE_LEASES: u64 = 4;

/// A life of a group that works on data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker<'a> {
    /// The group and its life.
    pub(super) owner: (GroupId, Incarnation),
    /// Ranks that it has.
    pub(super) ranks: u64,
    /// What the run agrees on: how many samples each of them takes a step, and which sets are whose.
    pub(super) spec: &'a RunSpec,
}

/// The data leases of a run.
#[derive(Clone, Debug)]
pub(super) struct DataLeases {
    ledger: Ledger,
    /// Where the data of `sync` begin: at this clock so many samples had been passed.
    origin: (Clock, u64),
    /// When every group has had its say about data that a former coordinator leased.
    settle_at_ms: Option<u64>,
}

impl DataLeases {
    /// Those of a run that begins.
    pub(super) fn new(spec: &RunSpec) -> Self {
        Self::written(Ledger::new(spec.chunking()), (Clock(0), 0))
    }

    /// Those that were written down.
    pub(super) fn written(ledger: Ledger, origin: (Clock, u64)) -> Self {
        Self {
            ledger,
            origin,
            settle_at_ms: None,
        }
    }

    /// Those of a run that goes on from a snapshot; its first clock is `start`.
    pub(super) fn resumed(manifest: &ManifestData, spec: &RunSpec, start: Clock) -> Self {
        let position = position(manifest);
        let chunking = spec.chunking();
        let leased = !manifest.spec.consistency.waits_for_all();
        let ledger = if leased && manifest.ledger.chunking() == chunking {
            manifest.ledger.clone()
        } else {
            Ledger::from_position(chunking, position)
        };
        Self::written(ledger, (start, position.passed(spec.epoch_samples)))
    }

    /// Goes on for a former coordinator, of which groups say what it has leased to them.
    pub(super) fn take_over(&mut self, now_ms: u64, lease_ms: u64) {
        self.ledger.take_over();
        // Groups ask for data when they step again, which may be after failovers.
        self.settle_at_ms = Some(now_ms.saturating_add(SETTLE_LEASES * lease_ms));
    }

    /// What has changed in its ledger since this was last asked, if anything has.
    pub(super) fn take_change(&mut self) -> Option<LedgerChange> {
        self.ledger.take_change()
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn origin(&self) -> (Clock, u64) {
        self.origin
    }

    /// Leases a chunk to a group that has `finished` some and still `holds` others.
    pub(super) fn lease(
        &mut self,
        worker: Worker<'_>,
        finished: &[u64],
        holds: &[u64],
        out: &mut Outbox,
    ) -> Result<Chunk, Refused> {
        self.ledger.believe(worker.owner, holds);
        self.ledger.check(worker.owner, finished, holds)?;
        self.finish(worker, finished, out);
        let (spec, group) = (worker.spec, worker.owner.0);
        let first = |epoch| {
            let groups = spec.group_sizes.len();
            let mine = spec.sets.of_group(spec.seed, group, epoch, groups);
            mine.collect()
        };
        Ok(self.ledger.lease(worker.owner, holds, first)?)
    }

    /// The samples of these chunks have all been used.
    pub(super) fn finish(&mut self, worker: Worker<'_>, finished: &[u64], out: &mut Outbox) {
        let batch = |begins| u64::from(worker.spec.batches().at(begins)) * worker.ranks;
        self.ledger.finish(worker.owner, finished, batch);
        out.lease();
    }

    /// A group is out of the view: others may lease what it held.
    pub(super) fn give_back(&mut self, group: GroupId) {
        self.ledger.give_back(group);
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now_ms: u64, out: &mut Outbox) {
        if self.settle_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.settle(out);
        }
    }

    /// Every group has had its say about the data that a former coordinator leased.
    pub(super) fn settle(&mut self, out: &mut Outbox) {
        self.settle_at_ms = None;
        self.ledger.settle();
        out.lease();
    }
}

/// How far the values of a snapshot have come through the data.
fn position(manifest: &ManifestData) -> DataPosition {
    let spec = &manifest.spec;
    if !spec.consistency.waits_for_all() {
        return manifest.ledger.position();
    }
    let decided = manifest.files.iter().map(|file| file.clock_next).max();
    let next = manifest.at_clock.or(decided).unwrap_or_default();
    let (origin, passed) = manifest.origin;
    let passed = sync_position(
        &spec.group_sizes,
        spec.batches(),
        spec.epoch_samples,
        (first_step(origin, spec.local_steps), passed),
        first_step(next, spec.local_steps),
    );
    DataPosition::after(passed.unwrap_or_default(), spec.epoch_samples)
}

#[cfg(test)]
mod tests {
    use tradewind_common::spec::ConsistencySpec;
    use tradewind_common::{Generation, RunId};

    use super::*;
    use crate::tests::spec;

    #[test]
    fn what_may_have_been_forgotten_is_leased_to_nobody_until_groups_had_their_say() {
        let spec = spec(&[1, 1], ConsistencySpec::Async);
        let mut out = Outbox::new(RunId::new("r").unwrap(), Generation(1));
        let mut data = DataLeases::new(&spec);
        let worker = |group| Worker {
            owner: (GroupId(group), Incarnation(1)),
            ranks: 1,
            spec: &spec,
        };
        let mut number = |data: &mut DataLeases, group, holds: &[u64]| {
            let leased = data.lease(worker(group), &[], holds, &mut out);
            leased.map(|chunk| chunk.number)
        };
        assert_eq!(number(&mut data, 0, &[]), Ok(0));
        assert_eq!(number(&mut data, 1, &[]), Ok(1));
        data.give_back(GroupId(0));
        assert_eq!(number(&mut data, 1, &[1]), Ok(0), "it was given back");
        data.take_over(1_000, 100);
        assert!(number(&mut data, 0, &[]).unwrap() > 2);
        let mut out = Outbox::new(RunId::new("r").unwrap(), Generation(1));
        data.tick(1_000 + 100 * SETTLE_LEASES - 1, &mut out);
        assert!(!out.take_changes().leased);
        data.tick(1_000 + 100 * SETTLE_LEASES, &mut out);
        assert!(out.take_changes().leased);
        let leased = data.lease(worker(1), &[], &[0, 1], &mut out);
        assert_eq!(leased.map(|chunk| chunk.number), Ok(2));
    }
}
