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

/// How far restored blocks are short of what was told before that, by all marks that were read.
///
/// A mark is remembered when it is gone: a holder that becomes primary writes over its own mark of the
/// lineage before. What is left of a lineage before that, whose loss was told long ago, must not pass for
/// the last that was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// The lineage that begins with the blocks; 0 if nothing was restored.
    lineage: Generation,
    /// Where they begin.
    starts: BTreeMap<BlockId, Mark>,
    /// The furthest that was told of each before.
    told: BTreeMap<BlockId, Mark>,
    lacking: Lacking,
}

impl Shortfall {
    /// That of blocks that are restored in a lineage, before any mark is read.
    pub fn of(restored: &[BlockState], lineage: Generation) -> Self {
        let start = |state: &BlockState| Mark {
            lineage,
            version: state.version,
            samples: state.samples_applied,
        };
        let starts = restored.iter().map(|state| (state.id, start(state)));
        Self {
            lineage,
            starts: starts.collect(),
            told: BTreeMap::new(),
            lacking: Lacking::default(),
        }
    }

    /// The lineage that begins with the blocks; 0 if nothing was restored.
    pub fn lineage(&self) -> Generation {
        self.lineage
    }

    /// Whether blocks were restored.
    pub fn is_restored(&self) -> bool {
        !self.starts.is_empty()
    }

    /// What the blocks lack, by what was read so far.
    pub fn lacking(&self) -> Lacking {
        self.lacking
    }

    /// Takes in marks that were read; those of the lineage itself, and of later ones, say nothing. Whether
    /// more is lacking than was known.
    pub fn read(&mut self, marks: impl IntoIterator<Item = (BlockId, Mark)>) -> bool {
        let before = marks
            .into_iter()
            .filter(|(_, mark)| mark.lineage < self.lineage);
        for (block, mark) in before {
            let most = self.told.entry(block).or_default();
            *most = mark.max(*most);
        }
        let lacking = self.lost();
        let more = lacking.loss.updates > self.lacking.loss.updates;
        if more {
            self.lacking = lacking;
        }
        more
    }

    fn lost(&self) -> Lacking {
        let mut lacking = Lacking::default();
        for (block, start) in &self.starts {
            if let Some(mark) = self.told.get(block) {
                let loss = &mut lacking.loss;
                loss.updates += mark.version.saturating_sub(start.version);
                let samples = mark.samples.saturating_sub(start.samples);
                loss.samples = loss.samples.max(samples);
                lacking.told_of = lacking.told_of.max(mark.lineage);
            }
        }
        lacking
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn state(id: u32, version: u64, samples_applied: u64) -> BlockState {
        BlockState {
            id: BlockId(id),
            values: Arc::default(),
            slots: Vec::new(),
            version,
            samples_applied,
            decided: BTreeMap::new(),
        }
    }

    fn mark(id: u32, lineage: u64, version: u64, samples: u64) -> (BlockId, Mark) {
        let lineage = Generation(lineage);
        let mark = Mark {
            lineage,
            version,
            samples,
        };
        (BlockId(id), mark)
    }

    fn lacking(updates: u64, samples: u64, told_of: u64) -> Lacking {
        Lacking {
            loss: Loss { updates, samples },
            told_of: Generation(told_of),
        }
    }

    #[test]
    fn updates_are_added_and_samples_are_of_the_block_that_lost_most() {
        let marks = [
            mark(0, 3, 10, 100),
            mark(1, 3, 12, 120),
            mark(3, 3, 9, 90),
            // Of the lineage that begins, and of a later one.
            mark(0, 4, 99, 990),
            mark(1, 5, 99, 990),
        ];
        // Block 1 has more than was told of it, of block 2 nothing was told, block 3 is elsewhere.
        let restored = [state(0, 4, 40), state(1, 12, 121), state(2, 5, 50)];
        let mut short = Shortfall::of(&restored, Generation(4));
        assert!(short.is_restored() && short.read(marks));
        assert_eq!(short.lacking(), lacking(6, 60, 3));
        let restored = [state(0, 9, 90), state(1, 7, 70)];
        let mut short = Shortfall::of(&restored, Generation(4));
        assert!(short.read(marks) && !short.read(marks));
        assert_eq!(short.lacking(), lacking(1 + 5, 50, 3));
    }

    #[test]
    fn a_mark_that_was_written_over_still_counts() {
        let restored = [state(0, 2, 20), state(1, 2, 20)];
        let mut short = Shortfall::of(&restored, Generation(7));
        // Of block 0 another server was the last to answer, of block 1 this one.
        short.read([mark(0, 5, 4, 40), mark(1, 5, 4, 40)]);
        assert_eq!(short.lacking(), lacking(4, 40 - 20, 5));
        // Its own mark is of the new lineage now. What is left of block 1 is of lineage 3, further than
        // where lineage 5 ended, and was told as lost when that began.
        assert!(!short.read([mark(0, 5, 4, 40), mark(1, 3, 9, 90), mark(1, 7, 2, 20)]));
        assert_eq!(short.lacking(), lacking(4, 40 - 20, 5));
        // The other one was only cut off, and has answered once more.
        assert!(short.read([mark(0, 5, 5, 50), mark(1, 3, 9, 90)]));
        assert_eq!(short.lacking(), lacking(5, 50 - 20, 5));
    }
}
