//! Residual networks of bottleneck blocks for images: ResNet-50 and smaller ones of its kind.
//!
//! He, Zhang, Ren, Sun 2015, "Deep Residual Learning for Image Recognition", table 1 and figure 5;
//! the stride of a block is at its 3×3 convolution, as in PyTorch's torchvision ("v1.5"), whose
//! names the tensors bear. Convolutions begin as in He et al. 2015, "Delving Deep into
//! Rectifiers", with the variance by outputs; the last layer begins small (Goyal et al. 2017,
//! "Accurate, Large Minibatch SGD", section 5.1).

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::record::{Better, Measure};

use super::norm::Norm;
use super::random::normal;
use super::{Reading, Report, Task, TaskError, TaskKind, measured, seeded};
use crate::data::synthetic::{CHANNELS, Images, ImagesSpec};
use crate::data::{Asked, Batch, Dataset, Split};

/// Samples that are evaluated at once.
const EVALUATE_SAMPLES: usize = 64;

/// A block puts out so many times the channels that its 3×3 convolution has.
const EXPANSION: i64 = 4;

/// Settings of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResnetSpec {
    /// Bottleneck blocks of each stage, each at least 1; `[3, 4, 6, 3]` is ResNet-50.
    pub blocks: [u32; 4],
    /// Channels of the first layer, at least 1; 64 is ResNet-50.
    pub width: u32,
    /// The data.
    pub images: ImagesSpec,
}

impl TaskKind for tradewind_config::Resnet {
    fn build(&self, seed: u64, _: &Reading) -> Result<Box<dyn Task>, TaskError> {
        let spec = ResnetSpec {
            blocks: self.blocks,
            width: self.width,
            images: ImagesSpec {
                size: self.image_size as usize,
                classes: self.classes as usize,
                samples: self.samples as usize,
            },
        };
        Ok(Box::new(Resnet::new(&spec, seed)?))
    }
}

/// The model with its data.
pub struct Resnet {
    images: Arc<Images>,
    stem: Layer,
    blocks: Vec<(String, Block)>,
    /// `[classes, channels]`.
    weight: Tensor,
    /// `[classes]`.
    bias: Tensor,
}

impl Resnet {
    /// Makes the network with initial values from `seed`, and the images of that seed.
    ///
    /// # Errors
    /// A stage without blocks, or without channels.
    pub fn new(spec: &ResnetSpec, seed: u64) -> Result<Self, TaskError> {
        let refuse = |key, value: u32| TaskError::Setting {
            key,
            value: i64::from(value),
            reason: "must be at least 1",
        };
        if let Some(none) = spec.blocks.iter().find(|blocks| **blocks == 0) {
            return Err(refuse("blocks", *none));
        }
        if spec.width == 0 {
            return Err(refuse("width", spec.width));
        }
        Ok(seeded(seed, || {
            let width = i64::from(spec.width);
            let stem = Layer::new(width, CHANNELS as i64, 7, 2);
            let mut into = width;
            let mut blocks = Vec::new();
            for (stage, count) in spec.blocks.into_iter().enumerate() {
                for index in 0..count {
                    let stride = if stage > 0 && index == 0 { 2 } else { 1 };
                    let block = Block::new(into, width << stage, stride);
                    blocks.push((format!("layer{}.{index}", stage + 1), block));
                    into = EXPANSION * (width << stage);
                }
            }
            let options = (Kind::Float, Device::Cpu);
            let classes = spec.images.classes as i64;
            let weight = normal(&[classes, into], 0.01);
            Self {
                images: Arc::new(Images::new(spec.images, seed)),
                stem,
                blocks,
                weight: weight.set_requires_grad(true),
                bias: Tensor::zeros([classes], options).set_requires_grad(true),
            }
        }))
    }

    /// From images `[samples, 3, y, x]` to the logarithms of unnormalised probabilities
    /// `[samples, classes]`. In training statistics are the batch's, and the running ones move.
    fn forward(&self, images: &Tensor, train: bool) -> Tensor {
        let mut hidden = self.stem.forward(images, train).relu();
        hidden = hidden.max_pool2d(3, 2, 1, 1, false);
        for (_, block) in &self.blocks {
            hidden = block.forward(&hidden, train);
        }
        let features = hidden.mean_dim([2i64, 3].as_slice(), false, hidden.kind());
        features.linear(&self.weight, Some(&self.bias))
    }

    /// The layers that are convolutions, named as torchvision does.
    fn layers(&self) -> Vec<(String, String, &Layer)> {
        let mut layers = vec![("conv1".to_owned(), "bn1".to_owned(), &self.stem)];
        for (name, block) in &self.blocks {
            for (index, layer) in block.layers.iter().enumerate() {
                let part = |part: &str| format!("{name}.{part}{}", index + 1);
                layers.push((part("conv"), part("bn"), layer));
            }
            if let Some(layer) = &block.shortcut {
                let part = |index: u32| format!("{name}.downsample.{index}");
                layers.push((part(0), part(1), layer));
            }
        }
        layers
    }

