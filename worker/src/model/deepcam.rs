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
use std::path::Path;
use std::sync::Arc;

use tch::{Device, Kind, Reduction, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::record::{Better, Measure, Part};
use tradewind_data::{Field, Moves};

use self::network::Network;
use super::logistic::Logistic;
use super::{Picture, Reading, Report, Task, TaskError, TaskKind, measured, seeded};
use crate::data::{Asked, Batch, DataError, Dataset, Split, Stored};

/// What cells may be, by number.
const CLASSES: [&str; 3] = ["background", "tropical cyclone", "atmospheric river"];

/// Maps of a split that are looked at where all of them would be too many: for means, deviations and the parts of
/// classes, for what a simple forecast is fitted to, and for a picture.
const LOOKED_AT: usize = 16;

/// A class is taken to be this part of all cells at least, where it is rarer or was not seen.
const PART_MIN: f64 = 1e-4;

/// Cells that the simple forecast is fitted to, about.
const FITTED_CELLS: i64 = 200_000;

/// No cell is left out of the loss.
const NO_CLASS: i64 = -100;

const OVER_MAPS: [i64; 3] = [0, 2, 3];

impl TaskKind for tradewind_config::Deepcam {
    fn build(&self, seed: u64, reading: &Reading) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Deepcam::new(self, seed, reading)?))
    }
}

