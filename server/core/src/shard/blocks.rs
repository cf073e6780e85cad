//! The blocks of a shard, and whether all of them have values.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::pieces::Cut;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Layout, TensorKind};

use crate::askers::Askers;
use crate::block::Block;
use crate::optimizer::Optimizer;
use crate::refusal::Refusal;
use crate::state::BlockState;

/// The blocks of one shard.
#[derive(Debug)]
pub(super) struct ShardBlocks {
    blocks: BTreeMap<BlockId, Block>,
    /// How many of them are of parameters.
    parameters: usize,
    /// How many have no value yet.
    uncreated: usize,
}

impl ShardBlocks {
    /// These blocks of a layout, without values.
    pub(super) fn new(
        spec: &RunSpec,
        layout: &Layout,
        blocks: impl IntoIterator<Item = BlockId>,
    ) -> Self {
        let cut = Cut::of(spec);
        let blocks = blocks.into_iter().filter_map(|id| layout.block(id));
        let blocks: BTreeMap<_, _> = blocks
            .map(|b| (b.id, Block::new(b.id, b.kind, cut.pieces(layout, b))))
            .collect();
        let of_parameters = |block: &&Block| block.kind() == TensorKind::Parameter;
        Self {
            parameters: blocks.values().filter(of_parameters).count(),
            uncreated: blocks.len(),
            blocks,
        }
    }

    /// Each keeps no more than so many vectors of a kind.
    pub(super) fn keep(&mut self, most: usize) {
        self.blocks.values_mut().for_each(|block| block.keep(most));
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// How many of them are of parameters.
    pub(super) fn parameters(&self) -> usize {
        self.parameters
    }

    pub(super) fn has(&self, id: BlockId) -> bool {
        self.blocks.contains_key(&id)
    }

    pub(super) fn ids(&self) -> Vec<BlockId> {
        self.blocks.keys().copied().collect()
    }

    /// The blocks, in flat order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter().map(|(id, block)| (*id, block))
    }

    /// A block that there is.
    pub(super) fn own(&mut self, id: BlockId) -> &mut Block {
        self.blocks.get_mut(&id).expect("own block")
    }

    fn named(&mut self, id: BlockId) -> Result<&mut Block, Refusal> {
        self.blocks.get_mut(&id).ok_or(Refusal::UnknownBlock(id))
    }

    /// Whether every block has a value.
    pub(super) fn are_complete(&self) -> bool {
        self.uncreated == 0
    }

    /// Those that have values.
    pub(super) fn created(&self) -> BTreeSet<BlockId> {
        let created = self.blocks.iter().filter(|(_, block)| block.created());
        created.map(|(id, _)| *id).collect()
    }

    /// The blocks as they are, in flat order.
    pub(super) fn states(&self) -> Vec<BlockState> {
        let blocks = self.blocks.values();
        blocks.filter_map(|block| block.state()).collect()
    }

    /// A block that has values as it is.
    pub(super) fn state(&self, id: BlockId) -> BlockState {
        let state = self.blocks[&id].state();
        state.expect("only blocks with values are sent")
    }

    /// The highest clock that was decided at any block.
    pub(super) fn clock_decided(&self) -> Option<Clock> {
        let decided = self.blocks.values().map(Block::clock_decided);
        decided.max().flatten()
    }

    /// Sets the initial values of a block; whether these are they.
    pub(super) fn create(
        &mut self,
        id: BlockId,
        values: Vec<f32>,
        optimizer: &dyn Optimizer,
    ) -> Result<bool, Refusal> {
        let first = self.named(id)?.create(values, optimizer)?;
        self.uncreated -= usize::from(first);
        Ok(first)
    }

    /// Takes a block over as it was elsewhere; whether it had no values here.
    pub(super) fn put(
        &mut self,
        state: BlockState,
        optimizer: &dyn Optimizer,
    ) -> Result<bool, Refusal> {
        let block = self.named(state.id)?;
        let new = !block.created();
        block.put(state, optimizer)?;
        self.uncreated -= usize::from(new);
        Ok(new)
    }

    /// Takes blocks over from a snapshot, in place of what is here. A block that is not among them, or is
    /// another there, has no value then.
    pub(super) fn restore(&mut self, states: Vec<BlockState>, optimizer: &dyn Optimizer) {
        self.forget();
        for state in states {
            // What does not fit is as if it were not there.
            let _: Result<bool, Refusal> = self.put(state, optimizer);
        }
    }

    /// All are as new.
    pub(super) fn forget(&mut self) {
        self.blocks.values_mut().for_each(Block::forget);
        self.uncreated = self.blocks.len();
    }

    /// Nothing is decided any more; answers who waited in vain.
    pub(super) fn retire(&mut self) -> Vec<Askers> {
        let blocks = self.blocks.values_mut();
        blocks.flat_map(Block::retire).collect()
    }

    /// Applies what the primary of this copy has decided.
    pub(super) fn apply(
        &mut self,
        update: &crate::log::Update,
        optimizer: &dyn Optimizer,
    ) -> Result<(), Refusal> {
        let block = self.named(update.block)?;
        block.check_update(update)?;
        block.apply_update(update, optimizer);
        Ok(())
    }

    /// BLAKE3 over (block, version, values), little-endian, in block order.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (id, block) in &self.blocks {
            hasher.update(&id.0.to_le_bytes());
            hasher.update(&block.version().to_le_bytes());
            hasher.update(bytemuck::cast_slice(block.values().unwrap_or_default()));
        }
        *hasher.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::spec::ConsistencySpec;

    use super::*;
    use crate::optimizer;
    use crate::tests::spec;

    #[test]
    fn are_complete_when_each_was_created_or_taken_over() {
        let spec = spec(&[1], ConsistencySpec::Async);
        let layout = spec.layout().unwrap();
        let sgd = optimizer::from_spec(spec.optimizer);
        let both = [BlockId(0), BlockId(1)];
        let mut blocks = ShardBlocks::new(&spec, &layout, both);
        assert_eq!((blocks.len(), blocks.parameters()), (2, 1));
        assert_eq!(blocks.create(BlockId(0), vec![1.0; 3], &*sgd), Ok(true));
        assert_eq!(blocks.create(BlockId(0), vec![2.0; 3], &*sgd), Ok(false));
        assert!(!blocks.are_complete());
        assert_eq!(blocks.create(BlockId(1), vec![3.0; 2], &*sgd), Ok(true));
        assert!(blocks.are_complete());

        let mut other = ShardBlocks::new(&spec, &layout, both);
        let mut states = blocks.states();
        states[1].values = vec![0.0; 9].into();
        other.restore(states, &*sgd);
        assert_eq!(
            other.created().len(),
            1,
            "a block that does not fit has no value"
        );
        assert_eq!(other.put(blocks.state(BlockId(1)), &*sgd), Ok(true));
        assert!(other.are_complete() && other.digest() == blocks.digest());
        other.forget();
        assert!(!other.are_complete());
    }
}
