//! A group of one rank: nothing to reduce, no c10d.

use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tradewind_client::ranks::{Alone, Broken, Ranks};
use tradewind_common::ids::Rank;
use tradewind_common::layout::{Bucket, Layout, TensorKind};

use super::{Group, GroupError, check_loss, wait_for};
use crate::c10d::{self, C10dError, Told, Watch};
use crate::flat::{Flat, FlatError, in_layout_order, view};

/// One rank. Backward adds into views of one flat gradient vector, which is zeroed before.
#[derive(Debug)]
pub struct Solo {
    /// Of all parameters, one after the other, as a `Reducer` has those of a bucket.
    gradients: Tensor,
    /// Its range for each bucket.
    buckets: Vec<Tensor>,
    /// Parameters in flat order, and how many are in each bucket.
    parameters: Vec<Tensor>,
    counts: Vec<usize>,
    watch: Option<Watch>,
}

impl Solo {
    /// `tensors` are the model's own, named, in its order of creation: those that
    /// [`Flat::new`](crate::flat::Flat::new) has taken. Their `.grad` is replaced.
    pub fn new(
        layout: &Layout,
        buckets: &[Bucket],
        tensors: &[(String, Tensor)],
    ) -> Result<Self, GroupError> {
        let tensors = in_layout_order(layout, tensors)?;
        let length = layout.of_kind(TensorKind::Parameter).len() as i64;
        // A layout has at least one tensor, and all are where the first is.
        let device = tensors[0].device();
        let gradients =
            Tensor::f_zeros([length], (Kind::Float, device)).map_err(FlatError::Torch)?;
        let mut parameters = tensors;
        parameters.retain(Tensor::requires_grad);
        for (tensor, placed) in parameters.iter().zip(&layout.tensors) {
            let gradient = view(&gradients, placed, placed.elements.start)?;
            c10d::set_grad(tensor, &gradient).map_err(GroupError::Form)?;
        }
        let range = |bucket: &Bucket| {
            let (start, length) = (bucket.elements.start, bucket.elements.len());
            let range = gradients.f_narrow(0, start as i64, length as i64);
            range.map_err(FlatError::Torch)
        };
        Ok(Self {
            buckets: buckets.iter().map(range).collect::<Result<_, _>>()?,
            gradients,
            parameters,
            counts: buckets.iter().map(|bucket| bucket.tensors.len()).collect(),
            watch: None,
        })
    }
}

impl Ranks for Solo {
    fn rank(&self) -> Rank {
        Alone.rank()
    }

    fn size(&self) -> u32 {
        Alone.size()
    }

    fn all_reduce_sum(&self, values: &mut [f64]) -> Result<(), Broken> {
        Alone.all_reduce_sum(values)
    }

    fn broadcast(&self, values: &mut [i64]) -> Result<(), Broken> {
        Alone.broadcast(values)
    }
}

impl Group for Solo {
    fn device(&self) -> Device {
        self.gradients.device()
    }

    fn watch(&mut self, told: Told) -> Result<(), GroupError> {
        let watch = Watch::new(&self.parameters, &self.counts, told);
        self.watch = Some(watch.map_err(GroupError::Form)?);
        Ok(())
    }

    fn backward(&mut self, loss: &Tensor) -> Result<Duration, GroupError> {
        check_loss(loss)?;
        let failed =
            |error: tch::TchError| GroupError::Backward(c10d::without_stack(&error.to_string()));
        // In place: the parameters' gradients are views of it.
        let _ = self.gradients.f_zero_().map_err(failed)?;
        let watch = |error: C10dError| GroupError::Backward(error.to_string());
        if let Some(watched) = &mut self.watch {
            watched.prepare().map_err(watch)?;
        }
        loss.f_backward().map_err(failed)?;
        wait_for(self.gradients.device())?;
        if let Some(watched) = &mut self.watch {
            watched.finish().map_err(watch)?;
        }
        Ok(Duration::ZERO)
    }

    fn gradient(&self, bucket: usize) -> &Tensor {
        &self.buckets[bucket]
    }

    fn all_reduce_mean(&self, _values: &mut Tensor) -> Result<(), GroupError> {
        Ok(())
    }

    fn gather(&mut self, _flat: &mut Flat) -> Result<(), GroupError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::testing::Model;
    use super::*;

    #[test]
    fn gradients_are_those_of_plain_libtorch() {
        let model = Model::new();
        let layout = model.layout();
        let _flat = Flat::new(&layout, &model.tensors, Device::Cpu).unwrap();
        let buckets = model.buckets();
        let mut group = Solo::new(&layout, &buckets, &model.tensors).unwrap();
        for seed in 0..3 {
            group.backward(&model.loss(seed)).unwrap();
            let want = Model::plain_gradient(seed);
            for (index, bucket) in buckets.iter().enumerate() {
                let got = Vec::<f32>::try_from(group.gradient(index)).unwrap();
                assert_eq!(got, want[bucket.elements.clone()], "bucket {index}");
            }
        }
    }

    /// Each bucket once in every backward, those of tensors outside the loss at its end.
    #[test]
    fn each_bucket_is_told_in_flat_order_and_final() {
        let model = Model::new();
        let (layout, buckets) = (model.layout(), model.buckets());
        let mut group = Solo::new(&layout, &buckets, &model.tensors).unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        // Whether backward had come to the first layer, which is the last one that it comes to.
        let ends = Arc::new(Mutex::new(Vec::new()));
        let (ear, ended) = (heard.clone(), ends.clone());
        let first = Mutex::new(model.tensors[0].1.grad());
        let told = move |at, gradient: &Tensor| {
            let there = first.lock().unwrap().count_nonzero(None::<i64>);
            ended
                .lock()
                .unwrap()
                .push(i64::try_from(there).unwrap() > 0);
            let values = Vec::<f32>::try_from(gradient).unwrap();
            ear.lock().unwrap().push((at, values));
        };
        group.watch(Arc::new(told)).unwrap();
        let parts = |group: &Solo| {
            let gradient = |at| (at, Vec::<f32>::try_from(group.gradient(at)).unwrap());
            (0..buckets.len()).map(gradient).collect::<Vec<_>>()
        };
        for seed in 0..3 {
            group.backward(&model.loss(seed)).unwrap();
            let told = std::mem::take(&mut *heard.lock().unwrap());
            assert_eq!(told, parts(&group), "seed {seed}");
            let comes = std::mem::take(&mut *ends.lock().unwrap());
            assert_eq!(comes, [false, true], "told while backward goes on");

            let part = model.tensors[0].1.square().sum(Kind::Float);
            group.backward(&part).unwrap();
            let mut told = std::mem::take(&mut *heard.lock().unwrap());
            told.sort_by_key(|(at, _)| *at);
            assert_eq!(told, parts(&group), "a part of the model");
            ends.lock().unwrap().clear();
        }
    }

    #[test]
    fn losses_without_a_gradient_are_refused() {
        let model = Model::new();
        let mut group = Solo::new(&model.layout(), &model.buckets(), &model.tensors).unwrap();
        let mut check = |loss: &Tensor, want: &str| {
            let error = group.backward(loss).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(&Tensor::from(1f32), "requires none");
        check(&(&model.tensors[1].1 * 2.0), "has shape [5]");
    }
}
