//! Named tensors → one flat f32 vector → buckets → blocks → slices.
//!
//! The flat order is that in which values become known: parameters in the reverse of the order in
//! which the model created them, because backward finishes the last layers first; then buffers,
//! whose changes are known last. A bucket is thus a contiguous range that is complete early, and
//! statistics between layers, as BatchNorm has them, do not cut buckets short. Every process computes
//! the same layout from the same list of tensors, and the same slices of it.

mod deal;

use serde::{Deserialize, Serialize};
use std::ops::Range;

use crate::ids::BlockId;

/// What a tensor is to the optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TensorKind {
    /// Trained: the shard applies the optimizer.
    Parameter,
    /// A floating-point statistic, such as BatchNorm's running mean: no optimizer. The push
    /// carries the values that the group's steps have made of it.
    Buffer,
}

/// One tensor of the model, as its creator describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// The model's own name, such as `trunk.0.weight`.
    pub name: String,
    /// Extents; empty for a scalar.
    pub shape: Vec<u64>,
    /// Parameter or buffer.
    pub kind: TensorKind,
}

impl TensorSpec {
    /// Number of f32 values.
    pub fn elements(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }
}

/// A tensor with its place in the flat vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedTensor {
    /// The tensor.
    pub spec: TensorSpec,
    /// Its number in the model's order of creation, from 0.
    pub created: usize,
    /// Where its values stand in the flat vector, in elements.
    pub elements: Range<usize>,
}

/// Tensors whose gradients are fused into one unit of transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Indices into [`Layout::tensors`].
    pub tensors: Range<usize>,
    /// Range of the flat vector, in elements.
    pub elements: Range<usize>,
    /// Indices into [`Layout::blocks`].
    pub blocks: Range<usize>,
    /// The kind of all its tensors.
    pub kind: TensorKind,
}

/// The unit of placement, apply, refusal and versioning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number, in flat order.
    pub id: BlockId,
    /// Range of the flat vector, in elements; it lies in one bucket.
    pub elements: Range<usize>,
    /// The kind of all its values.
    pub kind: TensorKind,
}

impl Block {
    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        self.elements.len() * 4
    }
}

/// Why a list of tensors has no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Nothing to train.
    #[error("the model has no parameters")]
    Empty,
    /// Two tensors of one name.
    #[error("the model has two tensors named {0:?}")]
    Twice(String),
    /// A tensor without values, or with more than a flat vector can hold.
    #[error("tensor {name:?} of shape {shape:?} has no values, or more than 2^40")]
    Size {
        /// The tensor.
        name: String,
        /// Its extents.
        shape: Vec<u64>,
    },
    /// More blocks than are accepted.
    #[error("the model makes {blocks} blocks, more than {max}; raise exchange.block_bytes")]
    TooManyBlocks {
        /// How many there would be.
        blocks: usize,
        /// [`BLOCKS_MAX`].
        max: usize,
    },
}

/// Upper limit on the number of blocks of a run, so that tables stay bounded.
pub const BLOCKS_MAX: usize = 1 << 20;

const ELEMENTS_MAX: u64 = 1 << 40;

/// The flat vector of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// In flat order.
    pub tensors: Vec<PlacedTensor>,
    /// In flat order.
    pub buckets: Vec<Bucket>,
    /// In flat order; `blocks[i].id` is `BlockId(i)`.
    pub blocks: Vec<Block>,
}

impl Layout {
    /// Lays out `tensors`, given in the model's order of creation. A bucket is closed when it has
    /// reached `bucket_bytes`, and where buffers begin; a tensor is never divided between buckets, but
    /// a bucket is cut into equal blocks of at most `block_bytes`.
    pub fn new(
        tensors: &[TensorSpec],
        bucket_bytes: usize,
        block_bytes: usize,
    ) -> Result<Self, LayoutError> {
        check(tensors)?;
        let mut layout = Self {
            tensors: Vec::new(),
            buckets: Vec::new(),
            blocks: Vec::new(),
        };
        let mut offset = 0;
        let of =
            |kind| (tensors.iter().enumerate().rev()).filter(move |(_, spec)| spec.kind == kind);
        let flat = of(TensorKind::Parameter).chain(of(TensorKind::Buffer));
        for (index, (created, spec)) in flat.enumerate() {
            let elements = offset..offset + spec.elements();
            offset = elements.end;
            match layout.buckets.last_mut() {
                Some(open) if open.kind == spec.kind && open.elements.len() * 4 < bucket_bytes => {
                    open.tensors.end += 1;
                    open.elements.end = elements.end;
                }
                _ => layout.buckets.push(Bucket {
                    tensors: index..index + 1,
                    elements: elements.clone(),
                    blocks: 0..0,
                    kind: spec.kind,
                }),
            }
            layout.tensors.push(PlacedTensor {
                spec: spec.clone(),
                created,
                elements,
            });
        }
        layout.cut_blocks((block_bytes / 4).max(1))?;
        Ok(layout)
    }

