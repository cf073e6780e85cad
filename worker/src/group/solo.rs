//! A group of one rank: nothing to reduce, no c10d.

use std::sync::Arc;
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tradewind_client::ranks::{Alone, Broken, Ranks};
use tradewind_common::ids::Rank;
use tradewind_common::layout::{Bucket, Layout, TensorKind};

use super::{Group, GroupError, check_loss, wait_for};
use crate::c10d::{self, C10dError, Told, Watch};
use crate::flat::{Flat, FlatError, in_layout_order, views};

/// One rank. Backward adds into views of one flat gradient vector, which is zeroed before.
#[derive(Debug)]
pub struct Solo {
    /// As long as the flat vector; the ranges of buffers stay zero.
    gradients: Tensor,
    /// Its range for each bucket; none for buffers.
    buckets: Vec<Option<Tensor>>,
    /// Parameters in flat order, and how many are in each of their buckets.
    parameters: Vec<Tensor>,
    counts: Vec<usize>,
    watch: Option<Watch>,
}

impl Solo {
    /// `tensors` are the model's own, named, in its order of creation: those that
    /// [`Flat::new`](crate::flat::Flat::new) has taken. Their `.grad` is replaced.
    pub fn new(layout: &Layout, tensors: &[(String, Tensor)]) -> Result<Self, GroupError> {
        let tensors = in_layout_order(layout, tensors)?;
        let length = layout.elements() as i64;
        // A layout has at least one tensor, and all are where the first is.
        let device = tensors[0].device();
        let gradients =
            Tensor::f_zeros([length], (Kind::Float, device)).map_err(FlatError::Torch)?;
        for (tensor, gradient) in tensors.iter().zip(views(layout, &gradients)?) {
            if tensor.requires_grad() {
                c10d::set_grad(tensor, &gradient).map_err(GroupError::Form)?;
            }
        }
        let bucket = |bucket: &Bucket| {
            let (start, length) = (bucket.elements.start, bucket.elements.len());
            let trained = bucket.kind == TensorKind::Parameter;
            let range = trained.then(|| gradients.f_narrow(0, start as i64, length as i64));
            range.transpose().map_err(FlatError::Torch)
        };
        let buckets = layout.buckets.iter().map(bucket);
        let buckets = buckets.collect::<Result<_, _>>()?;
        let trained = |b: &&Bucket| b.kind == TensorKind::Parameter;
        let counts = layout.buckets.iter().filter(trained);
        let counts = counts.map(|b| b.tensors.len()).collect();
        let mut parameters = tensors;
        parameters.retain(Tensor::requires_grad);
        Ok(Self {
            gradients,
            buckets,
            parameters,
            counts,
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
        let buckets = self.buckets.iter().enumerate();
        let own: Vec<usize> = buckets
            .filter_map(|(own, at)| at.as_ref().map(|_| own))
            .collect();
        let told = move |at: usize, gradient: &Tensor| told(own[at], gradient);
        let watch = Watch::new(&self.parameters, &self.counts, Arc::new(told));
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

    fn gradient(&self, bucket: usize) -> Option<&Tensor> {
        self.buckets[bucket].as_ref()
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
    use std::sync::Mutex;

    use super::super::testing::Model;
    use super::*;

    #[test]
    fn gradients_are_those_of_plain_libtorch() {
        let model = Model::new();
        let layout = model.layout();
        let _flat = Flat::new(&layout, &model.tensors, Device::Cpu).unwrap();
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
                            c10d::values(group.gradient(index).unwrap()).unwrap(),
                            &want[range],
                            "bucket {index}"
                        );
                    }
                }
            }
        }
    }

    /// Each bucket once in every backward, those of tensors outside the loss at its end.
    #[test]
    fn each_bucket_is_told_in_flat_order_and_final() {
        let model = Model::new();
        let layout = model.layout();
        let mut group = Solo::new(&layout, &model.tensors).unwrap();
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
            let values = c10d::values(gradient).unwrap().to_vec();
            ear.lock().unwrap().push((at, values));
        };
        group.watch(Arc::new(told)).unwrap();
        let parts = |group: &Solo| {
            let gradient = |at| Some((at, c10d::values(group.gradient(at)?).unwrap().to_vec()));
            let all = (0..layout.buckets.len()).filter_map(gradient);
            all.collect::<Vec<_>>()
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
        let mut group = Solo::new(&model.layout(), &model.tensors).unwrap();
        let mut check = |loss: &Tensor, want: &str| {
            let error = group.backward(loss).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(&Tensor::from(1f32), "requires none");
        check(&(&model.tensors[1].1 * 2.0), "has shape [5]");
    }
}
