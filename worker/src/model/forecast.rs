//! The next map of a series from the maps before it, by a small convolutional network.
//!
//! forecast = m + scale · net((history − m) / scale), where scale is the root mean square of
//! (target − m) over the training samples and m
//! - of anomalies: the mean of the history in each cell. The network cannot overfit to a level of
//!   temperature, which the held-out years leave;
//! - of whole fields: one number, the mean of all training targets. Where it is warm and where
//!   cold the network has to take from the history, which takes it many more updates to learn.
//!
//! As the last layer starts at zero the first forecast is m. Padding with zeros says "like m"
//! beyond the edge of the map.

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::{Device, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::record::{Better, Measure, Part};

use super::baseline::{Baseline, Rmse};
use super::layer::Convolution;
use super::{Picture, Reading, Report, Task, TaskError, TaskKind, seeded};
use crate::data::series::{Series, SeriesSpec};
use crate::data::{Asked, Batch, DataError, Dataset, Split};

/// Samples that are evaluated at once.
const EVALUATE_SAMPLES: usize = 16;

/// Maps that the trend baseline looks at.
const TREND_MAPS: usize = 30;

/// Settings of the forecaster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForecastSpec {
    /// The data.
    pub series: SeriesSpec,
    /// What a time step is called, such as `year`; for names of baselines.
    pub step_name: String,
    /// Width of the network, 1 to 1024.
    pub channels: i64,
    /// Number of residual 3×3 convolutions between the first and the last, 0 to 64.
    pub depth: i64,
    /// Whether it sees and tells departures from the mean of the history, or whole fields.
    pub anomalies: bool,
}

impl TaskKind for tradewind_config::Forecast {
    fn build(&self, seed: u64, _: &Reading) -> Result<Box<dyn Task>, TaskError> {
        let spec = ForecastSpec {
            series: SeriesSpec {
                files: self.files.clone(),
                variable: self.variable.clone(),
                history: self.history,
                validation: self.validation.clone(),
                held_out: self.held_out.clone(),
                time_origin: self.time_origin,
                memory_bytes: self.memory_bytes,
            },
            step_name: self.step_name.clone(),
            channels: self.channels,
            depth: self.depth,
            anomalies: self.anomalies,
        };
        Ok(Box::new(Forecast::new(&spec, seed)?))
    }
}

/// The model with its data.
pub struct Forecast {
    series: Arc<Series>,
    step_name: String,
    /// Mean of all training targets, in the data's unit; none of a model of anomalies.
    level: Option<f64>,
    /// In the data's unit.
    scale: f64,
    stem: Convolution,
    trunk: Vec<Convolution>,
    head: Convolution,
}

impl Forecast {
    /// Opens the data, takes level and scale from the training samples (one pass over them), and
    /// draws initial values from `seed`.
    ///
    /// # Errors
    /// A width or depth out of range, or data that cannot be used.
    pub fn new(spec: &ForecastSpec, seed: u64) -> Result<Self, TaskError> {
        let within = |key, value: i64, low: i64, high: i64, reason| {
            let fits = (low..=high).contains(&value);
            if fits {
                Ok(())
            } else {
                Err(TaskError::Setting { key, value, reason })
            }
        };
        within("channels", spec.channels, 1, 1024, "must be 1 to 1024")?;
        within("depth", spec.depth, 0, 64, "must be 0 to 64")?;
        let series = Arc::new(Series::open(spec.series.clone())?);
        let (level, scale) = if spec.anomalies {
            (None, departure(&series)?)
        } else {
            let (level, scale) = climate(&series)?;
            (Some(level), scale)
        };
        let history = spec.series.history as i64;
        let (stem, trunk) = seeded(seed, || {
            let stem = Convolution::random(spec.channels, history);
            let middle = || Convolution::random(spec.channels, spec.channels);
            (stem, (0..spec.depth).map(|_| middle()).collect())
        });
        let head = Convolution::zero(1, spec.channels);
        Ok(Self {
            series,
            step_name: spec.step_name.clone(),
            level,
            scale,
            stem,
            trunk,
            head,
        })
    }

    /// From `[samples, history, y, x]` to `[samples, 1, y, x]`, in the data's unit.
    fn forward(&self, input: &Tensor) -> Tensor {
        let mean = match self.level {
            Some(level) => Tensor::full([1], level, (input.kind(), self.device())),
            None => input.mean_dim([1i64].as_slice(), true, input.kind()),
        };
        let mut hidden = self.stem.forward(&((input - &mean) / self.scale)).relu();
        for layer in &self.trunk {
            hidden = &hidden + layer.forward(&hidden).relu();
        }
        // Under autocast too, what is told is as precise as the input: the scale would be rounded away.
        mean + self.head.forward(&hidden).to_kind(input.kind()) * self.scale
    }

    /// Where the model is.
    fn device(&self) -> Device {
        self.stem.weight.device()
    }

    /// The error of the network in each file of a split, and its last forecast of each.
    fn errors(&self, split: Split) -> Result<Vec<(Rmse, Vec<f32>)>, DataError> {
        let cells = self.series.cells();
        let per_file = self.series.targets(split).len();
        let mut files = vec![(Rmse::default(), Vec::new()); self.series.names().len()];
        let samples: Vec<usize> = (0..self.series.len(split)).collect();
        for some in samples.chunks(EVALUATE_SAMPLES) {
            let batch = self
                .series
                .batch(Asked::of(split, some))?
                .to(self.device())?;
            let forecasts = values(&tch::no_grad(|| self.forward(&batch["before"])));
            let truths = values(&batch["after"]);
            let maps = forecasts
                .chunks_exact(cells)
                .zip(truths.chunks_exact(cells));
            for (sample, (forecast, truth)) in some.iter().zip(maps) {
                let (errors, last) = &mut files[sample / per_file];
                errors.add(forecast, truth);
                *last = forecast.to_vec();
            }
        }
        Ok(files)
    }

