//! Where the values of a shard on a server came from, if they were restored.

use std::collections::BTreeMap;

use tradewind_common::{BlockId, Generation};
use tradewind_core::mark::{self, Lacking, Mark};
use tradewind_core::order::ShardReport;

use super::marks::Marks;

/// The snapshot that a shard was restored from, and what is missing since.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// That began with it.
    lineage: Generation,
    snapshot: Option<u64>,
    /// Newer ones that could not be used.
    damaged: Vec<String>,
    lost: Lacking,
    /// Where its blocks began in that lineage.
    starts: BTreeMap<BlockId, Mark>,
    /// It is not primary's yet.
    unmarked: bool,
}

impl Beginning {
    /// A shard is restored, with blocks that begin there in a lineage.
    pub(super) fn restored(
        lineage: Generation,
        (snapshot, damaged): (u64, Vec<String>),
        starts: BTreeMap<BlockId, Mark>,
        marks: &Marks,
    ) -> Self {
        Self {
            lineage,
            snapshot: Some(snapshot),
            damaged,
            lost: mark::lost(&marks.before(lineage), &starts),
            starts,
            unmarked: true,
        }
    }

    pub(super) fn lineage(&self) -> Generation {
        self.lineage
    }

    /// Whether values were restored in this lineage.
    pub(super) fn is_of(&self, lineage: Generation) -> bool {
        self.lineage == lineage && !self.starts.is_empty()
    }

    /// Whoever was cut off when it was restored may have answered more meanwhile.
    pub(super) fn recount(&mut self, marks: &Marks) {
        let lost = mark::lost(&marks.before(self.lineage), &self.starts);
        if lost.loss.updates > self.lost.loss.updates {
            self.lost = lost;
        }
    }

    /// Adds what is told of it.
    pub(super) fn tell(&self, report: &mut ShardReport) {
        (report.restored, report.lost) = (self.snapshot, self.lost);
        report.damaged = self.damaged.clone();
    }

    /// Whether its blocks have to be marked as they began: once, when they are a primary's.
    pub(super) fn take_unmarked(&mut self) -> bool {
        std::mem::take(&mut self.unmarked)
    }
}
