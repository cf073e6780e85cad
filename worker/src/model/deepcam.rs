//! Where on a map of the weather there are tropical cyclones and atmospheric rivers: each cell is told its class by a
//! segmentation network.
//!
//! Kurth et al. 2018, "Exascale Deep Learning for Climate Analytics", in the shape of the reference of MLPerf HPC
//! (Farrell et al. 2021, "MLPerf HPC: A Holistic Benchmark Suite for Scientific Machine Learning on HPC Systems",
//! section III-B). The network is DeepLabv3+ (Chen et al. 2018, "Encoder-Decoder with Atrous Separable Convolution
//! for Semantic Image Segmentation") on Xception (Chollet 2017), with transposed convolutions in the decoder:
//!
//! ```text
//! h = (image − mean) / deviation                       [samples, channels, y, x]
//! h = relu(norm(conv3(h))), twice; the first looks at every second cell, if `stride` is 2
//! h = block(h) for the entry, each of which looks at every second cell; f = h behind the first one
//! h = block(h) for the middle and the last block; h = relu(norm(separable(h))) for the rest of the exit
//! h = relu(norm(conv1(all of: relu(norm(conv1(h))), relu(norm(conv3 with holes(h))) for each rate,
//!                             relu(a conv1(mean over y, x of h) + b))))
//! h = relu(norm(larger(h))) until it is as large as f; h = [h, relu(norm(conv1(f)))]
//! h = conv1(relu(norm(conv3(relu(norm(conv3(h)))))))
//! told = larger(relu(norm(larger(h)))), or larger(h)   [samples, 3, y, x]
//! ```
//! `separable` is a 3×3 convolution of each channel, then a 1×1 convolution; `larger` a transposed 3×3 convolution of
//! stride 2. A block is a chain of relu, separable, norm, added to its own input or to norm(conv1) of that. As in the
//! reference, whose rectifiers work in place, what is added is rectified, too, where the chain begins with a relu.
//!
//! The loss is the cross-entropy of cells, weighted by class. The metric is the mean over classes of intersection over
//! union (IoU), each over all cells of the split together. The reference takes the mean over classes of each map, then
//! over maps, where a class that is not there counts 1: figures are not to be compared with it.

mod network;

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::{Device, Kind, Reduction, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::record::{Better, Measure, Part};

use self::network::Network;
use super::logistic::Logistic;
use super::weather::{CLASSES, Maps, numbers};
use super::{Picture, Reading, Report, Task, TaskError, TaskKind, measured, seeded};
use crate::data::{Batch, DataError, Dataset, Split};

/// A class is taken to be this part of all cells at least, where it is rarer or was not seen.
const PART_MIN: f64 = 1e-4;

/// Cells that the simple forecast is fitted to, about.
const FITTED_CELLS: i64 = 200_000;

/// No cell is left out of the loss.
const NO_CLASS: i64 = -100;

impl TaskKind for tradewind_config::Deepcam {
    fn build(&self, seed: u64, reading: &Reading) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Deepcam::new(self, seed, reading)?))
    }
}

/// The samples with the network.
pub struct Deepcam {
    maps: Maps,
    /// Of the classes in the loss, `[classes]`.
    weights: Tensor,
    network: Network,
}

/// How many cells of each class are told to be of which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Confusion([[u64; CLASSES.len()]; CLASSES.len()]);

impl Deepcam {
    /// Opens the samples, looks at some of them, and draws initial values from `seed`.
    ///
    /// # Errors
    /// Samples that cannot be used or do not fit the network.
    pub fn new(
        settings: &tradewind_config::Deepcam,
        seed: u64,
        reading: &Reading,
    ) -> Result<Self, TaskError> {
        let maps = Maps::open(&settings.folder, settings.augment, seed, reading)?;
        let looks = maps.looks()?;
        let network = seeded(seed, || {
            Network::new(settings, maps.channels, CLASSES.len() as i64)
        });
        let times = network.smaller();
        let (y, x) = (maps.y, maps.x);
        if y % times != 0 || x % times != 0 {
            return Err(TaskError::Other(format!(
                "{}: maps are of {y} × {x} cells, and with {} blocks in model.entry height and width have to be \
                 multiples of {times}",
                settings.folder.display(),
                settings.entry.len()
            )));
        }
        network.input.set(&looks.mean, &looks.deviation);
        let parts = looks.parts.clamp_min(PART_MIN);
        Ok(Self {
            maps,
            weights: parts.pow_tensor_scalar(-settings.balance),
            network,
        })
    }

    /// Which class each cell is told, `[samples, y, x]`.
    fn told(&self, image: &Tensor) -> Tensor {
        tch::no_grad(|| self.network.forward(image, false)).argmax(1, false)
    }

    fn confusion(&self, split: Split) -> Result<Confusion, DataError> {
        let mut confusion = Confusion::default();
        self.maps
            .samples
            .each(split, self.network.device(), |batch| {
                confusion.add(&batch["mask"], &self.told(&self.maps.image(batch)));
                Ok(())
            })?;
        Ok(confusion)
    }

