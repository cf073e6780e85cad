//! Blocks → the ranks of a group, so that slices are equal to within one block.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Layout;
use crate::ids::{BlockId, Rank};

impl Layout {
    /// The slice of each rank of a group of `group_size` ranks, at least 1: whole blocks in flat
    /// order, each block in exactly one slice.
    ///
    /// Blocks are dealt in rounds of one a rank, the longest to the rank that has the fewest values so
    /// far; of equal ones the first goes first. So slices never differ by more than the largest block,
    /// and the ranks have equally many blocks, to within one, of any part of the vector that begins with
    /// a round: every link works while backward goes along the vector.
    pub fn slices(&self, group_size: u32) -> Vec<Vec<BlockId>> {
        let size = group_size as usize;
        let mut slices = vec![Vec::new(); size];
        // On top whose turn it is.
        let mut ranks: BinaryHeap<_> = (0..size).map(|rank| Reverse((0, rank))).collect();
        for round in self.blocks.chunks(size) {
            let mut blocks: Vec<_> = round.iter().collect();
            blocks.sort_by_key(|block| Reverse(block.elements.len()));
            let deal = |block: &super::Block| {
                let Reverse((values, rank)) = ranks.pop().expect("a rank for every block");
                slices[rank].push(block.id);
                Reverse((values + block.elements.len(), rank))
            };
            // Who has got a block is out until the next round.
            let dealt: Vec<_> = blocks.into_iter().map(deal).collect();
            ranks.extend(dealt);
        }
        slices
    }

    /// The slice of one rank of a group: of [`slices`](Self::slices) the rank's.
    ///
    /// # Panics
    /// If the group has no such rank.
    pub fn slice(&self, rank: Rank, group_size: u32) -> Vec<BlockId> {
        self.slices(group_size).swap_remove(rank.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{ALIGN_BYTES, Memory, TensorKind, TensorSpec};

    fn specs(tensors: impl IntoIterator<Item = (u64, TensorKind)>) -> Vec<TensorSpec> {
        let tensors = tensors.into_iter().enumerate();
        tensors
            .map(|(index, (elements, kind))| TensorSpec {
                name: index.to_string(),
                shape: vec![elements],
                kind,
            })
            .collect()
    }

    /// Every rank of every version must deal alike: that is the protocol.
    #[test]
    fn dealt_as_the_protocol_says() {
        let check = |lengths: [u64; 2], block_values: usize, want: &[&[u32]]| {
            let kinds = [TensorKind::Parameter, TensorKind::Buffer];
            let tensors = lengths.into_iter().zip(kinds).filter(|(n, _)| *n > 0);
            let layout = Layout::new(&specs(tensors), 4 * block_values).unwrap();
            let slices = layout.slices(want.len() as u32);
            let numbers = |slice: &Vec<BlockId>| slice.iter().map(|id| id.0).collect::<Vec<_>>();
            let numbers: Vec<_> = slices.iter().map(numbers).collect();
            assert_eq!(numbers, want, "{lengths:?}");
        };
        check([8, 0], 1, &[&[0, 1, 2, 3, 4, 5, 6, 7]]);
        check([8, 0], 2, &[&[0, 2], &[1, 3]]);
        // Buffers go on where parameters have ended.
        check([4, 4], 1, &[&[0, 3, 6], &[1, 4, 7], &[2, 5]]);
        check([5, 1], 1, &[&[0, 5], &[1], &[2], &[3], &[4]]);
        check([2, 1], 1, &[&[0], &[1], &[2], &[]]);
        // Blocks of 2, 2, 3, and of 3: the longest of a round first.
        check([7, 3], 3, &[&[2], &[0, 3], &[1]]);
    }

    /// Steele et al. 2014, "Fast Splittable Pseudorandom Number Generators", figure 16.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            (z ^ z >> 31) % bound
        }

        /// Small ones as often as large ones.
        fn up_to(&mut self, bits: u64) -> u64 {
            let bits = self.below(bits + 1);
            1 + self.below(1 << bits)
        }

        fn tensors(&mut self) -> Vec<TensorSpec> {
            let tensors = (0..self.up_to(6)).map(|index| {
                let kind = match index > 0 && self.below(3) == 0 {
                    true => TensorKind::Buffer,
                    false => TensorKind::Parameter,
                };
                (self.up_to(12), kind)
            });
            specs(tensors.collect::<Vec<_>>())
        }
    }

