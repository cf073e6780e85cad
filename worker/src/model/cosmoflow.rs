//! Which universe a cube of matter comes from: parameters of the simulation, told by a 3D convolutional network.
//!
//! Mathuriya et al. 2018, "CosmoFlow: Using Deep Learning to Learn the Universe at Scale", in the shape of the
//! reference of MLPerf HPC (Farrell et al. 2021, "MLPerf HPC: A Holistic Benchmark Suite for Scientific Machine
//! Learning on HPC Systems", section III-A):
//!
//! ```text
//! h = log(1 + counts)                                    [samples, redshifts, n, n, n]
//! for each convolution: h = pool2(leaky(conv3(h)))       leaky(x) = x, or 0.3 x where x < 0; the largest of 2³ cells
//! for each hidden layer: h = dropout(leaky(linear(h)))
//! told = 1.2 tanh(linear(h))                             [samples, parameters]
//! ```
//! Smaller ones of its kind begin with a stem, a convolution of stride 2 without pooling behind it, have batch
//! normalisation between convolution and `leaky`, and take means of cells in the place of the largest: of 2³, and in
//! front of the hidden layers of all that are left. The loss is the mean square error of scaled parameters, which lie in
//! [-1, 1]; the metric is their mean absolute error.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::record::{Better, Measure, Part, Scatter};
use tradewind_data::{Field, Kind as Number, Moves};

use super::layer::{Linear, Normed, leaky, rectified};
use super::random::dropout;
use super::{Reading, Report, SIMPLE_BYTES, Task, TaskError, TaskKind, measured, seeded};
use crate::data::{Batch, DataError, Dataset, Split, Stored};

/// What is left of numbers below 0, as in the reference.
const SLOPE: f64 = 0.3;

/// The network tells numbers between plus and minus so much, so that those at the ends can be reached.
const TOLD_MAX: f64 = 1.2;

/// Counts by which cells are told apart for the simple forecast: the parts of the cells that have more than each.
const EDGES: [i64; 12] = [0, 1, 2, 3, 4, 6, 8, 11, 15, 22, 32, 64];

/// Held-out samples that a picture shows, about.
const POINTS: i64 = 2000;

/// Weight of the squares of the simple forecast's coefficients, of features with deviation 1.
const RIDGE: f64 = 1e-3;

impl TaskKind for tradewind_config::Cosmoflow {
    fn build(&self, seed: u64, reading: &Reading) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Cosmoflow::new(self, seed, reading)?))
    }
}

/// The samples with the network.
pub struct Cosmoflow {
    samples: Arc<Stored>,
    names: Vec<String>,
    network: Network,
}

impl Cosmoflow {
    /// Opens the samples and draws initial values from `seed`.
    ///
    /// # Errors
    /// Samples that cannot be used or do not fit the network.
    pub fn new(
        settings: &tradewind_config::Cosmoflow,
        seed: u64,
        reading: &Reading,
    ) -> Result<Self, TaskError> {
        let samples = opened(settings, seed, reading)?;
        let fields = samples.fields();
        let (redshifts, size) = volume(&settings.folder, &fields)?;
        let told = settings.parameters.len();
        let target = [Field::new("target", Number::F32, &[told])];
        if !target.iter().all(|target| fields.contains(target)) {
            return Err(TaskError::Other(format!(
                "{}: samples need the field {}, one number for each name of data.parameters; they have {}",
                settings.folder.display(),
                target[0],
                Field::listed(&fields)
            )));
        }
        let network = seeded(seed, || Network::new(settings, redshifts, size))?;
        Ok(Self {
            samples: Arc::new(samples),
            names: settings.parameters.clone(),
            network,
        })
    }

