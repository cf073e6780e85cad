//! Blocks → shards, by bytes, so that shards are equal to within one block.

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, ShardId};
use crate::layout::Layout;

/// Which shard each block belongs to, for the whole life of a run; indexed by block number. Who
/// holds a shard may change: [`Holders`](crate::holders::Holders).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement(Vec<ShardId>);

impl Placement {
    /// Deals the blocks in flat order, each to the shard with the fewest bytes so far; ties go to
    /// the first. `shards` is at least 1.
    pub fn by_bytes(layout: &Layout, shards: u32) -> Self {
        let mut bytes = vec![0usize; shards as usize];
        let deal = |block: &crate::layout::Block| {
            let lightest = (0..bytes.len())
                .min_by_key(|i| bytes[*i])
                .expect("at least one shard");
            bytes[lightest] += block.bytes();
            ShardId(lightest as u32)
        };
        Self(layout.blocks.iter().map(deal).collect())
    }

    /// A placement as it came over the wire; entry `i` is the shard of block `i`.
    pub fn from_shards(shards: Vec<ShardId>) -> Self {
        Self(shards)
    }

    /// The shard of each block, in block order.
    pub fn shards(&self) -> &[ShardId] {
        &self.0
    }

    /// The shard that `block` belongs to.
    pub fn shard(&self, block: BlockId) -> Option<ShardId> {
        self.0.get(block.0 as usize).copied()
    }

    /// The blocks of `shard`, in flat order.
    pub fn blocks(&self, shard: ShardId) -> impl Iterator<Item = BlockId> + '_ {
        let own = move |(_, of): &(usize, &ShardId)| **of == shard;
        self.0
            .iter()
            .enumerate()
            .filter(own)
            .map(|(index, _)| BlockId(index as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{TensorKind, TensorSpec};

    #[test]
    fn shards_are_equal_to_within_one_block() {
        let sizes = [3u64, 100_000, 17, 4096, 250, 31_000, 5];
        let tensors: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(i, n)| TensorSpec {
                name: format!("t{i}"),
                shape: vec![*n],
                kind: TensorKind::Parameter,
            })
            .collect();
        let layout = Layout::new(&tensors, 4096).unwrap();
        for count in 1..=5u32 {
            let placement = Placement::by_bytes(&layout, count);
            let bytes = |s| {
                placement
                    .blocks(ShardId(s))
                    .map(|b| layout.block(b).unwrap().bytes())
                    .sum::<usize>()
            };
            let shards: Vec<_> = (0..count).map(bytes).collect();
            let spread = shards.iter().max().unwrap() - shards.iter().min().unwrap();
            assert!(spread <= 4096, "{shards:?}");
            assert_eq!(shards.iter().sum::<usize>(), layout.elements() * 4);
        }
    }
}