    /// Also where blocks lie in buckets, which are as uneven as tensors are.
    #[test]
    fn slices_are_whole_and_equal_to_within_a_block() {
        for seed in 0..3000 {
            let mut random = Random(seed);
            let (tensors, block_bytes) = (random.tensors(), 4 + random.up_to(10) as usize);
            let layout = match random.below(2) {
                0 => Layout::new(&tensors, block_bytes),
                _ => Layout::within_buckets(&tensors, random.up_to(14) as usize, block_bytes),
            };
            let layout = layout.unwrap();
            let size = random.up_to(9) as u32;
            let slices = layout.slices(size);
            let mut owner = vec![None; layout.blocks.len()];
            for (rank, slice) in slices.iter().enumerate() {
                assert!(slice.is_sorted(), "seed {seed}: rank {rank}");
                for id in slice {
                    let before = owner[id.0 as usize].replace(rank);
                    assert_eq!(before, None, "seed {seed}: {id:?} twice");
                }
            }
            assert!(owner.iter().all(Option::is_some), "seed {seed}: a gap");

            let length = |id: &BlockId| layout.block(*id).unwrap().elements.len();
            let of_slice = |slice: &Vec<BlockId>| slice.iter().map(length).sum::<usize>();
            let lengths: Vec<_> = slices.iter().map(of_slice).collect();
            let largest = layout.blocks.iter().map(|block| block.elements.len());
            let (largest, longest) = (largest.max().unwrap(), *lengths.iter().max().unwrap());
            assert!(
                longest * size as usize <= layout.elements() + largest * size as usize,
                "seed {seed}: more than a block over the mean"
            );
            assert!(
                longest - lengths.iter().min().unwrap() <= largest,
                "seed {seed}: more than a block apart"
            );
            // Whatever backward has come to, all links have had as much to do, to within a block.
            let mut counts = vec![0; size as usize];
            for rank in owner {
                counts[rank.unwrap()] += 1;
                let (most, least) = (counts.iter().max(), counts.iter().min());
                assert!(most.unwrap() - least.unwrap() <= 1, "seed {seed}");
            }

            let rank = random.below(u64::from(size)) as u32;
            assert_eq!(layout.slice(Rank(rank), size), slices[rank as usize]);
        }
    }

    /// No rank of however large a group has more than a twentieth over the mean, or a block: so a gather that is
    /// padded to the longest slice moves no more than a block a rank too much.
    #[test]
    fn slices_of_large_groups_are_as_long_as_the_mean_or_a_block_more() {
        for seed in 0..60 {
            let mut random = Random(seed);
            let tensors = (0..1 + random.below(40)).map(|_| random.up_to(15));
            let tensors: Vec<_> = tensors.map(|n| (n, TensorKind::Parameter)).collect();
            let block_bytes = 4 * random.up_to(9) as usize;
            let layout = Layout::new(&specs(tensors), block_bytes).unwrap();
            let size = 1 + random.below(10_000) as usize;
            let length = |id: &BlockId| layout.block(*id).unwrap().elements.len();
            let slices = layout.slices(size as u32);
            let lengths = slices
                .iter()
                .map(|slice| slice.iter().map(length).sum::<usize>());
            let longest = lengths.max().unwrap();
            let block = layout.blocks.iter().map(|block| block.elements.len()).max();
            let all = layout.elements();
            let near = 100 * longest * size <= 105 * all;
            let block_more = (longest - block.unwrap()) * size <= all;
            assert!(
                near || block_more,
                "seed {seed}: {longest} of {all} among {size}"
            );
        }
    }

    #[test]
    fn blocks_tile_the_vector_and_tensors_are_aligned() {
        for seed in 0..1000 {
            let mut random = Random(seed);
            let (tensors, block_bytes) = (random.tensors(), 4 + random.up_to(10) as usize);
            let layout = Layout::new(&tensors, block_bytes).unwrap();
            let mut end = 0;
            for (index, block) in layout.blocks.iter().enumerate() {
                assert_eq!((block.id.0 as usize, block.elements.start), (index, end));
                assert!(block.bytes() <= block_bytes && !block.elements.is_empty());
                let of_kind = layout.of_kind(block.kind);
                assert!(of_kind.start <= end && block.elements.end <= of_kind.end);
                end = block.elements.end;
            }
            let counted = tensors.iter().map(TensorSpec::elements).sum::<usize>();
            assert_eq!((end, layout.elements()), (counted, counted), "seed {seed}");

            let (memory, mut end) = (Memory::of(&layout), 0);
            for tensor in &layout.tensors {
                let whole: Vec<_> = memory.stretches(&tensor.elements).collect();
                assert_eq!(whole.len(), 1, "seed {seed}: a tensor in pieces");
                let own = whole[0].memory.clone();
                assert_eq!(
                    (own.start * 4 % ALIGN_BYTES, own.len()),
                    (0, tensor.spec.elements())
                );
                assert!(own.start - end < ALIGN_BYTES / 4, "seed {seed}");
                end = own.end;
            }
            assert_eq!(memory.len(), end);

            let (mut found, mut end) = (0, 0);
            for block in &layout.blocks {
                for stretch in memory.stretches(&block.elements) {
                    assert_eq!(stretch.elements.start, found, "seed {seed}");
                    assert_eq!(stretch.memory.len(), stretch.elements.len());
                    assert!(stretch.memory.start >= end);
                    (found, end) = (stretch.elements.end, stretch.memory.end);
                }
            }
            assert_eq!(found, counted, "seed {seed}");
        }
    }
}