    /// What the network tells of all samples of a split, and what is true, `[samples, parameters]` each, in f64 on
    /// the CPU.
    fn told(&self, split: Split) -> Result<[Tensor; 2], DataError> {
        let (mut told, mut target) = (Vec::new(), Vec::new());
        let number = |tensor: Tensor| tensor.to(Device::Cpu).to_kind(Kind::Double);
        self.samples.each(split, self.network.device(), |batch| {
            let batch_told = tch::no_grad(|| self.network.forward(&batch["volume"], false));
            told.push(number(batch_told));
            target.push(number(batch["target"].shallow_clone()));
            Ok(())
        })?;
        Ok([Tensor::cat(&told, 0), Tensor::cat(&target, 0)])
    }

    /// For each parameter what is true and what is told, of about [`POINTS`] samples.
    fn scatters(&self, [told, target]: &[Tensor; 2]) -> Vec<Scatter> {
        let every = (told.size()[0] / POINTS).max(1);
        let column = |all: &Tensor, at: i64| {
            numbers(&all.select(1, at).slice(0, 0, None, every).contiguous())
        };
        let of = |(at, name): (usize, &String)| Scatter {
            name: name.clone(),
            points: {
                let (is, told) = (column(target, at as i64), column(told, at as i64));
                is.into_iter().zip(told).collect()
            },
        };
        self.names.iter().enumerate().map(of).collect()
    }

    /// What can be told without a network, and its errors on held-out samples: the mean of the training targets,
    /// and a ridge regression on how many cells have how many counts (Hoerl and Kennard 1970, equation 2.1).
    fn simple(&self) -> Result<[(&'static str, Vec<f64>); 2], DataError> {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        let look = |batch: &Batch| {
            x.push(histogram(&batch["volume"]));
            y.push(batch["target"].to_kind(Kind::Double));
            Ok(())
        };
        self.samples
            .up_to(SIMPLE_BYTES, Split::Train, Device::Cpu, look)?;
        let (x, y) = (Tensor::cat(&x, 0), Tensor::cat(&y, 0));
        let over_samples = [0i64].as_slice();
        let mean = y.mean_dim(over_samples, true, Kind::Double);
        let middle = x.mean_dim(over_samples, true, Kind::Double);
        let deviation = x.std_dim(over_samples, false, true).clamp_min(1e-9);
        let scaled = |x: &Tensor| (x - &middle) / &deviation;
        let x = scaled(&x);
        let count = x.size()[0] as f64;
        let squares = x.tr().matmul(&x) / count;
        let ridge = Tensor::eye(squares.size()[0], (Kind::Double, Device::Cpu)) * RIDGE;
        let products = x.tr().matmul(&(&y - &mean)) / count;
        let weight = Tensor::linalg_solve(&(squares + ridge), &products, true);
        let mut sums = [(); 2].map(|()| mean.zeros_like().squeeze_dim(0));
        let count = self.samples.each(Split::HeldOut, Device::Cpu, |batch| {
            let regression = scaled(&histogram(&batch["volume"])).matmul(&weight) + &mean;
            let target = &batch["target"];
            sums[0] += errors(&mean.expand_as(target), target);
            sums[1] += errors(&regression, target);
            Ok(())
        })?;
        let [means, ridges] = sums.map(|sum| numbers(&(sum / count as f64)));
        Ok([
            ("mean of training targets", means),
            ("ridge on histograms", ridges),
        ])
    }
}

/// The samples, which are moved if they are to be.
fn opened(
    settings: &tradewind_config::Cosmoflow,
    seed: u64,
    reading: &Reading,
) -> Result<Stored, TaskError> {
    let samples = Stored::of_folder(&settings.folder, reading)?;
    if !settings.augment {
        return Ok(samples);
    }
    let moves = Moves {
        extents: 3,
        turn: true,
        ..Moves::default()
    };
    Ok(samples.augmented(&["volume"], moves, seed)?)
}

