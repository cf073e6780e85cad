//! Which blocks have come to a milestone: a number of applied samples at which the parameters are
//! saved, to be evaluated when the run is over.

use std::collections::BTreeMap;

use tradewind_common::BlockId;
use tradewind_common::milestone::PASSED_MAX;

use super::block::Block;
use super::state::BlockState;

/// Watches the blocks of a shard pass the multiples of a number of samples.
#[derive(Debug, Default)]
pub struct Milestones {
    /// 0 for none.
    every: u64,
    blocks: usize,
    under_way: BTreeMap<u64, BTreeMap<BlockId, BlockState>>,
}

impl Milestones {
    /// Whenever so many more samples are applied, of a shard of so many blocks.
    pub fn new(every: u64, blocks: usize) -> Self {
        Self {
            every,
            blocks,
            under_way: BTreeMap::new(),
        }
    }

    /// Looks at a block after an update, before which it had `before` applied samples. The milestones
    /// that the whole shard has come to with it, each with its blocks in flat order; values are
    /// shared with the block until that changes.
    pub fn look(&mut self, before: u64, block: &Block) -> Vec<(u64, Vec<BlockState>)> {
        if self.every == 0 || before / self.every == block.samples_applied() / self.every {
            return Vec::new();
        }
        let Some(state) = block.state() else {
            return Vec::new();
        };
        let state = BlockState {
            slots: Vec::new(),
            ..state
        };
        let passed = before / self.every + 1..=block.samples_applied() / self.every;
        // Who passes many at once has only the last of them worth a file each.
        let skipped = (passed.end() - passed.start()).saturating_sub(PASSED_MAX - 1);
        let mut complete = Vec::new();
        for multiple in passed.skip(skipped as usize) {
            let samples = multiple * self.every;
            let there = self.under_way.entry(samples).or_default();
            there.entry(state.id).or_insert_with(|| state.clone());
            if there.len() == self.blocks {
                let states = self.under_way.remove(&samples).expect("just seen");
                complete.push((samples, states.into_values().collect()));
            }
        }
        // Beyond so many the oldest is given up.
        while self.under_way.len() as u64 > PASSED_MAX {
            self.under_way.pop_first();
        }
        complete
    }
}
