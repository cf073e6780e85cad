//! Named tensors → one flat f32 vector → blocks → slices; and beside that, what each rank keeps for
//! itself: where the vector's tensors stand in its memory, and the buckets in which gradients are
//! averaged.
//!
//! The flat order is that in which values become known: parameters in the reverse of the order in
//! which the model created them, because backward finishes the last layers first; then buffers,
//! whose changes are known last. Blocks are cut whether tensors end there or not, and so do not depend
//! on how a group averages. Every process computes the same layout from the
//! same list of tensors, and the same slices of it.
//!
//! In a rank's memory each tensor begins at a multiple of [`ALIGN_BYTES`], as if it had been allocated by
//! itself, on every device. The gaps, of less than that behind each tensor, never leave the rank: elements
//! are counted, sent, summed and saved without them.

mod buckets;
mod deal;
mod memory;

use serde::{Deserialize, Serialize};
use std::ops::Range;

pub use self::buckets::Bucket;
pub use self::memory::{Memory, Stretch};
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
    /// Its range of the flat vector, in elements.
    pub elements: Range<usize>,
}

/// The unit of placement, apply, refusal and versioning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number, in flat order.
    pub id: BlockId,
    /// Range of the flat vector, in elements.
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

/// In a rank's memory a tensor begins at a multiple of this, which is what CUDA's own allocator promises
/// (CUDA C++ Programming Guide, "Device Memory Accesses").
pub const ALIGN_BYTES: usize = 256;

const ELEMENTS_MAX: u64 = 1 << 40;

/// The flat vector of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// In flat order.
    pub tensors: Vec<PlacedTensor>,
    /// In flat order; `blocks[i].id` is `BlockId(i)`.
    pub blocks: Vec<Block>,
}

impl Layout {
    /// Lays out `tensors`, given in the model's order of creation. All parameters are cut into equal
    /// blocks of at most `block_bytes`, and so are all buffers.
    pub fn new(tensors: &[TensorSpec], block_bytes: usize) -> Result<Self, LayoutError> {
        Self::within_buckets(tensors, usize::MAX, block_bytes)
    }

    /// The same as runs had it whose blocks lay in buckets of at least `bucket_bytes`: each bucket is cut
    /// into equal blocks.
    pub fn within_buckets(
        tensors: &[TensorSpec],
        bucket_bytes: usize,
        block_bytes: usize,
    ) -> Result<Self, LayoutError> {
        check(tensors)?;
        let mut placed = Vec::with_capacity(tensors.len());
        let mut offset = 0;
        let of =
            |kind| (tensors.iter().enumerate().rev()).filter(move |(_, spec)| spec.kind == kind);
        for (created, spec) in of(TensorKind::Parameter).chain(of(TensorKind::Buffer)) {
            let elements = offset..offset + spec.elements();
            offset = elements.end;
            placed.push(PlacedTensor {
                spec: spec.clone(),
                created,
                elements,
            });
        }
        Ok(Self {
            blocks: blocks(&placed, bucket_bytes, (block_bytes / 4).max(1))?,
            tensors: placed,
        })
    }

    /// Length of the flat vector, in elements.
    pub fn elements(&self) -> usize {
        self.tensors.last().map_or(0, |t| t.elements.end)
    }

    /// The elements of a kind; an empty range where the model has none.
    pub fn of_kind(&self, kind: TensorKind) -> Range<usize> {
        let end = self.elements();
        let buffers = self.tensors[self.parameters()..].first();
        let border = buffers.map_or(end, |first| first.elements.start);
        match kind {
            TensorKind::Parameter => 0..border,
            TensorKind::Buffer => border..end,
        }
    }

    /// How many tensors are parameters: they come first.
    fn parameters(&self) -> usize {
        let trained = |tensor: &PlacedTensor| tensor.spec.kind == TensorKind::Parameter;
        self.tensors.partition_point(trained)
    }

