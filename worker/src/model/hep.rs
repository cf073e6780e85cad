//! Whether a collision at a collider shows new physics, told by a convolutional network from an image of what the
//! detector has seen: its cylinder is unrolled, rows are cells of equal pseudorapidity η, columns of equal azimuth φ.
//!
//! Kurth et al. 2017, "Deep Learning at 15PF: Supervised and Semi-Supervised Classification for Scientific Data",
//! sections I-A and III-A, on the data of Bhimji et al. 2017, "Deep Neural Networks for Physics Analysis on low-level
//! whole-detector data at the LHC":
//!
//! ```text
//! h = [log(1 + energy), electromagnetic part of it, log(1 + tracks)]     [samples, 3, y, x]
//! for each convolution but the last: h = dropout(maxpool2(relu(conv3(h))))
//! h = mean over y and x of relu(conv3(h))                                [samples, width]
//! told = linear(h)                                                       [samples, 2]
//! ```
//! The loss is the cross-entropy of the two classes, background and signal. The metric is the area under the curve
//! of the rate of true positives over that of false ones (AUC), beside the rate of true ones where one in a hundred
//! of background passes: most of what a collider delivers is background.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::record::{Better, Curve, Measure, Part};
use tradewind_data::{Field, Moves};

use super::layer::{Linear, Normed};
use super::logistic::Logistic;
use super::random::dropout;
use super::roc::Roc;
use super::{Reading, Report, SIMPLE_BYTES, Task, TaskError, TaskKind, measured, seeded};
use crate::data::{Batch, DataError, Dataset, Split, Stored};

/// Channels of an image: energy, the electromagnetic part of it, tracks.
const CHANNELS: usize = 3;

/// What the field of images may be called; the layout `hep` of `tradewind data` calls it `image`.
const IMAGES: [&str; 2] = ["data", "image"];

/// Background and signal.
const CLASSES: u32 = 2;

/// Of the features of jets that is how many a simple analysis takes: the sum of transverse momenta, numbers of jets
/// and of fat jets, and the sum of the masses of fat jets.
const JETS_FEW: usize = 4;

/// The part of background that may pass where the rate of signal is told.
const FALSE_RATE: f64 = 0.01;

/// The last two extents of an image.
const OVER_CELLS: [i64; 2] = [2, 3];

impl TaskKind for tradewind_config::Hep {
    fn build(&self, seed: u64, reading: &Reading) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Hep::new(self, seed, reading)?))
    }
}

/// The samples with the network.
pub struct Hep {
    folder: PathBuf,
    samples: Arc<Stored>,
    /// Name of the field of images.
    image: &'static str,
    /// Number of features of jets that samples have beside the image.
    jets: usize,
    network: Network,
}

/// Scores of samples, the higher the more like signal, and whether they are signal.
#[derive(Default)]
struct Scored {
    scores: Vec<f64>,
    is_signal: Vec<bool>,
}

impl Hep {
    /// Opens the samples and draws initial values from `seed`.
    ///
    /// # Errors
    /// Samples that cannot be used or do not fit the network.
    pub fn new(
        settings: &tradewind_config::Hep,
        seed: u64,
        reading: &Reading,
    ) -> Result<Self, TaskError> {
        let mut samples = Stored::of_folder(&settings.folder, reading)?;
        let fields = samples.fields();
        let (image, [rows, columns]) = image(&settings.folder, &fields)?;
        if settings.augment {
            let moves = Moves {
                extents: 2,
                roll: vec![1],
                mirror: vec![0, 1],
                turn: false,
            };
            samples = samples.augmented(&[image], moves, seed)?;
        }
        let network = seeded(seed, || Network::new(settings, rows.min(columns)))?;
        Ok(Self {
            folder: settings.folder.clone(),
            samples: Arc::new(samples),
            image,
            jets: jets(&settings.folder, &fields)?,
            network,
        })
    }

    /// How the network orders the samples of a split.
    fn scored(&self, split: Split) -> Result<Scored, DataError> {
        let mut scored = Scored::default();
        self.samples.each(split, self.network.device(), |batch| {
            let told = tch::no_grad(|| self.network.forward(&batch[self.image], false));
            scored.add(&(told.select(1, 1) - told.select(1, 0)), &batch["label"]);
            Ok(())
        })?;
        Ok(scored)
    }

    fn curve(&self, split: Split, scored: &Scored) -> Result<Roc, TaskError> {
        Roc::new(&scored.scores, &scored.is_signal).ok_or_else(|| {
            let part = match split {
                Split::Train => "train",
                Split::Validation => "validation",
                Split::HeldOut => "held_out",
            };
            TaskError::Other(format!(
                "{}: there is no AUC, which needs samples of signal and of background there, and a network that \
                 tells numbers",
                self.folder.join(part).display()
            ))
        })
    }

