//! Models: a [`Task`] is a model with its data, its loss and its metric. One file a task.
//!
//! What can be said of a task, its name and its keys, is a struct that [`task!`] defines; [`TaskKind`] builds
//! the task from it. A program lists its own tasks by [`TaskEntry::of`], as the built-in ones are listed in
//! `registry`.

pub mod baseline;
pub mod boxes;
pub mod cosmoflow;
pub mod deepcam;
mod detection;
pub mod forecast;
pub mod hep;
mod layer;
mod logistic;
pub mod mnist;
mod norm;
mod random;
mod registry;
pub mod replay;
pub mod resnet;
mod roc;
#[cfg(test)]
mod trained;
mod weather;

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::Tensor;
pub use tradewind_common::layout::TensorKind;
pub use tradewind_common::record::{Better, Curve, Measure, Part, Scatter};
pub use tradewind_config::{TaskSettings, Wrong, task};

pub use crate::data::Reading;
use crate::data::{Batch, DataError, Dataset, Split};
pub use forecast::ForecastSpec;
pub use mnist::MnistSpec;
pub use random::{seed_step, seeded};
pub use registry::{Registry, TaskEntry};
pub use replay::ReplaySpec;
pub use resnet::ResnetSpec;

/// The settings of a task, from which it is built.
pub trait TaskKind: TaskSettings {
    /// Opens the data and makes the model, with initial values that follow from `seed` alone
    /// ([`seeded`]). Files of samples are opened by `reading`.
    ///
    /// # Errors
    /// A setting out of range, or data that cannot be used.
    fn build(&self, seed: u64, reading: &Reading) -> Result<Box<dyn Task>, TaskError>;
}

/// What is trained: a model, its samples, its loss and its metric.
pub trait Task: Send {
    /// The model's tensors in the order in which it made them, under its own names. They are
    /// handles to the model's tensors, not copies: their storage may be exchanged (`set_data`)
    /// or overwritten, and the model computes with what it finds.
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)>;

    /// The samples.
    fn dataset(&self) -> Arc<dyn Dataset>;

    /// Number of training samples.
    fn samples(&self) -> usize {
        self.dataset().len(Split::Train)
    }

    /// The loss in training mode: an f32 scalar with gradient, the mean over the batch's samples,
    /// which is where the model is. It may be called under autocast. What it draws from libtorch's generator, such
    /// as dropout's masks, follows from the run's seed, the group, the rank and the step.
    fn loss(&self, batch: &Batch) -> Tensor;

    /// What settings are compared by, on one split: less is better. In evaluation mode, without
    /// gradients, computed where the model is.
    ///
    /// # Errors
    /// Data that cannot be read.
    fn measure(&self, split: Split) -> Result<Measure, TaskError>;

    /// The metric on the held-out split, beside those of simple forecasts, the [`measure`] of the
    /// validation split, and one example to look at.
    ///
    /// [`measure`]: Self::measure
    ///
    /// # Errors
    /// Data that cannot be read.
    fn evaluate(&self) -> Result<Report, TaskError>;

    /// What a reader of the saved parameters must know besides their names: keys and values for
    /// the file's metadata.
    fn notes(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// What [`Task::evaluate`] found; the fields are those of
/// [`Evaluation`](tradewind_common::record::Evaluation).
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The metric on the held-out split.
    pub metric: Measure,
    /// Which way it is better.
    pub better: Better,
    /// [`Task::measure`] on the validation split.
    pub validation: Measure,
    /// The metric of simple forecasts on the held-out split.
    pub baselines: Vec<Measure>,
    /// The same for each part of the held-out split.
    pub parts: Vec<Part>,
    /// Of the model and then of each simple forecast on the held-out split, where two classes are told apart.
    pub curves: Vec<Curve>,
    /// What is told of held-out samples beside what is true, where numbers are told.
    pub scatters: Vec<Scatter>,
    /// One held-out sample, where it is a map.
    pub picture: Option<Picture>,
}

impl Report {
    /// Without anything to compare the metric with, and without parts, curves, scatters and picture.
    pub fn of(metric: Measure, better: Better, validation: Measure) -> Self {
        Self {
            metric,
            better,
            validation,
            baselines: Vec::new(),
            parts: Vec::new(),
            curves: Vec::new(),
            scatters: Vec::new(),
            picture: None,
        }
    }
}

/// Truth and forecast of one sample. Maps are row by row, in `unit`.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Such as `A1B 2099`.
    pub label: String,
    /// Such as `K`.
    pub unit: String,
    /// Name of what is mapped, in the data.
    pub variable: String,
    /// `[latitude, longitude]`.
    pub truth: Vec<f32>,
    /// `[latitude, longitude]`.
    pub forecast: Vec<f32>,
    /// Degrees north of each row, or its number.
    pub latitude: Vec<f32>,
    /// Degrees east of each column, or its number.
    pub longitude: Vec<f32>,
    /// Rectangles that are drawn on truth and on the forecast, where something is told of them.
    pub outlines: [Vec<Outline>; 2],
}

/// A rectangle on a map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outline {
    /// Its edges in the unit of the map's latitudes.
    pub latitude: [f32; 2],
    /// Its edges in the unit of the map's longitudes.
    pub longitude: [f32; 2],
    /// What kind of thing is there: each has a colour.
    pub class: u8,
}

/// Why a task cannot be built or evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TaskError {
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A setting of the model.
    #[error("model setting {key} = {value}: {reason}")]
    Setting {
        /// Its name.
        key: &'static str,
        /// Its value.
        value: i64,
        /// What it must satisfy.
        reason: &'static str,
    },
    /// What else is wrong with a task of somebody's own, in its words.
    #[error("{0}")]
    Other(String),
}

/// Most bytes of training samples that a forecast without the network is fitted to, where it needs many: at the rate of a
/// slow disk a minute.
const SIMPLE_BYTES: u64 = 8 << 30;

/// A number with its name and its unit, which is empty where it has none.
fn measured(name: &str, unit: &str, value: f64) -> Measure {
    Measure {
        name: name.into(),
        unit: unit.into(),
        value,
    }
}