/// Number of redshifts and of cells along an edge.
fn volume(folder: &Path, fields: &[Field]) -> Result<(i64, i64), TaskError> {
    let volume = fields.iter().find(|field| field.name == "volume");
    match volume.map(|field| (field.varies(), &field.shape[..])) {
        Some((false, [redshifts, z, y, x])) if z == y && y == x => {
            Ok((*redshifts as i64, *x as i64))
        }
        _ => Err(TaskError::Other(format!(
            "{}: samples need a field volume of shape [redshifts, n, n, n]; they have {}",
            folder.display(),
            Field::listed(fields)
        ))),
    }
}

/// Sums over samples of absolute errors, `[parameters]`.
fn errors(told: &Tensor, target: &Tensor) -> Tensor {
    let errors = (told - target).abs().to(Device::Cpu);
    errors.sum_dim_intlist([0i64].as_slice(), false, Kind::Double)
}

/// The mean absolute error of each parameter, `[parameters]`.
fn mean_errors(told: &Tensor, target: &Tensor) -> Vec<f64> {
    numbers(&(errors(told, target) / told.size()[0] as f64))
}

/// The parts of the cells with more counts than each of [`EDGES`], `[samples, redshifts × edges]`. Their roots,
/// since those deviate about as much where few cells are counted as where many are.
fn histogram(volume: &Tensor) -> Tensor {
    let above = EDGES.map(|edge| {
        let above = volume.gt(edge).to_kind(Kind::Float);
        above.mean_dim([2i64, 3, 4].as_slice(), false, Kind::Float)
    });
    let parts = Tensor::cat(&above, 1).sqrt();
    parts.to_kind(Kind::Double)
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor).expect("f64 on the CPU")
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

impl Task for Cosmoflow {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        self.network.tensors()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.samples) as Arc<dyn Dataset>
    }

    /// The mean square error of scaled parameters.
    fn loss(&self, batch: &Batch) -> Tensor {
        let told = self.network.forward(&batch["volume"], true);
        (told - &batch["target"]).square().mean(Kind::Float)
    }

    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let name = match split {
            Split::Train => "training MAE",
            Split::Validation => tradewind_config::Cosmoflow::VALIDATION_METRIC,
            Split::HeldOut => "held-out MAE",
        };
        let [told, target] = self.told(split)?;
        Ok(measured(name, "", mean(&mean_errors(&told, &target))))
    }

    /// One part for each parameter.
    fn evaluate(&self) -> Result<Report, TaskError> {
        let both = self.told(Split::HeldOut)?;
        let errors = mean_errors(&both[0], &both[1]);
        let simple = self.simple()?;
        let part = |(at, name): (usize, &String)| Part {
            name: name.clone(),
            value: errors[at],
            baselines: simple.iter().map(|(_, errors)| errors[at]).collect(),
        };
        let baselines = simple.iter();
        let validation = self.measure(Split::Validation)?;
        let metric = measured("held-out MAE", "", mean(&errors));
        Ok(Report {
            baselines: baselines
                .map(|(name, errors)| measured(name, "", mean(errors)))
                .collect(),
            parts: self.names.iter().enumerate().map(part).collect(),
            scatters: self.scatters(&both),
            ..Report::of(metric, Better::Lower, validation)
        })
    }

    fn notes(&self) -> BTreeMap<String, String> {
        let stem = match self.network.stem {
            true => "; conv.0 has stride 2 and no pool behind it",
            false => "",
        };
        let (pool, flat) = match self.network.mean {
            true => ("avg_pool3d", "mean of all cells"),
            false => ("max_pool3d", "flatten"),
        };
        let norm = match self.network.convolutions[0].norm {
            Some(_) => "norm(conv(h))",
            None => "conv(h)",
        };
        let forward = format!(
            "h = log1p(counts); h = {pool}(leaky({norm}), 2) for each conv (3x3x3, zero padding 1{stem}); h = {flat}(h); \
             h = leaky(fc(h)) for each fc but the last; {TOLD_MAX} * tanh(fc(h)); \
             leaky = leaky_relu with slope {SLOPE}; eps of norms 1e-5"
        );
        BTreeMap::from([
            ("model".into(), "cosmoflow".into()),
            ("parameters".into(), self.names.join(", ")),
            ("forward".into(), forward),
        ])
    }
}

