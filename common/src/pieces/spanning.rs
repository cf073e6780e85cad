//! Tensors that span blocks: their norms are known to whoever has all of the gradient, so they
//! travel with it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Cut, Norms, Source};
use crate::ids::BlockId;
use crate::layout::Layout;

/// The tensors whose norms the pushes of a slice need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanning {
    /// In the flat vector, in its order, in elements.
    tensors: Vec<Range<usize>>,
    /// Which of them each block of the slice has a part of.
    blocks: BTreeMap<BlockId, Range<usize>>,
}

impl Spanning {
    /// Of a slice of `layout`, whose blocks are in flat order.
    pub fn new(cut: Cut, layout: &Layout, slice: &[BlockId]) -> Self {
        let (mut tensors, mut blocks) = (Vec::new(), BTreeMap::new());
        for block in slice.iter().filter_map(|id| layout.block(*id)) {
            let mut parts: Option<Range<usize>> = None;
            for piece in cut.pieces(layout, block) {
                let Source::Push { tensor } = piece.norms else {
                    continue;
                };
                // Other blocks of the slice may have had parts of it before.
                if tensors.last() != Some(&tensor) {
                    tensors.push(tensor);
                }
                // A block has part of the tensors that cross its two ends, which are neighbours
                // here: those between lie in it whole.
                let last = tensors.len();
                parts = Some(parts.map_or(last - 1, |parts| parts.start)..last);
            }
            blocks.extend(parts.map(|parts| (block.id, parts)));
        }
        Self { tensors, blocks }
    }

    /// The tensors, in flat order, in elements of the flat vector.
    pub fn tensors(&self) -> &[Range<usize>] {
        &self.tensors
    }
}

/// The norms that one gradient is pushed with.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    spanning: Arc<Spanning>,
    norms: Vec<Norms>,
}

impl Measured {
    /// `norms` are those of the tensors of `spanning`, in order.
    ///
    /// # Panics
    /// If there are more or fewer.
    pub fn new(spanning: &Arc<Spanning>, norms: Vec<Norms>) -> Self {
        assert_eq!(norms.len(), spanning.tensors.len(), "norms of each tensor");
        Self {
            spanning: spanning.clone(),
            norms,
        }
    }

    /// Those that a block is pushed with, in flat order.
    pub fn of_block(&self, block: BlockId) -> &[Norms] {
        let parts = self.spanning.blocks.get(&block);
        parts.map_or(&[], |parts| &self.norms[parts.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rank;
    use crate::layout::{TensorKind, TensorSpec};
    use crate::spec::DecayExempt;

    /// Matrices of 12, 2, 1 and 9 values in flat order, and statistics of 9, in blocks of 6 values.
    fn layout() -> Layout {
        let tensor = |(name, elements, kind): (&str, u64, TensorKind)| TensorSpec {
            name: name.into(),
            shape: vec![elements, 1],
            kind,
        };
        let tensors = [
            ("mean", 9, TensorKind::Buffer),
            ("d", 9, TensorKind::Parameter),
            ("c", 1, TensorKind::Parameter),
            ("b", 2, TensorKind::Parameter),
            ("a", 12, TensorKind::Parameter),
        ];
        let layout = Layout::new(&tensors.map(tensor), 24).unwrap();
        let ends: Vec<_> = layout.blocks.iter().map(|b| b.elements.end).collect();
        assert_eq!(ends, [6, 12, 18, 24, 28, 33]);
        layout
    }

    const LAYERWISE: Cut = Cut {
        exempt: DecayExempt::None,
        by_part: true,
        layerwise: true,
    };

    #[test]
    fn each_block_is_pushed_with_the_norms_of_what_it_has_parts_of() {
        let layout = layout();
        let check = |(rank, size), tensors: &[(usize, usize)], want: &[(u32, &[f64])]| {
            let slice = layout.slice(Rank(rank), size);
            let spanning = Arc::new(Spanning::new(LAYERWISE, &layout, &slice));
            let found = spanning.tensors().iter().map(|t| (t.start, t.end));
            assert_eq!(found.collect::<Vec<_>>(), tensors, "{rank} of {size}");
            let norms = tensors.iter().map(|(start, _)| Norms {
                values: *start as f64,
                gradient: 1.0,
            });
            let measured = Measured::new(&spanning, norms.collect());
            for (block, want) in want {
                let norms = measured.of_block(BlockId(*block)).iter();
                let got: Vec<_> = norms.map(|norms| norms.values).collect();
                assert_eq!(got, *want, "block {block} of {rank} of {size}");
            }
        };
        // The third block has b and c whole.
        let all: [(u32, &[f64]); 6] = [
            (0, &[0.0]),
            (1, &[0.0]),
            (2, &[15.0]),
            (3, &[15.0]),
            (4, &[]),
            (5, &[]),
        ];
        check((0, 1), &[(0, 12), (15, 24)], &all);
        check((0, 2), &[(0, 12), (15, 24)], &[all[0], all[2], all[5]]);
        check((1, 4), &[(0, 12)], &[all[1]]);
        check((2, 4), &[(15, 24)], &[all[2]]);
    }

    #[test]
    fn a_block_between_two_tensors_has_both() {
        let tensor = |name: &str, elements| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind: TensorKind::Parameter,
        };
        let tensors = [tensor("c", 5), tensor("b", 1), tensor("a", 6)];
        let layout = Layout::new(&tensors, 16).unwrap();
        let slice = layout.slice(Rank(0), 1);
        let spanning = Arc::new(Spanning::new(LAYERWISE, &layout, &slice));
        assert_eq!(spanning.tensors(), [0..6, 7..12]);
        let norms = [1.0, 2.0].map(|gradient| Norms {
            values: 1.0,
            gradient,
        });
        let measured = Measured::new(&spanning, norms.to_vec());
        assert_eq!(measured.of_block(BlockId(0)), &norms[..1]);
        assert_eq!(measured.of_block(BlockId(1)), norms);
        assert_eq!(measured.of_block(BlockId(2)), &norms[1..]);

        let spared = Cut {
            exempt: DecayExempt::Vectors,
            by_part: true,
            layerwise: true,
        };
        assert!(Spanning::new(spared, &layout, &slice).tensors().is_empty());
        let plain = Spanning::new(Cut::default(), &layout, &slice);
        assert!(plain.tensors().is_empty());
    }
}