    fn cut_blocks(&mut self, block_elements: usize) -> Result<(), LayoutError> {
        let count = |bucket: &Bucket| bucket.elements.len().div_ceil(block_elements);
        let blocks = self.buckets.iter().map(count).sum();
        if blocks > BLOCKS_MAX {
            return Err(LayoutError::TooManyBlocks {
                blocks,
                max: BLOCKS_MAX,
            });
        }
        for bucket in &mut self.buckets {
            let first = self.blocks.len();
            let (pieces, length) = (count(bucket), bucket.elements.len());
            let cut = |piece: usize| bucket.elements.start + piece * length / pieces;
            self.blocks.extend((0..pieces).map(|piece| Block {
                id: BlockId((first + piece) as u32),
                elements: cut(piece)..cut(piece + 1),
                kind: bucket.kind,
            }));
            bucket.blocks = first..self.blocks.len();
        }
        Ok(())
    }

    /// Length of the flat vector, in elements.
    pub fn elements(&self) -> usize {
        self.tensors.last().map_or(0, |t| t.elements.end)
    }

    /// How many buckets are of a kind.
    pub fn count(&self, kind: TensorKind) -> usize {
        let buckets = self.buckets.iter();
        buckets.filter(|bucket| bucket.kind == kind).count()
    }

    /// The block of this number.
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id.0 as usize)
    }
}

fn check(tensors: &[TensorSpec]) -> Result<(), LayoutError> {
    if !tensors.iter().any(|t| t.kind == TensorKind::Parameter) {
        return Err(LayoutError::Empty);
    }
    let mut names = std::collections::BTreeSet::new();
    let mut total = 0u64;
    for tensor in tensors {
        let elements = tensor.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        total = total.saturating_add(elements.unwrap_or(u64::MAX));
        if elements == Some(0) || total > ELEMENTS_MAX {
            return Err(LayoutError::Size {
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
            });
        }
        if !names.insert(&tensor.name) {
            return Err(LayoutError::Twice(tensor.name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, elements: u64) -> TensorSpec {
        TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind: TensorKind::Parameter,
        }
    }

    #[test]
    fn flat_order_is_reverse_creation_and_blocks_tile_it() {
        let layout =
            Layout::new(&[tensor("a", 10), tensor("b", 7), tensor("c", 100)], 64, 40).unwrap();
        let names: Vec<_> = layout
            .tensors
            .iter()
            .map(|t| t.spec.name.as_str())
            .collect();
        assert_eq!(names, ["c", "b", "a"]);
        assert_eq!(
            layout.buckets.len(),
            2,
            "c fills a bucket; b and a share one"
        );
        let mut end = 0;
        for (index, block) in layout.blocks.iter().enumerate() {
            assert_eq!((block.id.0 as usize, block.elements.start), (index, end));
            assert!(block.bytes() <= 40 && !block.elements.is_empty());
            end = block.elements.end;
        }
        assert_eq!(end, layout.elements());
        assert_eq!(end, 117);
    }

    #[test]
    fn statistics_between_layers_come_last_and_cut_no_bucket_short() {
        let mean = |name| TensorSpec {
            kind: TensorKind::Buffer,
            ..tensor(name, 2)
        };
        let tensors = [tensor("a", 4), mean("b"), tensor("c", 4), mean("d")];
        let layout = Layout::new(&tensors, 64, 64).unwrap();
        let of = |bucket: &Bucket| {
            let all = layout.tensors[bucket.tensors.clone()].iter();
            let named = all.map(|t| (t.spec.name.as_str(), t.created));
            named.collect::<Vec<_>>()
        };
        let buckets: Vec<_> = layout.buckets.iter().map(of).collect();
        assert_eq!(buckets, [[("c", 2), ("a", 0)], [("d", 3), ("b", 1)]]);
        assert_eq!(layout.buckets[1].elements, 8..12);
    }

    #[test]
    fn refused() {
        let check = |tensors: &[TensorSpec], want: &str| {
            let error = Layout::new(tensors, 64, 64).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(&[], "no parameters");
        check(&[tensor("a", 1), tensor("a", 2)], "two tensors");
        check(&[tensor("a", 0)], "no values");
        check(&[tensor("a", u64::MAX), tensor("b", 2)], "no values");
    }
}
