//! Blocks of a shard that are kept as they are at some point: for snapshots, and for milestones.

use tradewind_common::Clock;

use super::blocks::ShardBlocks;
use crate::block::Block;
use crate::capture::Capture;
use crate::milestones::Milestones;
use crate::order::NotCaptured;
use crate::state::BlockState;

/// A part of a snapshot that is done, or cannot be.
#[derive(Debug, PartialEq)]
pub(super) struct Captured {
    /// Of which snapshot.
    pub(super) number: u64,
    /// The blocks, in flat order.
    pub(super) result: Result<Vec<BlockState>, NotCaptured>,
}

/// What is under way to be saved of one shard.
#[derive(Debug, Default)]
pub(super) struct Saves {
    capture: Option<Capture>,
    milestones: Milestones,
}

impl Saves {
    /// Blocks are saved whenever so many more samples are applied; 0 for never.
    pub(super) fn set_milestones(&mut self, every_samples: u64, blocks: usize) {
        self.milestones = Milestones::new(every_samples, blocks);
    }

    /// Whether this snapshot, or a newer one, is under way.
    pub(super) fn is_under_way(&self, number: u64) -> bool {
        let capture = self.capture.as_ref();
        capture.is_some_and(|capture| number <= capture.number)
    }

    /// Captures blocks as they are before clock `at`, in place of what is under way.
    pub(super) fn begin(
        &mut self,
        number: u64,
        at: Clock,
        blocks: &ShardBlocks,
        leaves_behind: bool,
    ) {
        let mut capture = Capture::new(number, at);
        for (_, block) in blocks.iter() {
            capture.look(block, leaves_behind);
        }
        self.capture = Some(capture);
    }

    /// Gives up what is under way; the number of its snapshot.
    pub(super) fn give_up(&mut self) -> Option<u64> {
        self.capture.take().map(|capture| capture.number)
    }

    /// Looks at a block before each of its updates.
    pub(super) fn before_update(&mut self, block: &Block, leaves_behind: bool) {
        if let Some(capture) = &mut self.capture {
            capture.look(block, leaves_behind);
        }
    }

    /// Looks at a block after an update, before which it had `before` applied samples: the milestones
    /// that the whole shard has come to with it.
    pub(super) fn after_update(
        &mut self,
        before: u64,
        block: &Block,
    ) -> Vec<(u64, Vec<BlockState>)> {
        self.milestones.look(before, block)
    }

    /// A snapshot's part that holds every block, or cannot any more.
    pub(super) fn finish(&mut self, blocks: &ShardBlocks) -> Option<Captured> {
        let all = blocks.len();
        let done = |capture: &mut Capture| capture.passed() || capture.captured() == all;
        let capture = self.capture.take_if(done)?;
        let number = capture.number;
        let result = if capture.passed() {
            let highest = blocks.clock_decided().unwrap_or_default();
            Err(NotCaptured::Passed(highest))
        } else {
            Ok(capture.states())
        };
        Some(Captured { number, result })
    }
}