    /// What tells signal from background without the network: logistic regressions on the totals of an image, and
    /// on features of jets where samples have them. With their curves on held-out samples.
    fn simple(&self) -> Result<Vec<(String, Roc)>, TaskError> {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        let look = |batch: &Batch| {
            x.push(self.features(batch));
            y.push(batch["label"].to_kind(Kind::Double));
            Ok(())
        };
        self.samples
            .up_to(SIMPLE_BYTES, Split::Train, Device::Cpu, look)?;
        let (x, y) = (Tensor::cat(&x, 0), Tensor::cat(&y, 0));
        let of = |x: &Tensor, columns: &Range<usize>| {
            x.narrow(1, columns.start as i64, columns.len() as i64)
        };
        let kinds = self.kinds().into_iter().map(|(name, columns)| {
            let fitted = Logistic::fit(&of(&x, &columns), &y);
            (name, columns, fitted, Scored::default())
        });
        let mut kinds: Vec<_> = kinds.collect();
        self.samples.each(Split::HeldOut, Device::Cpu, |batch| {
            let x = self.features(batch);
            for (_, columns, fitted, scored) in &mut kinds {
                scored.add(&fitted.scores(&of(&x, columns)), &batch["label"]);
            }
            Ok(())
        })?;
        let curve = |(name, _, _, scored)| Ok((name, self.curve(Split::HeldOut, &scored)?));
        kinds.into_iter().map(curve).collect()
    }

    /// Totals of an image and features of jets, `[samples, 3 + jets]`, in f64.
    fn features(&self, batch: &Batch) -> Tensor {
        let mut columns = vec![totals(&batch[self.image])];
        if self.jets > 0 {
            columns.push(batch["jets"].to_kind(Kind::Double));
        }
        Tensor::cat(&columns, 1)
    }

    /// Which of the features each simple way to tell looks at.
    fn kinds(&self) -> Vec<(String, Range<usize>)> {
        let mut kinds = vec![("totals of the image".to_owned(), 0..CHANNELS)];
        let counts = [JETS_FEW.min(self.jets), self.jets];
        for count in if counts[0] < counts[1] {
            &counts[..]
        } else {
            &counts[1..]
        } {
            if *count > 0 {
                let name = format!("{count} features of jets");
                kinds.push((name, CHANNELS..CHANNELS + count));
            }
        }
        kinds
    }
}

impl Scored {
    /// Takes in samples: scores and labels, `[samples]`.
    fn add(&mut self, scores: &Tensor, labels: &Tensor) {
        let scores = scores.to(Device::Cpu).to_kind(Kind::Double);
        let labels = labels.to(Device::Cpu).to_kind(Kind::Double);
        let numbers = |tensor: &Tensor| Vec::<f64>::try_from(tensor).expect("f64 on the CPU");
        self.scores.extend(numbers(&scores));
        let is_signal = numbers(&labels).into_iter().map(|label| label == 1.0);
        self.is_signal.extend(is_signal);
    }
}

/// Name, rows and columns of the field of images, where the label is there, too.
fn image(folder: &Path, fields: &[Field]) -> Result<(&'static str, [i64; 2]), TaskError> {
    let find = |name: &str| fields.iter().find(|field| field.name == name);
    let label = find("label").filter(|label| {
        !label.varies() && label.shape.is_empty() && label.classes == Some(CLASSES)
    });
    let found = IMAGES.into_iter().find_map(|name| {
        let field = find(name).filter(|field| !field.varies())?;
        match field.shape[..] {
            [CHANNELS, y, x] => Some((name, [y as i64, x as i64])),
            _ => None,
        }
    });
    found.filter(|_| label.is_some()).ok_or_else(|| {
        TaskError::Other(format!(
            "{}: samples need a field data or image of shape [3, y, x], and a field label without extents, of {CLASSES} \
             classes; they have {}",
            folder.display(),
            Field::listed(fields)
        ))
    })
}

/// How many features of jets there are, 0 without the field.
fn jets(folder: &Path, fields: &[Field]) -> Result<usize, TaskError> {
    let Some(field) = fields.iter().find(|field| field.name == "jets") else {
        return Ok(0);
    };
    match field.shape[..] {
        [count] if !field.varies() => Ok(count),
        _ => Err(TaskError::Other(format!(
            "{}: the field jets has features of the jets of a sample, as jets f32 [12]; it is {field}",
            folder.display()
        ))),
    }
}

/// Logarithms of all energy of images, of its electromagnetic part and of all tracks, `[samples, 3]`, in f64.
fn totals(image: &Tensor) -> Tensor {
    let [energy, part, tracks] = channels(&image.to_kind(Kind::Double));
    let total = |map: &Tensor| map.sum_dim_intlist(OVER_CELLS.as_slice(), false, Kind::Double);
    let totals = [total(&energy), total(&(energy * part)), total(&tracks)];
    Tensor::cat(&totals, 1).log1p()
}

/// Each of `[samples, 1, y, x]`.
fn channels(image: &Tensor) -> [Tensor; CHANNELS] {
    std::array::from_fn(|channel| image.narrow(1, channel as i64, 1))
}

