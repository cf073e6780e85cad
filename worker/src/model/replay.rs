//! No model, but what one does with samples that are read: for measuring how fast samples in files of somebody's
//! own come. Their values are read, brought to the device and used, by a linear map that learns to tell the mean of
//! each field from the means of all. The computation of a network is replayed by waiting for the rest of
//! `pace.step_seconds`, and its exchanges by parameters that have the gradient 0 (Devarajan et al. 2021, "DLIO: A
//! Data-Centric Benchmark for Scientific Deep Learning Applications", section IV).

use std::path::PathBuf;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::record::{Better, Measure};
use tradewind_data::{Layout, batch_bytes};

use super::random::normal;
use super::{Reading, Report, Task, TaskError, TaskKind, seeded};
use crate::data::{Asked, Batch, DataError, Dataset, Field, Split, Stored};

/// Values of a row of a field that its mean is taken over: some of many do, so that a step without a GPU takes
/// little time.
const VALUES_MAX: usize = 1024;

/// Training samples by which means are centred and scaled.
const LOOKED_AT: usize = 8;

/// Means farther from the centre count as so far, in deviations.
const FAR: f64 = 3.0;

/// Parameters of a tensor beyond the map's, so that they fill several buckets as those of a network do.
const TENSOR_PARAMETERS: u64 = 1 << 20;

/// Bytes of samples that are evaluated at once; one sample may be larger.
const EVALUATE_BYTES: usize = 64 << 20;

const ON_CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

/// Settings of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaySpec {
    /// Where the samples are.
    pub folder: PathBuf,
    /// What data sets become which fields; empty for what fits.
    pub layout: String,
    /// Samples for validation and for the final metric, the last ones of all.
    pub validation: usize,
    /// The last ones of these.
    pub held_out: usize,
    /// Least number of parameters.
    pub parameters: u64,
}

impl TaskKind for tradewind_config::Replay {
    fn build(&self, seed: u64, reading: &Reading) -> Result<Box<dyn Task>, TaskError> {
        let spec = ReplaySpec {
            folder: self.folder.clone(),
            layout: self.layout.clone(),
            validation: self.validation_samples,
            held_out: self.held_out_samples,
            parameters: self.parameters,
        };
        Ok(Box::new(Replay::new(&spec, seed, reading)?))
    }
}

/// The samples with the map.
pub struct Replay {
    samples: Arc<Stored>,
    /// Of each field.
    fields: Vec<Scaled>,
    /// `[fields, fields]`.
    weight: Tensor,
    /// `[fields]`.
    bias: Tensor,
    /// Parameters that nothing depends on.
    idle: Vec<Tensor>,
}

/// A field, with the middle of its means and one over their deviation.
struct Scaled {
    field: Field,
    middle: f64,
    scale: f64,
}

impl Replay {
    /// Opens the samples, reads the first ones and draws initial values from `seed`.
    ///
    /// # Errors
    /// Samples that cannot be used, or too few of them.
    pub fn new(spec: &ReplaySpec, seed: u64, reading: &Reading) -> Result<Self, TaskError> {
        let layout =
            match spec.layout.as_str() {
                "" => None,
                text => Some(text.parse::<Layout>().map_err(|error| {
                    TaskError::Other(format!("data.layout = {text:?}: {error}"))
                })?),
            };
        let source = reading.open(&spec.folder, layout.as_ref())?;
        let (all, last) = (source.len(), spec.validation.saturating_add(spec.held_out));
        if all <= last {
            return Err(TaskError::Other(format!(
                "{} has {all} samples, of which {} are for validation and {} for the final metric: none is left \
                 for training; lower data.validation_samples and data.held_out_samples",
                spec.folder.display(),
                spec.validation,
                spec.held_out,
            )));
        }
        let samples = Stored::split(source, spec.validation, spec.held_out)?.read_by(reading);
        let fields = scaled(&samples)?;
        let count = fields.len() as i64;
        let own = (count * count + count) as u64;
        Ok(Self {
            samples: Arc::new(samples),
            fields,
            weight: seeded(seed, || normal(&[count, count], 0.01)).set_requires_grad(true),
            bias: Tensor::zeros([count], ON_CPU).set_requires_grad(true),
            idle: idle(spec.parameters.saturating_sub(own)),
        })
    }

    /// The means of a batch's samples, `[samples, fields]`, about 0 and about 1 in size.
    fn means(&self, batch: &Batch) -> Tensor {
        let columns = self.fields.iter().map(|of| {
            let mean = mean(&of.field, batch);
            ((mean - of.middle) * of.scale).clamp(-FAR, FAR)
        });
        Tensor::stack(&columns.collect::<Vec<_>>(), 1)
    }

    /// What the map tells less what is, squared: `[samples, fields]`.
    fn errors(&self, batch: &Batch) -> Tensor {
        let means = self.means(batch);
        // Under autocast too, errors are f32.
        let told = means.linear(&self.weight, Some(&self.bias));
        (told.to_kind(Kind::Float) - means).square()
    }

