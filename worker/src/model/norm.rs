//! Batch normalisation (Ioffe and Szegedy 2015), whose running statistics are buffers.

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;

/// Weight of a batch's statistics in the running ones.
const MOMENTUM: f64 = 0.1;

const EPSILON: f64 = 1e-5;

/// Normalises each channel. Of all tensors the shape is `[channels]`.
pub(super) struct Norm {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
}

impl Norm {
    /// Does nothing but normalise, until it is trained.
    pub(super) fn new(channels: i64) -> Self {
        let options = (Kind::Float, Device::Cpu);
        let (ones, zeros) = (
            || Tensor::ones([channels], options),
            || Tensor::zeros([channels], options),
        );
        Self {
            weight: ones().set_requires_grad(true),
            bias: zeros().set_requires_grad(true),
            running_mean: zeros(),
            running_var: ones(),
        }
    }

    /// `[samples, channels, y, x]` by the statistics of the batch, which move the running ones; or
    /// outside of training by those.
    pub(super) fn forward(&self, map: &Tensor, train: bool) -> Tensor {
        map.batch_norm(
            Some(&self.weight),
            Some(&self.bias),
            Some(&self.running_mean),
            Some(&self.running_var),
            train,
            MOMENTUM,
            EPSILON,
            true,
        )
    }

    /// Appends its tensors, as PyTorch names those of a layer called `name`.
    pub(super) fn tensors(
        &self,
        name: &str,
        parameters: &mut Vec<(String, Tensor, TensorKind)>,
        buffers: &mut Vec<(String, Tensor, TensorKind)>,
    ) {
        let handle = |part: &str, tensor: &Tensor, kind| {
            (format!("{name}.{part}"), tensor.shallow_clone(), kind)
        };
        for (part, tensor) in [("weight", &self.weight), ("bias", &self.bias)] {
            parameters.push(handle(part, tensor, TensorKind::Parameter));
        }
        for (part, tensor) in [
            ("running_mean", &self.running_mean),
            ("running_var", &self.running_var),
        ] {
            buffers.push(handle(part, tensor, TensorKind::Buffer));
        }
    }
}
