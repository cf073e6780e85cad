//! A snapshot of a shard under way: each block as it is at one point, sharing its memory until it
//! changes, so that nothing stops for it (rule 10).

use std::collections::BTreeMap;

use tradewind_common::{BlockId, Clock};

use super::block::Block;
use super::state::BlockState;

/// Blocks that are captured when exactly the clocks before one are decided.
#[derive(Debug)]
pub struct Capture {
    /// Of which snapshot.
    pub number: u64,
    at: Clock,
    captured: BTreeMap<BlockId, BlockState>,
    passed: bool,
}

impl Capture {
    /// One that is to hold blocks as before clock `at`.
    pub fn new(number: u64, at: Clock) -> Self {
        Self {
            number,
            at,
            captured: BTreeMap::new(),
            passed: false,
        }
    }

    /// Looks at a block before each of its updates, and captures it if it stands at the clock: no
    /// group can contribute to an earlier one any more. While nobody is live that is not known: who
    /// comes next may begin before it. Where groups may be left behind, what they contribute to
    /// earlier clocks is left out.
    pub fn look(&mut self, block: &Block, leaves_behind: bool) {
        if self.passed || self.captured.contains_key(&block.id()) {
            return;
        }
        if block.clock_decided().is_some_and(|clock| clock >= self.at) {
            self.passed = true;
            return;
        }
        let scene = block.scene(true, 0);
        let next = match leaves_behind {
            true => scene.present(),
            false => scene.slowest(),
        };
        // What is gathered is not decided yet, though its groups may be gone.
        let gathered = scene.gathered.map(|gathered| gathered.clock);
        let next = next.map(|next| gathered.map_or(next, |clock| clock.min(next)));
        if next.is_some_and(|next| next >= self.at)
            && let Some(state) = block.state()
        {
            self.captured.insert(block.id(), state);
        }
    }

    /// Whether a block had been decided too far before it was captured.
    pub fn passed(&self) -> bool {
        self.passed
    }

    /// How many blocks are captured.
    pub fn captured(&self) -> usize {
        self.captured.len()
    }

    /// The blocks, in flat order.
    pub fn states(self) -> Vec<BlockState> {
        self.captured.into_values().collect()
    }
}