/// The network without data.
struct Network {
    convolutions: Vec<Normed>,
    /// The hidden layers, and the one that tells.
    linear: Vec<Linear>,
    stem: bool,
    /// Whether cells are pooled by their mean, not by the largest.
    mean: bool,
    dropout: f64,
}

impl Network {
    /// For volumes `[redshifts, size, size, size]`.
    fn new(
        settings: &tradewind_config::Cosmoflow,
        redshifts: i64,
        size: i64,
    ) -> Result<Self, TaskError> {
        let (mut into, mut left) = (redshifts, size);
        let mut convolutions = Vec::new();
        for &out in &settings.convolutions {
            convolutions.push(Normed::new(out, into, 3, SLOPE, settings.norm));
            (into, left) = (out, left / 2);
        }
        if left == 0 {
            return Err(TaskError::Other(format!(
                "model.convolutions has {} convolutions, each of which halves a cube of {size} cells along an edge: \
                 nothing is left of it; name fewer of them",
                settings.convolutions.len()
            )));
        }
        let mean = settings.pooling == "mean";
        if !mean {
            into *= left.pow(3);
        }
        let mut linear = Vec::new();
        for &out in &settings.hidden {
            linear.push(Linear::new(out, into, rectified(into, SLOPE)));
            into = out;
        }
        // Small, so that at first the middle is told.
        linear.push(Linear::new(settings.parameters.len() as i64, into, 0.01));
        Ok(Self {
            convolutions,
            linear,
            stem: settings.stem,
            mean,
            dropout: settings.dropout,
        })
    }

    /// From counts `[samples, redshifts, n, n, n]` to scaled parameters `[samples, parameters]`, in f32. In training
    /// units are dropped, and statistics are the batch's and move the running ones.
    fn forward(&self, volume: &Tensor, train: bool) -> Tensor {
        let mut hidden = volume.to_kind(Kind::Float).log1p();
        for (number, layer) in self.convolutions.iter().enumerate() {
            let is_stem = self.stem && number == 0;
            let stride = if is_stem { 2 } else { 1 };
            hidden = layer.forward(&hidden, stride, train);
            // The maximum commutes with what rises, which then has an eighth of the numbers to work on.
            if !is_stem && !self.mean {
                hidden = hidden.max_pool3d(2, 2, 0, 1, false);
            }
            hidden = leaky(&hidden, SLOPE);
            if !is_stem && self.mean {
                hidden = hidden.avg_pool3d(2, 2, 0, false, true, None);
            }
        }
        hidden = match self.mean {
            true => hidden.mean_dim([2i64, 3, 4].as_slice(), false, None::<Kind>),
            false => hidden.flatten(1, -1),
        };
        let (last, layers) = self.linear.split_last().expect("one layer tells");
        for layer in layers {
            hidden = leaky(&layer.forward(&hidden), SLOPE);
            hidden = dropout(&hidden, self.dropout, train);
        }
        // Under autocast too, what is told is f32.
        last.forward(&hidden).to_kind(Kind::Float).tanh() * TOLD_MAX
    }

    fn device(&self) -> Device {
        self.linear[0].weight.device()
    }

    /// Parameters first, so that all statistics are in one bucket.
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let (mut parameters, mut buffers) = (Vec::new(), Vec::new());
        for (number, layer) in self.convolutions.iter().enumerate() {
            layer.tensors(number, &mut parameters, &mut buffers);
        }
        for (number, layer) in self.linear.iter().enumerate() {
            parameters.extend(layer.tensors(&format!("fc.{number}")));
        }
        parameters.extend(buffers);
        parameters
    }
}

#[cfg(test)]
mod tests;