/// The samples with the network.
pub struct Deepcam {
    samples: Arc<Stored>,
    /// Whether channels are the last extent of images, and not the first.
    channels_last: bool,
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
        let mut samples = Stored::of_folder(&settings.folder, reading)?;
        let fields = samples.fields();
        let Shape {
            channels,
            y,
            x,
            channels_last,
        } = Shape::of(&settings.folder, &fields)?;
        if settings.augment && channels_last {
            return Err(TaskError::Other(format!(
                "{}: data.augment = true needs images of shape [channels, y, x], and they are {}; set it to false, or \
                 store them so",
                settings.folder.display(),
                Field::listed(&fields)
            )));
        }
        if settings.augment {
            let moves = Moves {
                extents: 2,
                roll: vec![1],
                ..Moves::default()
            };
            samples = samples.augmented(&["image", "mask"], moves, seed)?;
        }
        let looked_at = Looked::at(&samples, channels, channels_last)?;
        let network = seeded(seed, || {
            Network::new(settings, channels, CLASSES.len() as i64)
        });
        let times = network.smaller();
        if y % times != 0 || x % times != 0 {
            return Err(TaskError::Other(format!(
                "{}: maps are of {y} × {x} cells, and with {} blocks in model.entry height and width have to be \
                 multiples of {times}",
                settings.folder.display(),
                settings.entry.len()
            )));
        }
        network.scale(&looked_at.mean, &looked_at.deviation);
        let parts = looked_at.parts.clamp_min(PART_MIN);
        Ok(Self {
            samples: Arc::new(samples),
            channels_last,
            weights: parts.pow_tensor_scalar(-settings.balance),
            network,
        })
    }

    /// The maps of a batch, `[samples, channels, y, x]`.
    fn image(&self, batch: &Batch) -> Tensor {
        channels_first(&batch["image"], self.channels_last)
    }

    /// Which class each cell is told, `[samples, y, x]`.
    fn told(&self, image: &Tensor) -> Tensor {
        tch::no_grad(|| self.network.forward(image, false)).argmax(1, false)
    }

    fn confusion(&self, split: Split) -> Result<Confusion, DataError> {
        let mut confusion = Confusion::default();
        self.samples.each(split, self.network.device(), |batch| {
            confusion.add(&batch["mask"], &self.told(&self.image(batch)));
            Ok(())
        })?;
        Ok(confusion)
    }

    /// What can be told without a network, on held-out maps: background everywhere; and for each class a logistic
    /// regression on the channels of a cell alone, of which the highest tells.
    fn simple(&self) -> Result<[(&'static str, Confusion); 2], DataError> {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        let looked_at = looked_at(&self.samples, Split::Train);
        for sample in &looked_at {
            let batch = self.samples.batch(Asked::of(Split::Train, &[*sample]))?;
            let mask = batch["mask"].flatten(0, -1);
            let every = (mask.size()[0] * looked_at.len() as i64 / FITTED_CELLS).max(1);
            let some = |cells: Tensor| cells.slice(0, 0, None, every).copy();
            x.push(some(self.cells(&self.image(&batch))));
            y.push(some(mask));
        }
        let (x, y) = (Tensor::cat(&x, 0), Tensor::cat(&y, 0));
        let classes = 0..CLASSES.len() as i64;
        let fitted = classes.map(|class| Logistic::fit(&x, &y.eq(class).to_kind(Kind::Double)));
        let fitted: Vec<Logistic> = fitted.collect();
        let (mut background, mut logistic) = (Confusion::default(), Confusion::default());
        self.samples.each(Split::HeldOut, Device::Cpu, |batch| {
            let (x, mask) = (self.cells(&self.image(batch)), batch["mask"].flatten(0, -1));
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
        let scaled = self.network.scaled(&image).to(Device::Cpu);
        scaled
            .permute([0, 2, 3, 1])
            .flatten(0, 2)
            .to_kind(Kind::Double)
    }

    /// The masks of a held-out map: of some the one with most cells that are not background.
    fn picture(&self) -> Result<Option<Picture>, DataError> {
        let mut most: Option<(i64, Batch)> = None;
        for sample in looked_at(&self.samples, Split::HeldOut) {
            let batch = self.samples.batch(Asked::of(Split::HeldOut, &[sample]))?;
            let events = batch["mask"].ne(0).sum(Kind::Int64).int64_value(&[]);
            if most.as_ref().is_none_or(|(most, _)| events > *most) {
                most = Some((events, batch));
            }
        }
        let map = |mask: &Tensor| {
            let mask = mask.to(Device::Cpu).to_kind(Kind::Float).flatten(0, -1);
            Vec::try_from(mask).expect("f32 on the CPU")
        };
        let numbers = |count: i64| (0..count).map(|number| number as f32).collect();
        Ok(most.map(|(_, batch)| {
            let mask = batch["mask"].select(0, 0);
            let image = self.image(&batch).to(self.network.device());
            Picture {
                label: "a held-out map".into(),
                unit: "class".into(),
                variable: "0 background, 1 cyclone, 2 river".into(),
                truth: map(&mask),
                forecast: map(&self.told(&image)),
                latitude: numbers(mask.size()[0]),
                longitude: numbers(mask.size()[1]),
            }
        }))
    }
}

/// Samples that lie evenly over a split, [`LOOKED_AT`] at most.
fn looked_at(samples: &Stored, split: Split) -> Vec<usize> {
    let all = samples.len(split);
    let count = all.min(LOOKED_AT);
    (0..count).map(|number| number * all / count).collect()
}

/// What some training samples are like.
struct Looked {
    /// `[channels]`.
    mean: Tensor,
    /// `[channels]`.
    deviation: Tensor,
    /// Of all cells that are of each class, `[classes]`.
    parts: Tensor,
}

impl Looked {
    /// At training samples, the same on every rank.
    fn at(samples: &Stored, channels: i64, channels_last: bool) -> Result<Self, DataError> {
        let sum = || Tensor::zeros([channels], (Kind::Double, Device::Cpu));
        let (mut first, mut second, mut cells) = (sum(), sum(), 0.0);
        let mut classes = Tensor::zeros([CLASSES.len() as i64], (Kind::Double, Device::Cpu));
        for sample in looked_at(samples, Split::Train) {
            let batch = samples.batch(Asked::of(Split::Train, &[sample]))?;
            let image = channels_first(&batch["image"], channels_last).to_kind(Kind::Double);
            let of =
                |image: &Tensor| image.sum_dim_intlist(OVER_MAPS.as_slice(), false, Kind::Double);
            first += of(&image);
            second += of(&image.square());
            let mask = batch["mask"].flatten(0, -1).to_kind(Kind::Int64);
            cells += mask.numel() as f64;
            classes += mask
                .bincount::<Tensor>(None, CLASSES.len() as i64)
                .to_kind(Kind::Double);
        }
        let mean: Tensor = first / cells;
        let variance = second / cells - mean.square();
        Ok(Self {
            deviation: variance.clamp_min(1e-24).sqrt(),
            parts: (classes / cells).to_kind(Kind::Float),
            mean,
        })
    }
}

/// `[samples, channels, y, x]` of images that may have their channels last.
fn channels_first(image: &Tensor, channels_last: bool) -> Tensor {
    match channels_last {
        true => image.permute([0, 3, 1, 2]),
        false => image.shallow_clone(),
    }
}

/// Extents of images.
struct Shape {
    channels: i64,
    y: i64,
    x: i64,
    channels_last: bool,
}

impl Shape {
    /// Of the field `image`, where there is a mask for it.
    fn of(folder: &Path, fields: &[Field]) -> Result<Self, TaskError> {
        let find = |name: &str| {
            fields
                .iter()
                .find(|field| field.name == name && !field.varies())
        };
        let mask = find("mask").filter(|mask| mask.classes == Some(CLASSES.len() as u32));
        let shapes = find("image").zip(mask);
        let shape = shapes.and_then(|(image, mask)| match (&image.shape[..], &mask.shape[..]) {
            ([channels, y, x], mask) if [*y, *x] == mask => Some((*channels, *y, *x, false)),
            ([y, x, channels], mask) if [*y, *x] == mask => Some((*channels, *y, *x, true)),
            _ => None,
        });
        let Some((channels, y, x, channels_last)) = shape else {
            return Err(TaskError::Other(format!(
                "{}: samples need a field image of shape [channels, y, x] or [y, x, channels], and a field mask of \
                 shape [y, x], of {} classes; they have {}",
                folder.display(),
                CLASSES.len(),
                Field::listed(fields)
            )));
        };
        let [channels, y, x] = [channels, y, x].map(|extent| extent as i64);
        Ok(Self {
            channels,
            y,
            x,
            channels_last,
        })
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
        Arc::clone(&self.samples) as Arc<dyn Dataset>
    }

    /// The mean over cells of the cross-entropy, in nats, times the weight of the cell's class.
    fn loss(&self, batch: &Batch) -> Tensor {
        let told = self.network.forward(&self.image(batch), true);
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
