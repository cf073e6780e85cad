//! Which values of a block an update treats alike.

use std::ops::Range;

use crate::layout::{Block, Layout, TensorKind};
use crate::spec::DecayExempt;

/// A contiguous part of a block that one tensor, or several that are treated alike, fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it stands in the block, in elements.
    pub elements: Range<usize>,
    /// Whether weight decay applies to it.
    pub decays: bool,
}

/// What tells the pieces of a run's blocks apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Which tensors weight decay spares.
    pub exempt: DecayExempt,
}

impl Cut {
    /// The pieces of a block of `layout`, which tile it in flat order. A block of buffers, which no
    /// optimizer sees, is one piece.
    pub fn pieces(self, layout: &Layout, block: &Block) -> Vec<Piece> {
        let (start, end) = (block.elements.start, block.elements.end);
        if block.kind == TensorKind::Buffer {
            return vec![Piece {
                elements: 0..end - start,
                decays: false,
            }];
        }
        let first = layout.tensors.partition_point(|t| t.elements.end <= start);
        let tensors = layout.tensors[first..].iter();
        let mut pieces: Vec<Piece> = Vec::new();
        for tensor in tensors.take_while(|t| t.elements.start < end) {
            let decays = self.exempt.decays(&tensor.spec);
            let elements =
                tensor.elements.start.max(start) - start..tensor.elements.end.min(end) - start;
            match pieces.last_mut() {
                Some(last) if last.decays == decays => last.elements.end = elements.end,
                _ => pieces.push(Piece { elements, decays }),
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::TensorSpec;

    /// In the order of creation; `(extents, kind)`.
    fn layout(tensors: &[(&[u64], TensorKind)], block_bytes: usize) -> Layout {
        let spec = |(index, (shape, kind)): (usize, &(&[u64], TensorKind))| TensorSpec {
            name: index.to_string(),
            shape: shape.to_vec(),
            kind: *kind,
        };
        let tensors: Vec<_> = tensors.iter().enumerate().map(spec).collect();
        Layout::new(&tensors, 1 << 20, block_bytes).unwrap()
    }

    fn pieces(cut: Cut, layout: &Layout) -> Vec<Vec<(Range<usize>, bool)>> {
        let of = |block| cut.pieces(layout, block);
        let pair = |piece: Piece| (piece.elements, piece.decays);
        let blocks = layout.blocks.iter();
        blocks
            .map(|block| of(block).into_iter().map(pair).collect())
            .collect()
    }

    #[test]
    fn vectors_are_spared_where_that_is_asked_for() {
        use TensorKind::{Buffer, Parameter};
        // Flat: a scalar, a bias of 3, a matrix of 8, a bias of 4; then a buffer of 2.
        let layout = layout(
            &[
                (&[4], Parameter),
                (&[2, 4], Parameter),
                (&[3], Parameter),
                (&[], Parameter),
                (&[2], Buffer),
            ],
            32,
        );
        let none = Cut::default();
        assert_eq!(
            pieces(none, &layout),
            [vec![(0..8, true)], vec![(0..8, true)], vec![(0..2, false)]]
        );
        let vectors = Cut {
            exempt: DecayExempt::Vectors,
        };
        // The scalar and the bias beside it are one piece; the matrix lies in two blocks.
        assert_eq!(
            pieces(vectors, &layout),
            [
                vec![(0..4, false), (4..8, true)],
                vec![(0..4, true), (4..8, false)],
                vec![(0..2, false)],
            ]
        );
    }
}