impl Task for Hep {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        self.network.tensors()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.samples) as Arc<dyn Dataset>
    }

    /// Cross-entropy, in nats.
    fn loss(&self, batch: &Batch) -> Tensor {
        let told = self.network.forward(&batch[self.image], true);
        told.cross_entropy_for_logits(&batch["label"].to_kind(Kind::Int64))
    }

    /// How often a sample of background has a higher score than one of signal.
    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let name = match split {
            Split::Train => "training 1 - AUC",
            Split::Validation => tradewind_config::Hep::VALIDATION_METRIC,
            Split::HeldOut => "held-out 1 - AUC",
        };
        let roc = self.curve(split, &self.scored(split)?)?;
        Ok(measured(name, "", 1.0 - roc.auc()))
    }

    /// AUC on held-out samples, with one part: the rate of signal where one in a hundred of background passes.
    fn evaluate(&self) -> Result<Report, TaskError> {
        let roc = self.curve(Split::HeldOut, &self.scored(Split::HeldOut)?)?;
        let simple = self.simple()?;
        let validation = self.measure(Split::Validation)?;
        let part = Part {
            name: "TPR at 1 % FPR".into(),
            value: roc.true_rate(FALSE_RATE),
            baselines: simple
                .iter()
                .map(|(_, roc)| roc.true_rate(FALSE_RATE))
                .collect(),
        };
        let metric = measured("held-out AUC", "", roc.auc());
        let baselines = simple
            .iter()
            .map(|(name, roc)| measured(name, "", roc.auc()))
            .collect();
        let all = std::iter::once(("network".to_owned(), roc)).chain(simple);
        let curve = |(name, roc): (String, Roc)| Curve {
            name,
            rates: roc.rates(),
        };
        Ok(Report {
            baselines,
            parts: vec![part],
            curves: all.map(curve).collect(),
            ..Report::of(metric, Better::Higher, validation)
        })
    }

    fn notes(&self) -> BTreeMap<String, String> {
        let conv = match self.network.convolutions[0].norm {
            Some(_) => "norm(conv(h))",
            None => "conv(h)",
        };
        let forward = format!(
            "h = [log1p(energy), electromagnetic part, log1p(tracks)]; h = max_pool2d(relu({conv}), 2) for each conv \
             but the last (3x3, zero padding 1); fc(mean over y, x of relu({conv})) with the last; eps of norms 1e-5"
        );
        BTreeMap::from([
            ("model".into(), "hep".into()),
            ("classes".into(), "background, signal".into()),
            ("forward".into(), forward),
        ])
    }
}

/// The network without data.
struct Network {
    convolutions: Vec<Normed>,
    linear: Linear,
    dropout: f64,
}

impl Network {
    /// For images whose shorter edge has `size` cells.
    fn new(settings: &tradewind_config::Hep, size: i64) -> Result<Self, TaskError> {
        let halvings = settings.layers - 1;
        if size >> halvings == 0 {
            return Err(TaskError::Other(format!(
                "model.layers = {}: each convolution but the last halves an image, and of {size} cells along an edge \
                 nothing is left; lower it",
                settings.layers
            )));
        }
        let width = settings.width;
        let layer = |number| {
            let into = if number == 0 { CHANNELS as i64 } else { width };
            Normed::new(width, into, 2, 0.0, settings.norm)
        };
        Ok(Self {
            convolutions: (0..settings.layers).map(layer).collect(),
            // Small, so that at first both classes are about as likely.
            linear: Linear::new(CLASSES.into(), width, 0.01),
            dropout: settings.dropout,
        })
    }

    /// From images `[samples, 3, y, x]` to logarithms of unnormalised probabilities `[samples, 2]`, in f32. In
    /// training numbers are dropped, and statistics are the batch's and move the running ones.
    fn forward(&self, image: &Tensor, train: bool) -> Tensor {
        let [energy, part, tracks] = channels(&image.to_kind(Kind::Float));
        let mut hidden = Tensor::cat(&[energy.log1p(), part, tracks.log1p()], 1);
        let (last, layers) = self.convolutions.split_last().expect("there is one");
        for layer in layers {
            // The maximum commutes with what rises, which then has a quarter of the numbers to work on.
            hidden = layer.forward(&hidden, 1, train);
            hidden = hidden.max_pool2d(2, 2, 0, 1, false).relu();
            hidden = dropout(&hidden, self.dropout, train);
        }
        hidden = last.forward(&hidden, 1, train).relu();
        let features = hidden.mean_dim(OVER_CELLS.as_slice(), false, hidden.kind());
        // Under autocast too, what is told is f32.
        self.linear.forward(&features).to_kind(Kind::Float)
    }

    fn device(&self) -> Device {
        self.linear.weight.device()
    }

    /// Parameters first, so that all statistics are in one bucket.
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let (mut parameters, mut buffers) = (Vec::new(), Vec::new());
        for (number, layer) in self.convolutions.iter().enumerate() {
            layer.tensors(number, &mut parameters, &mut buffers);
        }
        parameters.extend(self.linear.tensors("fc"));
        parameters.extend(buffers);
        parameters
    }
}

#[cfg(test)]
mod tests;
