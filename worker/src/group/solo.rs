//! A group of one rank: nothing to reduce, no c10d.

use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tradewind_common::ids::Rank;
use tradewind_common::layout::{Layout, TensorKind};

use super::{Group, GroupError, check_loss};
use crate::c10d;
use crate::flat::{FlatError, in_layout_order, views};

/// One rank. Backward adds into views of one flat gradient vector, which is zeroed before.
#[derive(Debug)]
pub struct Solo {
    /// As long as the flat vector; the ranges of buffers stay zero.
    gradients: Tensor,
    /// Element range and kind of each bucket.
    buckets: Vec<(std::ops::Range<usize>, TensorKind)>,
}

impl Solo {
    /// `tensors` are the model's own, named, in its order of creation: those that
    /// [`Flat::new`](crate::flat::Flat::new) has taken. Their `.grad` is replaced.
    pub fn new(layout: &Layout, tensors: &[(String, Tensor)]) -> Result<Self, GroupError> {
        let tensors = in_layout_order(layout, tensors)?;
        let length = layout.elements() as i64;
        let gradients =
            Tensor::f_zeros([length], (Kind::Float, Device::Cpu)).map_err(FlatError::Torch)?;
        for (tensor, gradient) in tensors.iter().zip(views(layout, &gradients)?) {
            if tensor.requires_grad() {
                c10d::set_grad(tensor, &gradient).map_err(GroupError::Form)?;
            }
        }
        let buckets = layout
            .buckets
            .iter()
            .map(|b| (b.elements.clone(), b.kind))
            .collect();
        Ok(Self { gradients, buckets })
    }
}

impl Group for Solo {
    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> u32 {
        1
    }

    fn backward(&mut self, loss: &Tensor) -> Result<Duration, GroupError> {
        check_loss(loss)?;
        let failed =
            |error: tch::TchError| GroupError::Backward(c10d::without_stack(&error.to_string()));
        // In place: the parameters' gradients are views of it.
        let _ = self.gradients.f_zero_().map_err(failed)?;
        loss.f_backward().map_err(failed)?;
        Ok(Duration::ZERO)
    }

    fn gradient(&self, bucket: usize) -> Option<&[f32]> {
        let (elements, kind) = &self.buckets[bucket];
        (*kind == TensorKind::Parameter).then(|| {
            let all = c10d::values(&self.gradients).expect("made contiguous and not empty");
            &all[elements.clone()]
        })
    }

    fn all_reduce_sum(&self, _values: &mut [f64]) -> Result<(), GroupError> {
        Ok(())
    }

    fn broadcast(&self, _values: &mut [i64]) -> Result<(), GroupError> {
        Ok(())
    }

    fn all_reduce_mean(&self, _values: &mut [f32]) -> Result<(), GroupError> {
        Ok(())
    }

    fn gather(&mut self, _values: &mut [f32]) -> Result<(), GroupError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Model;
    use super::*;
    use crate::flat::Flat;

    #[test]
    fn gradients_are_those_of_plain_libtorch() {
        let model = Model::new();
        let layout = model.layout();
        let _flat = Flat::new(&layout, &model.tensors).unwrap();
        let mut group = Solo::new(&layout, &model.tensors).unwrap();
        for seed in 0..3 {
            group.backward(&model.loss(seed)).unwrap();
            let want = Model::plain_gradient(seed);
            for (index, bucket) in layout.buckets.iter().enumerate() {
                match bucket.kind {
                    TensorKind::Buffer => assert!(group.gradient(index).is_none()),
                    TensorKind::Parameter => {
                        let range = bucket.elements.clone();
                        assert_eq!(
                            group.gradient(index).unwrap(),
                            &want[range],
                            "bucket {index}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn losses_without_a_gradient_are_refused() {
        let model = Model::new();
        let mut group = Solo::new(&model.layout(), &model.tensors).unwrap();
        let mut check = |loss: &Tensor, want: &str| {
            let error = group.backward(loss).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(&Tensor::from(1f32), "requires none");
        check(&(&model.tensors[1].1 * 2.0), "has shape [5]");
    }
}