    /// Part of the images of a split whose kind the network does not tell, per cent.
    fn errors(&self, split: Split) -> Result<f64, TaskError> {
        let samples: Vec<usize> = (0..self.images.len(split)).collect();
        let device = self.weight.device();
        let mut right = 0;
        for some in samples.chunks(EVALUATE_SAMPLES) {
            let batch = self.images.batch(Asked::of(split, some))?.to(device)?;
            let told = tch::no_grad(|| self.forward(&batch["image"], false)).argmax(-1, false);
            let kinds = batch["kind"].to_kind(Kind::Int64);
            right += told.eq_tensor(&kinds).sum(Kind::Int64).int64_value(&[]);
        }
        Ok(100.0 * (1.0 - right as f64 / samples.len() as f64))
    }
}

impl Task for Resnet {
    /// Parameters first, so that all statistics are in one bucket.
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let mut parameters = Vec::new();
        let mut buffers = Vec::new();
        for (convolution, norm, layer) in self.layers() {
            let weight = layer.weight.shallow_clone();
            parameters.push((
                format!("{convolution}.weight"),
                weight,
                TensorKind::Parameter,
            ));
            layer.norm.tensors(&norm, &mut parameters, &mut buffers);
        }
        for (name, tensor) in [("fc.weight", &self.weight), ("fc.bias", &self.bias)] {
            parameters.push((
                name.to_owned(),
                tensor.shallow_clone(),
                TensorKind::Parameter,
            ));
        }
        parameters.extend(buffers);
        parameters
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.images) as Arc<dyn Dataset>
    }

    /// Cross entropy, in nats.
    fn loss(&self, batch: &Batch) -> Tensor {
        let kinds = batch["kind"].to_kind(Kind::Int64);
        // Under autocast too, probabilities are as precise as the parameters.
        let told = self.forward(&batch["image"], true);
        let told = told.to_kind(self.weight.kind());
        told.log_softmax(-1, told.kind()).nll_loss(&kinds)
    }

    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let name = match split {
            Split::Train => "training error",
            Split::Validation => tradewind_config::Resnet::VALIDATION_METRIC,
            Split::HeldOut => "held-out error",
        };
        Ok(measured(name, "%", self.errors(split)?))
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        let classes = self.images.spec().classes as f64;
        let validation = self.measure(Split::Validation)?;
        Ok(Report {
            baselines: vec![measured("guessing", "%", 100.0 * (1.0 - 1.0 / classes))],
            ..Report::of(self.measure(Split::HeldOut)?, Better::Lower, validation)
        })
    }

    fn notes(&self) -> BTreeMap<String, String> {
        let forward = "torchvision's ResNet of bottleneck blocks; without num_batches_tracked";
        let blocks = self.blocks.len();
        BTreeMap::from([
            (
                "model".into(),
                format!("resnet of {blocks} bottleneck blocks"),
            ),
            ("forward".into(), forward.into()),
        ])
    }
}

/// A convolution without bias, and the normalisation of what it puts out.
struct Layer {
    /// `[out, into, size, size]`.
    weight: Tensor,
    stride: i64,
    norm: Norm,
}

impl Layer {
    fn new(out: i64, into: i64, size: i64, stride: i64) -> Self {
        let deviation = (2.0 / (size * size * out) as f64).sqrt();
        let weight = normal(&[out, into, size, size], deviation);
        Self {
            weight: weight.set_requires_grad(true),
            stride,
            norm: Norm::new(out),
        }
    }

    /// From `[samples, into, y, x]` to `[samples, out, y / stride, x / stride]`, with zeros beyond
    /// the edge.
    fn forward(&self, map: &Tensor, train: bool) -> Tensor {
        let padding = self.weight.size()[2] / 2;
        let map = map.conv2d(&self.weight, None::<&Tensor>, self.stride, padding, 1, 1);
        self.norm.forward(&map, train)
    }
}

/// 1×1, 3×3 and 1×1 convolutions beside a shortcut, which is a 1×1 convolution where the block
/// changes the shape.
struct Block {
    layers: [Layer; 3],
    shortcut: Option<Layer>,
}

impl Block {
    fn new(into: i64, middle: i64, stride: i64) -> Self {
        let out = EXPANSION * middle;
        let reshapes = stride != 1 || into != out;
        Self {
            layers: [
                Layer::new(middle, into, 1, 1),
                Layer::new(middle, middle, 3, stride),
                Layer::new(out, middle, 1, 1),
            ],
            shortcut: reshapes.then(|| Layer::new(out, into, 1, stride)),
        }
    }

    fn forward(&self, map: &Tensor, train: bool) -> Tensor {
        let [reduce, middle, expand] = &self.layers;
        let hidden = middle.forward(&reduce.forward(map, train).relu(), train);
        let hidden = expand.forward(&hidden.relu(), train);
        let shortcut = self.shortcut.as_ref();
        let shortcut =
            shortcut.map_or_else(|| map.shallow_clone(), |layer| layer.forward(map, train));
        (hidden + shortcut).relu()
    }
}

#[cfg(test)]
mod tests;
