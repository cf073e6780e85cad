//! Where the values of a shard on a server came from, if they were restored.

use tradewind_common::Generation;
use tradewind_core::mark::Shortfall;
use tradewind_core::order::ShardReport;

use super::marks::Marks;

/// The snapshot that a shard was restored from, and what is missing since.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    snapshot: Option<u64>,
    /// Newer ones that could not be used.
    damaged: Vec<String>,
    /// What that lacks, and the lineage that began with it.
    shortfall: Shortfall,
    /// It is not primary's yet.
    unmarked: bool,
}

impl Beginning {
    /// A shard is restored, with blocks that begin there in a lineage.
    pub(super) fn restored(
        (snapshot, damaged): (u64, Vec<String>),
        mut shortfall: Shortfall,
        marks: &Marks,
    ) -> Self {
        shortfall.read(marks.before(shortfall.lineage()));
        Self {
            snapshot: Some(snapshot),
            damaged,
            shortfall,
            unmarked: true,
        }
    }

    pub(super) fn lineage(&self) -> Generation {
        self.shortfall.lineage()
    }

    /// Whether values were restored in this lineage.
    pub(super) fn is_of(&self, lineage: Generation) -> bool {
        self.lineage() == lineage && self.shortfall.is_restored()
    }

    /// Whoever was cut off when it was restored may have answered more meanwhile.
    pub(super) fn recount(&mut self, marks: &Marks) {
        self.shortfall.read(marks.before(self.lineage()));
    }

    /// Adds what is told of it.
    pub(super) fn tell(&self, report: &mut ShardReport) {
        (report.restored, report.lost) = (self.snapshot, self.shortfall.lacking());
        report.damaged = self.damaged.clone();
    }

    /// Whether its blocks have to be marked as they began: once, when they are a primary's.
    pub(super) fn take_unmarked(&mut self) -> bool {
        std::mem::take(&mut self.unmarked)
    }
}