    /// The root of the mean square error over a split, in deviations.
    fn error(&self, split: Split) -> Result<f64, DataError> {
        let samples: Vec<usize> = (0..self.samples.len(split)).collect();
        let sample_bytes = batch_bytes(&self.samples.fields(), 1).max(1);
        let at_once = (EVALUATE_BYTES / sample_bytes).max(1);
        let device = self.weight.device();
        let mut sum = 0.0;
        for some in samples.chunks(at_once) {
            let batch = self.samples.batch(Asked::of(split, some))?.to(device)?;
            let errors = tch::no_grad(|| self.errors(&batch));
            sum += errors.mean(Kind::Double).double_value(&[]) * some.len() as f64;
        }
        Ok((sum / samples.len() as f64).sqrt())
    }
}

/// The middle and the deviation of the first training samples' means.
fn scaled(samples: &Stored) -> Result<Vec<Scaled>, DataError> {
    let fields = samples.fields();
    let mut means = vec![Vec::new(); fields.len()];
    // One after the other: samples may be large.
    for sample in 0..samples.len(Split::Train).min(LOOKED_AT) {
        let batch = samples.batch(Asked::of(Split::Train, &[sample]))?;
        for (field, means) in fields.iter().zip(&mut means) {
            means.push(mean(field, &batch).double_value(&[0]));
        }
    }
    let scaled = |(field, means): (Field, Vec<f64>)| {
        let count = means.len() as f64;
        let middle = means.iter().sum::<f64>() / count;
        let square = means
            .iter()
            .map(|mean| (mean - middle).powi(2))
            .sum::<f64>()
            / count;
        // Means that are all alike are scaled by their size.
        let size = match square.sqrt() {
            deviation if deviation > 1e-6 * middle.abs() => deviation,
            _ => middle.abs().max(1.0),
        };
        Scaled {
            field,
            middle,
            scale: 1.0 / size,
        }
    };
    Ok(fields.into_iter().zip(means).map(scaled).collect())
}

/// The mean of some values of each sample, `[samples]`; values that are no number, and samples without rows, count
/// as 0.
fn mean(field: &Field, batch: &Batch) -> Tensor {
    let values = &batch[&field.name];
    let (rows, row) = (values.size()[0], field.shape.iter().product::<usize>());
    let every = row.div_ceil(VALUES_MAX).max(1) as i64;
    let some = values
        .reshape([rows, row as i64])
        .slice(1, None, None, every);
    let means = some.to_kind(Kind::Float).mean_dim(1, false, Kind::Float);
    let means = means.nan_to_num(0.0, 0.0, 0.0);
    let Some(offsets) = batch.offsets(&field.name) else {
        return means;
    };
    let offsets: Vec<i64> = offsets.iter().map(|offset| *offset as i64).collect();
    let offsets = Tensor::from_slice(&offsets).to_device(means.device());
    let sums = means.cumsum(0, Kind::Double);
    let sums = Tensor::cat(
        &[sums.new_zeros([1], (Kind::Double, sums.device())), sums],
        0,
    );
    let of = |each: &Tensor| each.slice(0, 1, None, 1) - each.slice(0, None, -1, 1);
    let sums = of(&sums.index_select(0, &offsets));
    (sums / of(&offsets).clamp_min(1)).to_kind(Kind::Float)
}

/// So many parameters, in tensors of a bounded size.
fn idle(mut count: u64) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    while count > 0 {
        let some = count.min(TENSOR_PARAMETERS);
        tensors.push(Tensor::zeros([some as i64], ON_CPU).set_requires_grad(true));
        count -= some;
    }
    tensors
}

impl Task for Replay {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let own = [("weight", &self.weight), ("bias", &self.bias)];
        let own = own.map(|(name, tensor)| (name.to_owned(), tensor));
        let idle = self.idle.iter().enumerate();
        let idle = idle.map(|(number, tensor)| (format!("idle.{number}"), tensor));
        let handle = |(name, tensor): (String, &Tensor)| {
            (name, tensor.shallow_clone(), TensorKind::Parameter)
        };
        own.into_iter().chain(idle).map(handle).collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.samples) as Arc<dyn Dataset>
    }

    /// The mean square error, in deviations squared.
    fn loss(&self, batch: &Batch) -> Tensor {
        let mut loss = self.errors(batch).mean(Kind::Float);
        for tensor in &self.idle {
            // The gradient is 0, and is there.
            loss += tensor.get(0) * 0.0;
        }
        loss
    }

    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let name = match split {
            Split::Train => "training error",
            Split::Validation => tradewind_config::Replay::VALIDATION_METRIC,
            Split::HeldOut => "held-out error",
        };
        Ok(Measure {
            name: name.into(),
            unit: "σ".into(),
            value: self.error(split)?,
        })
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        let validation = self.measure(Split::Validation)?;
        Ok(Report::of(
            self.measure(Split::HeldOut)?,
            Better::Lower,
            validation,
        ))
    }
}

#[cfg(test)]
mod tests;