    /// The blocks of a slice as ranges of the flat vector; adjoining ones are one.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn runs(&self, slice: &[BlockId]) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for id in slice {
            let elements = &self.blocks[id.0 as usize].elements;
            match runs.last_mut() {
                Some(run) if run.end == elements.start => run.end = elements.end,
                _ => runs.push(elements.clone()),
            }
        }
        runs
    }

    /// The block of this number.
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id.0 as usize)
    }
}

/// Blocks of at most `block_elements`, which do not reach beyond a bucket.
fn blocks(
    tensors: &[PlacedTensor],
    bucket_bytes: usize,
    block_elements: usize,
) -> Result<Vec<Block>, LayoutError> {
    let count = |bucket: &Bucket| bucket.elements.len().div_ceil(block_elements);
    let buckets = buckets::fused(tensors, bucket_bytes);
    let total = buckets.iter().map(count).sum();
    if total > BLOCKS_MAX {
        return Err(LayoutError::TooManyBlocks {
            blocks: total,
            max: BLOCKS_MAX,
        });
    }
    let mut blocks = Vec::with_capacity(total);
    for bucket in &buckets {
        let (pieces, length) = (count(bucket), bucket.elements.len());
        let cut = |piece: usize| bucket.elements.start + piece * length / pieces;
        for piece in 0..pieces {
            blocks.push(Block {
                id: BlockId(blocks.len() as u32),
                elements: cut(piece)..cut(piece + 1),
                kind: tensors[bucket.tensors.start].spec.kind,
            });
        }
    }
    Ok(blocks)
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
    fn flat_order_is_reverse_creation_and_buffers_come_last() {
        let mean = |name| TensorSpec {
            kind: TensorKind::Buffer,
            ..tensor(name, 2)
        };
        let tensors = [tensor("a", 10), mean("b"), tensor("c", 7), mean("d")];
        let layout = Layout::new(&tensors, 40).unwrap();
        let named = layout.tensors.iter();
        let named = named.map(|t| (t.spec.name.as_str(), t.created, t.elements.start));
        let want = [("c", 2, 0), ("a", 0, 7), ("d", 3, 17), ("b", 1, 19)];
        assert_eq!(named.collect::<Vec<_>>(), want);
        assert_eq!(layout.of_kind(TensorKind::Parameter), 0..17);
        assert_eq!(layout.of_kind(TensorKind::Buffer), 17..21);
        let blocks = layout.blocks.iter().map(|b| (b.elements.clone(), b.kind));
        let (parameter, buffer) = (TensorKind::Parameter, TensorKind::Buffer);
        let want = [(0..8, parameter), (8..17, parameter), (17..21, buffer)];
        assert_eq!(blocks.collect::<Vec<_>>(), want, "whatever tensors end");
    }

    /// Runs that were begun so have such blocks in their snapshots.
    #[test]
    fn blocks_of_earlier_runs_lie_in_buckets() {
        let tensors = [tensor("a", 10), tensor("b", 7), tensor("c", 100)];
        let layout = Layout::within_buckets(&tensors, 64, 160).unwrap();
        let ends = layout.blocks.iter().map(|block| block.elements.end);
        assert_eq!(ends.collect::<Vec<_>>(), [33, 66, 100, 117]);
        let ends = Layout::new(&tensors, 160).unwrap().blocks;
        let ends = ends.iter().map(|block| block.elements.end);
        assert_eq!(ends.collect::<Vec<_>>(), [39, 78, 117]);
    }

    #[test]
    fn refused() {
        let check = |tensors: &[TensorSpec], want: &str| {
            let error = Layout::new(tensors, 64).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(&[], "no parameters");
        check(&[tensor("a", 1), tensor("a", 2)], "two tensors");
        check(&[tensor("a", 0)], "no values");
        check(&[tensor("a", u64::MAX), tensor("b", 2)], "no values");
    }
}
