//! Which values of a block an update treats alike.

mod spanning;

use std::ops::Range;

pub use spanning::{Measured, Spanning};

use crate::layout::{Block, Layout, TensorKind};
use crate::spec::{DecayExempt, RunSpec};

/// A contiguous part of a block that one tensor, or several that are treated alike, fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it stands in the block, in elements.
    pub elements: Range<usize>,
    /// Whether weight decay applies to it.
    pub decays: bool,
    /// Whether its step follows from norms, and where these are known.
    pub norms: Source,
}

/// Where the norms that a piece's step follows from are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It follows from none.
    Nowhere,
    /// The piece is a whole tensor: in the block.
    Here,
    /// It is part of a larger tensor: they come with the push.
    Push {
        /// The whole tensor in the flat vector, in elements.
        tensor: Range<usize>,
    },
}

/// L2 norms of a tensor, or of several gradients of it merged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Norms {
    /// Of its values.
    pub values: f64,
    /// Of its gradient.
    pub gradient: f64,
}

/// What tells the pieces of a run's blocks apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Which tensors weight decay spares. They are scaled by no norm either, as the reference
    /// implementations have it: a bias begins at length 0.
    pub exempt: DecayExempt,
    /// Whether each tensor is treated by itself.
    pub by_part: bool,
    /// Whether its step follows from norms of all of it.
    pub layerwise: bool,
}

impl Cut {
    /// How a run's blocks are cut.
    pub fn of(spec: &RunSpec) -> Self {
        Self {
            exempt: spec.decay_exempt,
            by_part: spec.optimizer.capabilities().by_part(),
            layerwise: spec.optimizer.capabilities().layerwise(),
        }
    }

    /// The pieces of a block of `layout`, which tile it in flat order. A block of buffers, which no
    /// optimizer sees, is one piece.
    pub fn pieces(self, layout: &Layout, block: &Block) -> Vec<Piece> {
        let (start, end) = (block.elements.start, block.elements.end);
        if block.kind == TensorKind::Buffer {
            return vec![Piece {
                elements: 0..end - start,
                decays: false,
                norms: Source::Nowhere,
            }];
        }
        let first = layout.tensors.partition_point(|t| t.elements.end <= start);
        let tensors = layout.tensors[first..].iter();
        let mut pieces: Vec<Piece> = Vec::new();
        for tensor in tensors.take_while(|t| t.elements.start < end) {
            let decays = self.exempt.decays(&tensor.spec);
            let whole = &tensor.elements;
            let part = whole.start.max(start)..whole.end.min(end);
            let norms = match self.layerwise && decays {
                false => Source::Nowhere,
                true if part == *whole => Source::Here,
                true => Source::Push {
                    tensor: whole.clone(),
                },
            };
            let alone = self.by_part && decays;
            let alike = |last: &Piece| !alone && last.decays == decays;
            let elements = part.start - start..part.end - start;
            match pieces.last_mut() {
                Some(last) if alike(last) => last.elements.end = elements.end,
                _ => pieces.push(Piece {
                    elements,
                    decays,
                    norms,
                }),
            }
        }
        pieces
    }
}

/// ‖x‖₂, summed in f64: in eight sums, so that the loop vectorises, and in one order everywhere.
pub fn norm(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (rows, rest) = values.as_chunks::<8>();
    for row in rows {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += f64::from(*x) * f64::from(*x);
        }
    }
    let rest: f64 = rest.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    (sums.iter().sum::<f64>() + rest).sqrt()
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
        Layout::new(&tensors, block_bytes).unwrap()
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
            ..none
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

    #[test]
    fn each_tensor_is_by_itself_where_its_norm_counts() {
        // Flat: a vector of 3, a matrix of 12, one of 4, a scalar; blocks of 6, 7 and 7.
        let parameter = TensorKind::Parameter;
        let layout = layout(
            &[
                (&[], parameter),
                (&[2, 2], parameter),
                (&[3, 4], parameter),
                (&[3], parameter),
            ],
            28,
        );
        let lengths: Vec<_> = layout.blocks.iter().map(|b| b.elements.len()).collect();
        assert_eq!(lengths, [6, 7, 7]);
        let of = |exempt, layerwise| {
            let cut = Cut {
                exempt,
                by_part: true,
                layerwise,
            };
            let pieces = |block| {
                let pieces = cut.pieces(&layout, block).into_iter();
                pieces.map(|p| (p.elements, p.norms)).collect::<Vec<_>>()
            };
            layout.blocks.iter().map(pieces).collect::<Vec<_>>()
        };
        let (here, nowhere) = (Source::Here, Source::Nowhere);
        let spans = Source::Push { tensor: 3..15 };
        let want = |vector: Source| {
            vec![
                vec![(0..3, vector.clone()), (3..6, spans.clone())],
                vec![(0..7, spans.clone())],
                vec![
                    (0..2, spans.clone()),
                    (2..6, here.clone()),
                    (6..7, vector.clone()),
                ],
            ]
        };
        assert_eq!(of(DecayExempt::None, true), want(here.clone()));
        assert_eq!(of(DecayExempt::Vectors, true), want(nowhere.clone()));
        // Without norms, the parts are the same.
        let cut = want(here.clone()).into_iter().map(|pieces| {
            let pieces = pieces.into_iter();
            pieces.map(|(at, _)| (at, nowhere.clone())).collect()
        });
        assert_eq!(of(DecayExempt::None, false), cut.collect::<Vec<Vec<_>>>());
    }

    #[test]
    fn norms_are_summed_in_f64() {
        let values: Vec<f32> = (1..=1003).map(|n| n as f32).collect();
        let n = 1003.0f64;
        let want = (n * (n + 1.0) * (2.0 * n + 1.0) / 6.0).sqrt();
        assert!((norm(&values) - want).abs() < 1e-9 * want);
        // In f32 the square of the first would swallow the others'.
        let mut values = vec![1.0f32; 4097];
        values[0] = 5000.0;
        assert_eq!(norm(&values), (5000.0f64 * 5000.0 + 4096.0).sqrt());
        assert_eq!(norm(&[]), 0.0);
    }
}
