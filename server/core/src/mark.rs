//! What was told of each block, as its holders record it where it outlives them: from this, and not
//! from what a holder that is left happens to know, follows what a restored shard lacks (rule 11).

use std::collections::BTreeMap;

use tradewind_common::loss::Loss;
use tradewind_common::{BlockId, Generation};

use super::state::BlockState;

/// The furthest values of a block that left a holder in an answer. Those of a later lineage are
/// further than any of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// When they had been restored last; 0 if they were created.
    pub lineage: Generation,
    /// Updates applied.
    pub version: u64,
    /// Samples applied.
    pub samples: u64,
}

/// What restored values lack of what was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// The updates of all blocks, and the most samples of any.
    pub loss: Loss,
    /// The last lineage of which anything was told: what was lost at the beginning of a later one is
    /// in the loss once more.
    pub told_of: Generation,
}

/// Where blocks begin that are restored in a lineage.
pub fn starts(restored: &[BlockState], lineage: Generation) -> BTreeMap<BlockId, Mark> {
    let start = |state: &BlockState| Mark {
        lineage,
        version: state.version,
        samples: state.samples_applied,
    };
    restored
        .iter()
        .map(|state| (state.id, start(state)))
        .collect()
}

/// What blocks that were restored lack of what was told before that: `marks` are of earlier lineages.
pub fn lost(marks: &BTreeMap<BlockId, Mark>, starts: &BTreeMap<BlockId, Mark>) -> Lacking {
    let mut lacking = Lacking::default();
    for (block, start) in starts {
        if let Some(mark) = marks.get(block) {
            let loss = &mut lacking.loss;
            loss.updates += mark.version.saturating_sub(start.version);
            let samples = mark.samples.saturating_sub(start.samples);
            loss.samples = loss.samples.max(samples);
            lacking.told_of = lacking.told_of.max(mark.lineage);
        }
    }
    lacking
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn updates_are_added_and_samples_are_of_the_block_that_lost_most() {
        let state = |id, version, samples_applied| BlockState {
            id: BlockId(id),
            values: Arc::default(),
            slots: Vec::new(),
            version,
            samples_applied,
            decided: BTreeMap::new(),
        };
        let mark = |version, samples| Mark {
            lineage: Generation(3),
            version,
            samples,
        };
        let marks = [(0, mark(10, 100)), (1, mark(12, 120)), (3, mark(9, 90))];
        let marks = marks.map(|(id, mark)| (BlockId(id), mark)).into();
        // Block 1 has more than was told of it, of block 2 nothing was told, block 3 is elsewhere.
        let starts = |states: &[_]| starts(states, Generation(4));
        let restored = starts(&[state(0, 4, 40), state(1, 12, 121), state(2, 5, 50)]);
        let lacking = |updates, samples| Lacking {
            loss: Loss { updates, samples },
            told_of: Generation(3),
        };
        assert_eq!(lost(&marks, &restored), lacking(6, 60));
        let restored = starts(&[state(0, 9, 90), state(1, 7, 70)]);
        assert_eq!(lost(&marks, &restored), lacking(1 + 5, 50));
    }
}
