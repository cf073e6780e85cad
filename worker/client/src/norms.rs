//! Lengths of the tensors that span blocks, of a model in main memory: for optimizers whose steps follow from
//! them.

use std::sync::Arc;

use tradewind_common::pieces::{Cut, Measured, Norms, Spanning, norm};
use tradewind_common::{BlockId, Layout};

/// Measures what a rank's slice is pushed with.
pub struct TensorNorms(Arc<Spanning>);

impl TensorNorms {
    /// For a slice of `layout`; `None` where the pushes of a run that is cut so need none.
    pub fn new(cut: Cut, layout: &Layout, slice: &[BlockId]) -> Option<Self> {
        let spanning = Spanning::new(cut, layout, slice);
        (!spanning.tensors().is_empty()).then(|| Self(Arc::new(spanning)))
    }

    /// Of the gradient as it is pushed, and of the values that it was computed on; both are as long as the
    /// flat vector.
    pub fn measure(&self, values: &[f32], gradient: &[f32]) -> Measured {
        let tensors = self.0.tensors().iter().cloned();
        let norms = tensors.map(|tensor| Norms {
            values: norm(&values[tensor.clone()]),
            gradient: norm(&gradient[tensor]),
        });
        Measured::new(&self.0, norms.collect())
    }
}