    /// What can be told without a network, on held-out maps: background everywhere; and for each class a logistic
    /// regression on the channels of a cell alone, of which the highest tells.
    fn simple(&self) -> Result<[(&'static str, Confusion); 2], DataError> {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        let looked_at = self.maps.looked_at(Split::Train);
        for sample in &looked_at {
            let batch = self.maps.one(Split::Train, *sample)?;
            let mask = batch["mask"].flatten(0, -1);
            let every = (mask.size()[0] * looked_at.len() as i64 / FITTED_CELLS).max(1);
            let some = |cells: Tensor| cells.slice(0, 0, None, every).copy();
            x.push(some(self.cells(&self.maps.image(&batch))));
            y.push(some(mask));
        }
        let (x, y) = (Tensor::cat(&x, 0), Tensor::cat(&y, 0));
        let classes = 0..CLASSES.len() as i64;
        let fitted = classes.map(|class| Logistic::fit(&x, &y.eq(class).to_kind(Kind::Double)));
        let fitted: Vec<Logistic> = fitted.collect();
        let (mut background, mut logistic) = (Confusion::default(), Confusion::default());
        self.maps
            .samples
            .each(Split::HeldOut, Device::Cpu, |batch| {
                let (x, mask) = (
                    self.cells(&self.maps.image(batch)),
                    batch["mask"].flatten(0, -1),
                );
                let scores: Vec<Tensor> = fitted.iter().map(|fitted| fitted.scores(&x)).collect();
                logistic.add(&mask, &Tensor::stack(&scores, 1).argmax(1, false));
                background.add(&mask, &mask.zeros_like());
                Ok(())
            })?;
        Ok([
            ("background everywhere", background),
            ("logistic regression on a cell's channels", logistic),
        ])
    }

    /// The channels of all cells, scaled, `[samples × y × x, channels]`, in f64 on the CPU.
    fn cells(&self, image: &Tensor) -> Tensor {
        let image = image.to(self.network.device());
        let scaled = self.network.input.scaled(&image).to(Device::Cpu);
        scaled
            .permute([0, 2, 3, 1])
            .flatten(0, 2)
            .to_kind(Kind::Double)
    }

    /// The masks of a held-out map: of some the one with most cells that are not background.
    fn picture(&self) -> Result<Option<Picture>, DataError> {
        Ok(self.maps.eventful()?.map(|batch| {
            let image = self.maps.image(&batch).to(self.network.device());
            let (latitude, longitude) = self.maps.degrees();
            Picture {
                label: "a held-out map".into(),
                unit: "class".into(),
                variable: "0 background, 1 cyclone, 2 river".into(),
                truth: numbers(&batch["mask"]),
                forecast: numbers(&self.told(&image)),
                latitude,
                longitude,
                outlines: Default::default(),
            }
        }))
    }
}

impl Confusion {
    /// Takes in cells: what they are and what they are told, of one shape.
    fn add(&mut self, mask: &Tensor, told: &Tensor) {
        let count = CLASSES.len() as i64;
        let number = |tensor: &Tensor| tensor.to_kind(Kind::Int64).flatten(0, -1);
        let both = number(mask) * count + number(told);
        let counts = both.bincount::<Tensor>(None, count * count);
        let counts = Vec::<i64>::try_from(counts.to(Device::Cpu)).expect("whole numbers");
        for (at, count) in counts.into_iter().enumerate() {
            self.0[at / CLASSES.len()][at % CLASSES.len()] += count.unsigned_abs();
        }
    }

    /// Intersection over union of each class; 1 for one that nobody has seen or told.
    fn iou(&self) -> [f64; CLASSES.len()] {
        std::array::from_fn(|class| {
            let both = self.0[class][class];
            let is: u64 = self.0[class].iter().sum();
            let told: u64 = self.0.iter().map(|row| row[class]).sum();
            match is + told - both {
                0 => 1.0,
                either => both as f64 / either as f64,
            }
        })
    }

    fn mean_iou(&self) -> f64 {
        self.iou().iter().sum::<f64>() / CLASSES.len() as f64
    }
}

impl Task for Deepcam {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        self.network.tensors()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.maps.samples) as Arc<dyn Dataset>
    }

    /// The mean over cells of the cross-entropy, in nats, times the weight of the cell's class.
    fn loss(&self, batch: &Batch) -> Tensor {
        let told = self.network.forward(&self.maps.image(batch), true);
        let mask = batch["mask"].to_kind(Kind::Int64);
        let weights = self.weights.to(told.device());
        let losses = told.cross_entropy_loss(&mask, Some(&weights), Reduction::None, NO_CLASS, 0.0);
        losses.mean(Kind::Float)
    }

    /// 1 − the mean IoU.
    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let name = match split {
            Split::Train => "training 1 - IoU",
            Split::Validation => tradewind_config::Deepcam::VALIDATION_METRIC,
            Split::HeldOut => "held-out 1 - IoU",
        };
        Ok(measured(name, "", 1.0 - self.confusion(split)?.mean_iou()))
    }

    /// The mean IoU on held-out maps, and that of each class.
    fn evaluate(&self) -> Result<Report, TaskError> {
        let confusion = self.confusion(Split::HeldOut)?;
        let simple = self.simple()?;
        let part = |(class, name): (usize, &&str)| Part {
            name: (*name).into(),
            value: confusion.iou()[class],
            baselines: simple
                .iter()
                .map(|(_, simple)| simple.iou()[class])
                .collect(),
        };
        let metric = measured("held-out mean IoU", "", confusion.mean_iou());
        let baseline = |(name, simple): &(&str, Confusion)| measured(name, "", simple.mean_iou());
        Ok(Report {
            baselines: simple.iter().map(baseline).collect(),
            parts: CLASSES.iter().enumerate().map(part).collect(),
            picture: self.picture()?,
            ..Report::of(metric, Better::Higher, self.measure(Split::Validation)?)
        })
    }

    fn notes(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("model".into(), "deepcam".into()),
            ("classes".into(), CLASSES.join(", ")),
            (
                "forward".into(),
                "DeepLabv3+ on Xception with transposed convolutions, as docs/tasks/deepcam.md says; input.mean and \
                 input.deviation scale the channels; eps of norms 1e-5"
                    .into(),
            ),
        ])
    }
}

#[cfg(test)]
mod tests;
