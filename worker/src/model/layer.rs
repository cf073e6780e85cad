//! Layers that models are made of.

use tch::{Device, Kind, Tensor};

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
        let deviation = (2.0 / (9 * into) as f64).sqrt();
        let options = (Kind::Float, Device::Cpu);
        let weight = Tensor::randn([out, into, 3, 3], options) * deviation;
        Self {
            weight: weight.set_requires_grad(true),
            bias: Self::zeros(&[out]),
        }
    }

    /// Tells zero, whatever it is given, until it is trained.
    pub(super) fn zero(out: i64, into: i64) -> Self {
        Self {
            weight: Self::zeros(&[out, into, 3, 3]),
            bias: Self::zeros(&[out]),
        }
    }

    fn zeros(shape: &[i64]) -> Tensor {
        Tensor::zeros(shape, (Kind::Float, Device::Cpu)).set_requires_grad(true)
    }

    /// From `[samples, into, y, x]` to `[samples, out, y, x]`, with zeros beyond the edge.
    pub(super) fn forward(&self, map: &Tensor) -> Tensor {
        map.conv2d(&self.weight, Some(&self.bias), 1, 1, 1, 1)
    }
}
