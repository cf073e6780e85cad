//! What left of each block, as it is recorded where it survives processes.

use std::collections::BTreeMap;

use tradewind_common::{BlockId, Generation, ServerId};
use tradewind_core::mark::Mark;

/// By server and block: the furthest that left.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: BTreeMap<(ServerId, BlockId), Mark>,
}

impl Marks {
    /// Something leaves, or is restored.
    pub(super) fn record(&mut self, of: (ServerId, BlockId), mark: Mark) {
        let known = self.marks.entry(of).or_default();
        *known = mark.max(*known);
    }

    /// What is recorded of blocks before a lineage.
    pub(super) fn before(&self, lineage: Generation) -> BTreeMap<BlockId, Mark> {
        let mut highest = BTreeMap::<BlockId, Mark>::new();
        let before = self.marks.iter().filter(|(_, mark)| mark.lineage < lineage);
        for ((_, block), mark) in before {
            let known = highest.entry(*block).or_default();
            *known = (*mark).max(*known);
        }
        highest
    }

    /// The last lineage of which anything is recorded.
    pub(super) fn last_lineage(&self) -> Generation {
        let lineages = self.marks.values().map(|mark| mark.lineage);
        lineages.max().unwrap_or_default()
    }

    /// Nothing is recorded any more.
    pub(super) fn clear(&mut self) {
        self.marks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_of_any_server_counts() {
        let mark = |lineage, version| Mark {
            lineage: Generation(lineage),
            version,
            samples: version,
        };
        let mut marks = Marks::default();
        marks.record((ServerId(0), BlockId(0)), mark(1, 7));
        marks.record((ServerId(0), BlockId(0)), mark(1, 5));
        marks.record((ServerId(1), BlockId(0)), mark(1, 9));
        marks.record((ServerId(2), BlockId(0)), mark(4, 2));
        assert_eq!(marks.before(Generation(4))[&BlockId(0)], mark(1, 9));
        assert_eq!(marks.last_lineage(), Generation(4));
    }
}
