//! What is trained, and on what: sections `model` and `data`. A task reads the keys that are its
//! own; those of other tasks need not be given.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{Value, Values};

/// What is trained, and on what.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// `forecast`: the next map of a series.
    Forecast(Forecast),
    /// `mnist`: which digit an image shows.
    Mnist(Mnist),
    /// `resnet50`: kinds of synthetic images.
    Resnet(Resnet),
}

/// A convolutional network on a series of maps.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Channels of hidden layers.
    pub channels: i64,
    /// Residual convolutions between the first layer and the last.
    pub depth: i64,
    /// It sees and tells departures from the mean of the history.
    pub anomalies: bool,
    /// NetCDF-4 or HDF5 files.
    pub files: Vec<PathBuf>,
    /// A variable in each of them.
    pub variable: String,
    /// Time steps that the forecast sees.
    pub history: usize,
    /// Time indices for validation.
    pub validation: Range<usize>,
    /// Time indices for the final metric.
    pub held_out: Range<usize>,
    /// Label of time index 0.
    pub time_origin: i64,
    /// What a time step is called.
    pub step_name: String,
    /// Largest variable held in memory, bytes.
    pub memory_bytes: u64,
}

/// A small convolutional network on handwritten digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mnist {
    /// Where the four IDX files are.
    pub folder: PathBuf,
}

/// A residual network on images that follow from the seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resnet {
    /// Bottleneck blocks of each stage.
    pub blocks: [u32; 4],
    /// Channels of the first layer.
    pub width: u32,
    /// Height and width of the images, pixels.
    pub image_size: u32,
    /// Kinds of images.
    pub classes: u32,
    /// Images for training.
    pub samples: u32,
}

impl Task {
    /// Name of what the task measures on its validation split, which is what a target is of.
    pub fn validation_metric(&self) -> &'static str {
        match self {
            Self::Forecast(_) => Forecast::VALIDATION_METRIC,
            Self::Mnist(_) => Mnist::VALIDATION_METRIC,
            Self::Resnet(_) => Resnet::VALIDATION_METRIC,
        }
    }
}

impl Resnet {
    /// Part of the images whose kind is not recognized, %.
    pub const VALIDATION_METRIC: &str = "validation error";
}

impl Mnist {
    /// In nats.
    pub const VALIDATION_METRIC: &str = "validation cross-entropy";

    /// `data.folder` as it was found.
    pub(super) fn folder_value(&self) -> Value {
        Value::Text(self.folder.to_string_lossy().into_owned())
    }
}

impl Forecast {
    /// In the unit of the variable.
    pub const VALIDATION_METRIC: &str = "validation RMSE";

    /// `data.files` as they were found.
    pub(super) fn files_value(&self) -> Value {
        let files = self.files.iter();
        Value::Texts(
            files
                .map(|file| file.to_string_lossy().into_owned())
                .collect(),
        )
    }
}

/// What the configuration says of it; `wrong` hears what does not fit together. Data files are
/// relative to `folder`.
pub(super) fn read(
    values: &Values<'_>,
    folder: &Path,
    wrong: &mut dyn FnMut(&str, String),
) -> Task {
    match values.text("model.name") {
        "mnist" => Task::Mnist(Mnist {
            folder: folder.join(values.text("data.folder")),
        }),
        "resnet50" => Task::Resnet(resnet(values)),
        _ => Task::Forecast(forecast(values, folder, wrong)),
    }
}

fn resnet(values: &Values<'_>) -> Resnet {
    let small = |key| values.int(key) as u32;
    let blocks = values.ints("model.blocks");
    Resnet {
        blocks: std::array::from_fn(|stage| blocks[stage] as u32),
        width: small("model.width"),
        image_size: small("data.image_size"),
        classes: small("data.classes"),
        samples: small("data.samples"),
    }
}

fn forecast(values: &Values<'_>, folder: &Path, wrong: &mut dyn FnMut(&str, String)) -> Forecast {
    let validation = values.range("data.validation");
    let held_out = values.range("data.held_out");
    for (key, range) in [
        ("data.validation", &validation),
        ("data.held_out", &held_out),
    ] {
        if range.is_empty() {
            wrong(
                key,
                "is an empty range; give [begin, end) with begin < end".into(),
            );
        }
    }
    if held_out.start < validation.end {
        wrong(
            "data.held_out",
            "begins before data.validation has ended".into(),
        );
    }
    let files = values.texts("data.files");
    Forecast {
        channels: values.int("model.channels"),
        depth: values.int("model.depth"),
        anomalies: values.flag("model.anomalies"),
        files: files.iter().map(|file| folder.join(file)).collect(),
        variable: values.text("data.variable").to_owned(),
        history: values.int("data.history") as usize,
        validation,
        held_out,
        time_origin: values.int("data.time_origin"),
        step_name: values.text("data.step_name").to_owned(),
        memory_bytes: values.int("data.memory_bytes") as u64,
    }
}
