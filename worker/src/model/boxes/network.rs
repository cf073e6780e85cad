//! The network, without data: a tied encoder and decoder, with heads on the coarsest map.

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;

use super::super::layer::{Convolution, Scaling, leaky, rectified};
use super::super::norm::Norm;
use super::super::random::normal;

const ON_CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

/// Edge of the encoder's kernels.
const KERNEL: i64 = 5;

/// Zeros beyond the edge of a map.
const BEYOND: i64 = KERNEL / 2;

/// Part of numbers below 0 that the rectifier leaves.
const SLOPE: f64 = 0.1;

/// Row and column of the middle, height and width.
const SIDES: i64 = 4;

pub(super) struct Network {
    /// What comes first.
    pub(super) input: Scaling,
    encoder: Vec<Halving>,
    place: Convolution,
    object: Convolution,
    class: Convolution,
}

/// A convolution that looks at every second cell, and may have batch normalisation behind it.
struct Halving {
    /// `[out, into, 5, 5]`.
    weight: Tensor,
    /// `[out]`, where no normalisation comes behind it.
    bias: Option<Tensor>,
    norm: Option<Norm>,
}

/// What is told of the cells of the coarsest map, each `[samples, …, y, x]`, in f32.
pub(super) struct Heads {
    /// Row and column of the middle of a box behind the beginning of the cell, in cells, and the logarithms to base 2 of
    /// its height and width in cells: 4 numbers.
    pub(super) place: Tensor,
    /// Logarithms of unnormalised probabilities that the middle of an event is in the cell and that none is: 2.
    pub(super) object: Tensor,
    /// Those of the classes of such an event.
    pub(super) class: Tensor,
}

impl Network {
    /// From maps of `channels` to boxes of `classes`. At first it tells of all cells the same: a box as large as the
    /// cell, as likely of each class as none.
    pub(super) fn new(outs: &[i64], norm: bool, channels: i64, classes: i64) -> Self {
        let into = std::iter::once(&channels).chain(outs);
        let layers = outs.iter().zip(into);
        let layers = layers.map(|(out, into)| Halving::new(*out, *into, norm));
        let encoder: Vec<Halving> = layers.collect();
        let coarsest = *outs.last().expect("there is a convolution");
        Self {
            input: Scaling::new(channels),
            encoder,
            place: Convolution::zero(SIDES, coarsest),
            object: Convolution::zero(2, coarsest),
            class: Convolution::zero(classes, coarsest),
        }
    }

    /// How many times smaller the coarsest map is, along an edge.
    pub(super) fn smaller(&self) -> i64 {
        1 << self.encoder.len()
    }

    /// From scaled maps to the coarsest one, `[samples, out, y / smaller, x / smaller]`. In training statistics are the
    /// batch's and move the running ones.
    pub(super) fn encode(&self, scaled: &Tensor, train: bool) -> Tensor {
        let mut map = scaled.shallow_clone();
        for Halving { weight, bias, norm } in &self.encoder {
            map = map.conv2d(weight, bias.as_ref(), 2, BEYOND, 1, 1);
            if let Some(norm) = norm {
                map = norm.forward(&map, train);
            }
            map = leaky(&map, SLOPE);
        }
        map
    }

    /// What the coarsest map tells of boxes.
    pub(super) fn heads(&self, coarsest: &Tensor) -> Heads {
        // Under autocast too, what is told is f32.
        let told = |head: &Convolution| head.forward(coarsest).to_kind(Kind::Float);
        Heads {
            place: told(&self.place),
            object: told(&self.object),
            class: told(&self.class),
        }
    }

    /// From the coarsest map back to scaled ones, in f32, with the encoder's kernels.
    pub(super) fn decode(&self, coarsest: &Tensor) -> Tensor {
        let mut map = coarsest.shallow_clone();
        for (number, layer) in self.encoder.iter().enumerate().rev() {
            let bias = None::<&Tensor>;
            map = map.conv_transpose2d(&layer.weight, bias, 2, BEYOND, 1, 1, 1);
            if number > 0 {
                map = leaky(&map, SLOPE);
            }
        }
        map.to_kind(Kind::Float)
    }

    /// Whether there is batch normalisation.
    pub(super) fn is_normed(&self) -> bool {
        self.encoder.iter().any(|layer| layer.norm.is_some())
    }

    pub(super) fn device(&self) -> Device {
        self.place.weight.device()
    }

    /// Parameters first, so that all statistics are in one bucket.
    pub(super) fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let (mut parameters, mut buffers) = (Vec::new(), Vec::new());
        let handle = |name: String, tensor: &Tensor, kind| (name, tensor.shallow_clone(), kind);
        let parameter = |name, tensor| handle(name, tensor, TensorKind::Parameter);
        for (number, layer) in self.encoder.iter().enumerate() {
            parameters.push(parameter(format!("encoder.{number}.weight"), &layer.weight));
            if let Some(bias) = &layer.bias {
                parameters.push(parameter(format!("encoder.{number}.bias"), bias));
            }
            if let Some(norm) = &layer.norm {
                norm.tensors(&format!("norm.{number}"), &mut parameters, &mut buffers);
            }
        }
        for (name, head) in [
            ("place", &self.place),
            ("object", &self.object),
            ("class", &self.class),
        ] {
            parameters.push(parameter(format!("{name}.weight"), &head.weight));
            parameters.push(parameter(format!("{name}.bias"), &head.bias));
        }
        for (name, tensor) in self.input.buffers() {
            let name = format!("input.{name}");
            buffers.push(handle(name, tensor, TensorKind::Buffer));
        }
        parameters.extend(buffers);
        parameters
    }
}

impl Halving {
    fn new(out: i64, into: i64, norm: bool) -> Self {
        let deviation = rectified(KERNEL * KERNEL * into, SLOPE);
        let weight = normal(&[out, into, KERNEL, KERNEL], deviation);
        Self {
            weight: weight.set_requires_grad(true),
            bias: (!norm).then(|| Tensor::zeros([out], ON_CPU).set_requires_grad(true)),
            norm: norm.then(|| Norm::new(out)),
        }
    }
}
