//! Parameters → buckets, in which a group averages gradients. They are the group's own: ranks of one
//! group have the same, other groups and the servers do not know of them.

use std::ops::Range;

use super::{Layout, PlacedTensor};

/// Parameters whose gradients are averaged in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Indices into [`Layout::tensors`].
    pub tensors: Range<usize>,
    /// Range of the flat vector, in elements.
    pub elements: Range<usize>,
}

impl Layout {
    /// The parameters, in flat order. A bucket is closed when it has reached `bytes`; a tensor is never
    /// divided between buckets, but a block may be.
    pub fn buckets(&self, bytes: usize) -> Vec<Bucket> {
        fused(&self.tensors[..self.parameters()], bytes)
    }
}

/// The same of tensors of both kinds, each bucket of one.
pub(super) fn fused(tensors: &[PlacedTensor], bytes: usize) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for (index, tensor) in tensors.iter().enumerate() {
        match buckets.last_mut() {
            Some(open)
                if open.elements.len().saturating_mul(4) < bytes
                    && tensors[open.tensors.start].spec.kind == tensor.spec.kind =>
            {
                open.tensors.end += 1;
                open.elements.end = tensor.elements.end;
            }
            _ => buckets.push(Bucket {
                tensors: index..index + 1,
                elements: tensor.elements.clone(),
            }),
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{TensorKind, TensorSpec};

    #[test]
    fn buckets_are_of_whole_parameters_and_leave_blocks_alone() {
        let tensor = |(name, elements, kind): (&str, u64, TensorKind)| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind,
        };
        let tensors = [
            ("a", 10, TensorKind::Parameter),
            ("mean", 9, TensorKind::Buffer),
            ("b", 7, TensorKind::Parameter),
            ("c", 100, TensorKind::Parameter),
        ];
        let layout = Layout::new(&tensors.map(tensor), 160).unwrap();
        let check = |bytes, want: &[(Range<usize>, Range<usize>)]| {
            let buckets = layout.buckets(bytes).into_iter();
            let got: Vec<_> = buckets.map(|b| (b.tensors, b.elements)).collect();
            assert_eq!(got, want, "{bytes}");
        };
        check(4, &[(0..1, 0..100), (1..2, 100..107), (2..3, 107..117)]);
        check(64, &[(0..1, 0..100), (1..3, 100..117)]);
        check(1 << 20, &[(0..3, 0..117)]);
        let ends = layout.blocks.iter().map(|block| block.elements.end);
        assert_eq!(ends.collect::<Vec<_>>(), [39, 78, 117, 126]);
    }
}
