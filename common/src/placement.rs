//! Blocks → servers, by bytes, so that shards are equal to within one block.

use crate::ids::{BlockId, ServerId};
use crate::layout::Layout;

/// Which server owns each block; indexed by block number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement(Vec<ServerId>);

impl Placement {
    /// Deals the blocks in flat order, each to the server with the fewest bytes so far; ties go to
    /// the server that comes first in `servers`, which must not be empty.
    pub fn by_bytes(layout: &Layout, servers: &[ServerId]) -> Self {
        let mut bytes = vec![0usize; servers.len()];
        let deal = |block: &crate::layout::Block| {
            let lightest = (0..servers.len())
                .min_by_key(|i| bytes[*i])
                .expect("a server");
            bytes[lightest] += block.bytes();
            servers[lightest]
        };
        Self(layout.blocks.iter().map(deal).collect())
    }

    /// A placement as it came over the wire; entry `i` owns block `i`.
    pub fn from_owners(owners: Vec<ServerId>) -> Self {
        Self(owners)
    }

    /// The owner of each block, in block order.
    pub fn owners(&self) -> &[ServerId] {
        &self.0
    }

    /// The server that owns `block`.
    pub fn owner(&self, block: BlockId) -> Option<ServerId> {
        self.0.get(block.0 as usize).copied()
    }

    /// The shard of `server`: the blocks it owns, in flat order.
    pub fn shard(&self, server: ServerId) -> impl Iterator<Item = BlockId> + '_ {
        let owned = move |(_, owner): &(usize, &ServerId)| **owner == server;
        self.0
            .iter()
            .enumerate()
            .filter(owned)
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
        let layout = Layout::new(&tensors, 16_384, 4096).unwrap();
        for servers in 1..=5u32 {
            let ids: Vec<_> = (0..servers).map(ServerId).collect();
            let placement = Placement::by_bytes(&layout, &ids);
            let bytes = |s| {
                placement
                    .shard(s)
                    .map(|b| layout.block(b).unwrap().bytes())
                    .sum::<usize>()
            };
            let shards: Vec<_> = ids.iter().map(|s| bytes(*s)).collect();
            let spread = shards.iter().max().unwrap() - shards.iter().min().unwrap();
            assert!(spread <= 4096, "{shards:?}");
            assert_eq!(shards.iter().sum::<usize>(), layout.elements() * 4);
        }
    }
}
