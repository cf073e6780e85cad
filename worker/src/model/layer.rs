//! Layers that models are made of.

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;

use super::norm::Norm;
use super::random::normal;

const ON_CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

/// The scaling of a map's channels, which is saved with the parameters and not trained.
pub(super) struct Scaling {
    /// `[channels]`, subtracted from the input.
    mean: Tensor,
    /// `[channels]`, by which it is divided.
    deviation: Tensor,
}

impl Scaling {
    /// None, until it is [set](Self::set).
    pub(super) fn new(channels: i64) -> Self {
        Self {
            mean: Tensor::zeros([channels], ON_CPU),
            deviation: Tensor::ones([channels], ON_CPU),
        }
    }

    /// Channels of the input have this mean and deviation, `[channels]` each.
    pub(super) fn set(&self, mean: &Tensor, deviation: &Tensor) {
        for (own, other) in [(&self.mean, mean), (&self.deviation, deviation)] {
            own.shallow_clone().copy_(other);
        }
    }

    /// Channels with mean 0 and deviation 1, `[samples, channels, y, x]`, in f32.
    pub(super) fn scaled(&self, image: &Tensor) -> Tensor {
        let channels = |tensor: &Tensor| tensor.view([1, -1, 1, 1]);
        (image.to_kind(Kind::Float) - channels(&self.mean)) / channels(&self.deviation)
    }

    /// With their names below `input`.
    pub(super) fn buffers(&self) -> [(&'static str, &Tensor); 2] {
        [("mean", &self.mean), ("deviation", &self.deviation)]
    }
}

/// A 3×3 convolution that keeps the size of the map.
pub(super) struct Convolution {
    /// `[out, into, 3, 3]`.
    pub(super) weight: Tensor,
    /// `[out]`.
    pub(super) bias: Tensor,
}

impl Convolution {
    /// Normal weights of variance 2 / inputs, which keeps the size of values through a ReLU.
    pub(super) fn random(out: i64, into: i64) -> Self {
        let weight = normal(&[out, into, 3, 3], rectified(9 * into, 0.0));
        Self {
            weight: weight.set_requires_grad(true),
            bias: zeros(&[out]),
        }
    }

    /// Tells zero, whatever it is given, until it is trained.
    pub(super) fn zero(out: i64, into: i64) -> Self {
        Self {
            weight: zeros(&[out, into, 3, 3]),
            bias: zeros(&[out]),
        }
    }

    /// From `[samples, into, y, x]` to `[samples, out, y, x]`, with zeros beyond the edge.
    pub(super) fn forward(&self, map: &Tensor) -> Tensor {
        map.conv2d(&self.weight, Some(&self.bias), 1, 1, 1, 1)
    }
}

/// A convolution of maps or volumes, by 3 cells along each extent, that may have batch normalisation behind it.
pub(super) struct Normed {
    /// `[out, into, 3, 3]` or `[out, into, 3, 3, 3]`.
    weight: Tensor,
    /// `[out]`, where no normalisation comes behind it.
    bias: Option<Tensor>,
    pub(super) norm: Option<Norm>,
}

impl Normed {
    /// Along 2 or 3 extents, for rectifiers of this slope behind it.
    pub(super) fn new(out: i64, into: i64, extents: usize, slope: f64, norm: bool) -> Self {
        let mut shape = vec![out, into];
        shape.resize(2 + extents, 3);
        let inputs = shape[1..].iter().product();
        let weight = normal(&shape, rectified(inputs, slope));
        Self {
            weight: weight.set_requires_grad(true),
            bias: (!norm).then(|| zeros(&[out])),
            norm: norm.then(|| Norm::new(out)),
        }
    }

    /// From `[samples, into, n, …]` to `[samples, out, n / stride, …]`, with zeros beyond the edge. In training
    /// statistics are the batch's and move the running ones.
    pub(super) fn forward(&self, map: &Tensor, stride: i64, train: bool) -> Tensor {
        let (weight, bias) = (&self.weight, self.bias.as_ref());
        let map = match weight.dim() {
            4 => map.conv2d(weight, bias, stride, 1, 1, 1),
            _ => map.conv3d(weight, bias, stride, 1, 1, 1),
        };
        match &self.norm {
            Some(norm) => norm.forward(&map, train),
            None => map,
        }
    }

    /// Appends its tensors, as PyTorch names those of the layers `conv.NUMBER` and `norm.NUMBER`.
    pub(super) fn tensors(
        &self,
        number: usize,
        parameters: &mut Vec<(String, Tensor, TensorKind)>,
        buffers: &mut Vec<(String, Tensor, TensorKind)>,
    ) {
        parameters.push(parameter(format!("conv.{number}.weight"), &self.weight));
        if let Some(bias) = &self.bias {
            parameters.push(parameter(format!("conv.{number}.bias"), bias));
        }
        if let Some(norm) = &self.norm {
            norm.tensors(&format!("norm.{number}"), parameters, buffers);
        }
    }
}

/// A linear layer.
pub(super) struct Linear {
    /// `[out, into]`.
    pub(super) weight: Tensor,
    /// `[out]`.
    bias: Tensor,
}

impl Linear {
    /// Normal weights of this deviation.
    pub(super) fn new(out: i64, into: i64, deviation: f64) -> Self {
        let weight = normal(&[out, into], deviation);
        Self {
            weight: weight.set_requires_grad(true),
            bias: zeros(&[out]),
        }
    }

    /// From `[samples, into]` to `[samples, out]`.
    pub(super) fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.linear(&self.weight, Some(&self.bias))
    }

    /// Its tensors, as PyTorch names those of a layer called `name`.
    pub(super) fn tensors(&self, name: &str) -> [(String, Tensor, TensorKind); 2] {
        [
            parameter(format!("{name}.weight"), &self.weight),
            parameter(format!("{name}.bias"), &self.bias),
        ]
    }
}

/// The deviation of weights that keeps the size of values through a rectifier that leaves `slope` of numbers below 0
/// (He et al. 2015, "Delving Deep into Rectifiers", equation 15).
pub(super) fn rectified(inputs: i64, slope: f64) -> f64 {
    (2.0 / ((1.0 + slope * slope) * inputs as f64)).sqrt()
}

/// The rectifier that leaves `slope` of numbers below 0.
pub(super) fn leaky(hidden: &Tensor, slope: f64) -> Tensor {
    let slope = Tensor::full([1], slope, (hidden.kind(), hidden.device()));
    hidden.prelu(&slope)
}

fn zeros(shape: &[i64]) -> Tensor {
    Tensor::zeros(shape, ON_CPU).set_requires_grad(true)
}

fn parameter(name: String, tensor: &Tensor) -> (String, Tensor, TensorKind) {
    (name, tensor.shallow_clone(), TensorKind::Parameter)
}
