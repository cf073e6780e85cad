//! Lengths of the tensors that span blocks, for optimizers whose steps follow from them.

use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::Bucket;
use tradewind_common::pieces::{Cut, Measured, Norms, Spanning};
use tradewind_common::{BlockId, Layout};

use crate::flat::Flat;
use crate::group::Group;
use crate::host::HostError;
use crate::stream::torch;

/// Measures what a rank's slice is pushed with.
pub struct TensorNorms {
    spanning: Arc<Spanning>,
    /// Of each of its tensors.
    places: Vec<Place>,
}

/// Where a tensor's gradient is.
struct Place {
    bucket: usize,
    /// In the bucket.
    range: Range<usize>,
}

impl TensorNorms {
    /// For a slice of `layout`; `None` where the pushes of a run that is cut so need none.
    pub fn new(cut: Cut, layout: &Layout, buckets: &[Bucket], slice: &[BlockId]) -> Option<Self> {
        let spanning = Spanning::new(cut, layout, slice);
        let place = |tensor: &Range<usize>| {
            let bucket = buckets.partition_point(|bucket| bucket.elements.end <= tensor.start);
            let start = buckets[bucket].elements.start;
            Place {
                bucket,
                range: tensor.start - start..tensor.end - start,
            }
        };
        let places: Vec<_> = spanning.tensors().iter().map(place).collect();
        (!places.is_empty()).then(|| Self {
            spanning: Arc::new(spanning),
            places,
        })
    }

    /// Of the gradient of the last backward, as it is pushed, and of the values in `flat` that it was
    /// computed on; in f64. On a device one copy brings all of them.
    pub fn measure(&self, flat: &Flat, group: &dyn Group) -> Result<Measured, HostError> {
        let failed = torch("the norms of tensors");
        let norm = |of: &Tensor| of.f_norm_scalaropt_dtype(2, Kind::Double);
        let mut all = Vec::with_capacity(2 * self.places.len());
        let tensors = self.spanning.tensors().iter();
        for (tensor, Place { bucket, range }) in tensors.zip(&self.places) {
            // A tensor has no gap in it.
            let values = flat.views(tensor)?.remove(0);
            let gradient = group.gradient(*bucket);
            let gradient = gradient.f_narrow(0, range.start as i64, range.len() as i64);
            all.push(norm(&values).map_err(&failed)?);
            all.push(
                gradient
                    .and_then(|gradient| norm(&gradient))
                    .map_err(&failed)?,
            );
        }
        let all = Tensor::f_stack(&all, 0).and_then(|all| all.f_to_device(Device::Cpu));
        let all = all.and_then(Vec::<f64>::try_from).map_err(&failed)?;
        let (pairs, _) = all.as_chunks::<2>();
        let norms = pairs.iter().map(|[values, gradient]| Norms {
            values: *values,
            gradient: *gradient,
        });
        Ok(Measured::new(&self.spanning, norms.collect()))
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::spec::DecayExempt;
    use tradewind_common::{Rank, TensorKind, TensorSpec};

    use super::*;
    use crate::group::Solo;

    #[test]
    fn lengths_are_of_whole_tensors_and_in_f64() {
        let tensor = |name: &str, values: &[f32]| {
            let tensor = Tensor::from_slice(values).set_requires_grad(true);
            (name.to_owned(), tensor)
        };
        // In f32 the square of the first would swallow those of the others.
        let long: Vec<f32> = std::iter::once(5000.0).chain([1.0; 10]).collect();
        let tensors = [
            tensor("long", &long),
            tensor("short", &[2.0]),
            tensor("pair", &[3.0, 4.0]),
        ];
        let spec = |(name, tensor): &(String, Tensor)| TensorSpec {
            name: name.clone(),
            shape: vec![tensor.numel() as u64],
            kind: TensorKind::Parameter,
        };
        let specs: Vec<_> = tensors.iter().map(spec).collect();
        // Of 14 values in blocks of 3 and 4 the pair and the short one are in the first.
        let layout = Layout::new(&specs, 16).unwrap();
        let (slice, cut) = (
            layout.slice(Rank(0), 1),
            Cut {
                exempt: DecayExempt::None,
                by_part: true,
                layerwise: true,
            },
        );
        let buckets = layout.buckets(12);
        assert_eq!(buckets.len(), 2);
        let flat = Flat::new(&layout, &tensors, Device::Cpu).unwrap();
        let mut group = Solo::new(&layout, &buckets, &tensors).unwrap();
        let norms = TensorNorms::new(cut, &layout, &buckets, &slice).unwrap();
        let slope = |(at, (_, tensor)): (usize, &(String, Tensor))| {
            (tensor * (at + 1) as f64 * 3.0).sum(Kind::Float)
        };
        let loss = tensors.iter().enumerate().map(slope);
        group.backward(&loss.reduce(|a, b| a + b).unwrap()).unwrap();
        let measured = norms.measure(&flat, &group).unwrap();

        let want = Norms {
            values: (25e6f64 + 10.0).sqrt(),
            gradient: 99f64.sqrt(),
        };
        let blocks = layout.blocks.iter();
        let got: Vec<_> = blocks.map(|block| measured.of_block(block.id)).collect();
        let long = std::slice::from_ref(&want);
        assert_eq!(got, [&[][..], long, long, long]);
        assert!(TensorNorms::new(Cut::default(), &layout, &buckets, &slice).is_none());
    }
}