    fn measured(&self, name: &str, value: f64) -> Measure {
        Measure {
            name: name.into(),
            unit: self.series.unit().into(),
            value,
        }
    }
}

impl Task for Forecast {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let mut tensors = Vec::new();
        let mut add = |layer: &str, convolution: &Convolution| {
            for (name, tensor) in [("weight", &convolution.weight), ("bias", &convolution.bias)] {
                let handle = tensor.shallow_clone();
                tensors.push((format!("{layer}.{name}"), handle, TensorKind::Parameter));
            }
        };
        add("stem", &self.stem);
        for (index, layer) in self.trunk.iter().enumerate() {
            add(&format!("trunk.{index}"), layer);
        }
        add("head", &self.head);
        tensors
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.series) as Arc<dyn Dataset>
    }

    /// Mean square error in units of the scale: 1 for the untrained network.
    fn loss(&self, batch: &Batch) -> Tensor {
        let error = (self.forward(&batch["before"]) - &batch["after"]) / self.scale;
        error.square().mean(error.kind())
    }

    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let name = match split {
            Split::Train => "training RMSE",
            Split::Validation => tradewind_config::Forecast::VALIDATION_METRIC,
            Split::HeldOut => "held-out RMSE",
        };
        let pooled = self
            .errors(split)?
            .into_iter()
            .fold(Rmse::default(), |all, file| all.pooled(file.0));
        Ok(self.measured(name, pooled.value()))
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        let baselines = [
            Baseline::Persistence,
            Baseline::Mean(self.series.spec().history),
            Baseline::Trend(TREND_MAPS),
        ];
        let files = self.errors(Split::HeldOut)?;
        let simple = baselines
            .iter()
            .map(|baseline| baseline.errors(&self.series, Split::HeldOut))
            .collect::<Result<Vec<_>, _>>()?;
        let pooled = |errors: &[Rmse]| {
            errors
                .iter()
                .fold(Rmse::default(), |all, file| all.pooled(*file))
        };
        let network: Vec<Rmse> = files.iter().map(|file| file.0).collect();
        let parts = self
            .series
            .names()
            .iter()
            .enumerate()
            .map(|(file, name)| Part {
                name: name.clone(),
                value: network[file].value(),
                baselines: simple.iter().map(|errors| errors[file].value()).collect(),
            });
        let last = self.series.targets(Split::HeldOut).end - 1;
        Ok(Report {
            metric: self.measured("held-out RMSE", pooled(&network).value()),
            better: Better::Lower,
            validation: self.measure(Split::Validation)?,
            baselines: (baselines.iter().zip(&simple))
                .map(|(baseline, errors)| {
                    self.measured(&baseline.name(&self.step_name), pooled(errors).value())
                })
                .collect(),
            parts: parts.collect(),
            curves: Vec::new(),
            scatters: Vec::new(),
            picture: Some(Picture {
                outlines: Default::default(),
                label: self.series.label(0, last),
                unit: self.series.unit().into(),
                variable: self.series.spec().variable.clone(),
                truth: self.series.maps(0, last..last + 1)?.into_owned(),
                forecast: files[0].1.clone(),
                latitude: self.series.latitude().to_vec(),
                longitude: self.series.longitude().to_vec(),
            }),
        })
    }

    fn notes(&self) -> BTreeMap<String, String> {
        let mean = (self.level).map_or("mean(history)".into(), |level| level.to_string());
        let forward = "h = relu(stem((history - m) / scale)); \
                       for layer in trunk: h = h + relu(layer(h)); forecast = m + scale * head(h); \
                       3x3 convolutions, zero padding 1";
        BTreeMap::from([
            ("model".into(), "forecast".into()),
            ("history".into(), self.series.spec().history.to_string()),
            ("scale".into(), self.scale.to_string()),
            ("unit".into(), self.series.unit().into()),
            ("forward".into(), format!("m = {mean}; {forward}")),
        ])
    }
}

/// Root mean square of (target − mean of its history) over the training samples; 1 if it is 0.
fn departure(series: &Series) -> Result<f64, DataError> {
    let mean = Baseline::Mean(series.spec().history);
    let errors = mean.errors(series, Split::Train)?;
    let pooled = errors
        .into_iter()
        .fold(Rmse::default(), Rmse::pooled)
        .value();
    Ok(if pooled > 0.0 { pooled } else { 1.0 })
}

/// Mean and standard deviation of all values of the training targets; 1 for a deviation of 0.
fn climate(series: &Series) -> Result<(f64, f64), DataError> {
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0u64);
    for file in 0..series.names().len() {
        for step in series.targets(Split::Train) {
            for &value in series.maps(file, step..step + 1)?.iter() {
                sum += f64::from(value);
                squares += f64::from(value).powi(2);
                count += 1;
            }
        }
    }
    let mean = sum / count as f64;
    let variance = squares / count as f64 - mean.powi(2);
    Ok((mean, if variance > 0.0 { variance.sqrt() } else { 1.0 }))
}

/// All values of a tensor, in row-major order, wherever it is.
fn values(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor.to_device(Device::Cpu).contiguous().view([-1]);
    Vec::try_from(&flat).expect("an f32 tensor on the CPU")
}

#[cfg(test)]
mod tests;
