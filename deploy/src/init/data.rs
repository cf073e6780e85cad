//! What data are for: which model takes them, and with which settings.

use std::path::{Path, PathBuf};

use anyhow::bail;
use tradewind_config::{TaskDefinition, Value};
use tradewind_data::hdf5::extents;
use tradewind_data::{Field, open};
use tradewind_folder::input::BadInput;

/// One of the four files of MNIST.
const DIGITS: &str = "train-images-idx3-ubyte";

/// What files of series are called.
const SERIES: &[&str] = &["nc", "nc4"];

/// Each time index in this part of a series is for the final metric, and as many before it for validation.
const HELD_OUT: usize = 6;

/// How often a series is trained on, as in the demo.
const EPOCHS: usize = 20;

/// Time steps that a forecast sees, the default of `data.history`.
const HISTORY: usize = 8;

/// What data are for.
#[derive(Debug)]
pub(super) struct Found {
    /// The model.
    pub(super) model: &'static str,
    /// Keys that follow.
    pub(super) values: Vec<(&'static str, Value)>,
}

impl Found {
    /// Looks at what is there.
    pub(super) fn look(data: &Path) -> anyhow::Result<Self> {
        if data.join(DIGITS).exists() {
            return Ok(Self::folder("mnist", data));
        }
        let train = data.join("train");
        if train.is_dir() {
            let model = model_for(&fields(&train)?);
            let Some(model) = model else {
                bail!(BadInput(format!(
                    "{} has samples for which no built-in model is ({}); --model says which to take, --script takes a script of your own",
                    data.display(),
                    Field::listed(&fields(&train)?)
                )));
            };
            return Ok(Self::folder(model, data));
        }
        let series = Self::series(data);
        if !series.values.is_empty() {
            return Ok(series);
        }
        fields(data)?;
        Ok(Self::folder("replay", data))
    }

    /// For a model that was named.
    pub(super) fn for_model(task: &'static TaskDefinition, data: &Path) -> anyhow::Result<Self> {
        let takes = |key: &str| task.keys.iter().any(|own| own.name == key);
        let found = match (takes("data.folder"), takes("data.files")) {
            (true, _) => Self::folder(task.name, data),
            (false, true) => Self::series(data),
            (false, false) => bail!(BadInput(format!(
                "{} takes no data: leave --data away",
                task.name
            ))),
        };
        if found.values.is_empty() {
            bail!(BadInput(format!(
                "there is no NetCDF-4 file (.{}) with a variable of time, rows and columns at {}",
                SERIES.join(", ."),
                data.display()
            )));
        }
        Ok(found)
    }

    fn folder(model: &'static str, data: &Path) -> Self {
        let path = Value::Text(data.display().to_string());
        Self {
            model,
            values: vec![("data.folder", path)],
        }
    }

    /// A series of maps in NetCDF files; without values if there is none.
    fn series(data: &Path) -> Self {
        let found = files(data).and_then(|files| Some((variable(&files)?, files)));
        let values = found.map(|((variable, length), files)| {
            let part = (length / HELD_OUT).max(1);
            let ends = [length - 2 * part, length - part, length];
            let samples = EPOCHS * files.len() * ends[0].saturating_sub(HISTORY).max(1);
            let ends = ends.map(|index| index as i64);
            let files = files.iter().map(|path| path.display().to_string());
            vec![
                ("train.samples", Value::Int(samples as i64)),
                ("schedule.warmup_samples", Value::Int(samples as i64 / 10)),
                ("data.files", Value::Texts(files.collect())),
                ("data.variable", Value::Text(variable)),
                ("data.validation", Value::Ints(ends[..2].to_vec())),
                ("data.held_out", Value::Ints(ends[1..].to_vec())),
            ]
        });
        Self {
            model: "forecast",
            values: values.unwrap_or_default(),
        }
    }
}

/// What samples are made of.
fn fields(path: &Path) -> anyhow::Result<Vec<Field>> {
    let source = open(path, None, 1, None).map_err(|error| BadInput(error.to_string()))?;
    Ok(source.fields().to_vec())
}

/// The model whose samples have such fields.
fn model_for(fields: &[Field]) -> Option<&'static str> {
    let has = |name: &str| fields.iter().any(|field| field.name == name);
    match () {
        () if has("volume") && has("target") => Some("cosmoflow"),
        () if has("image") && has("mask") => Some("deepcam"),
        () if (has("data") || has("image")) && has("label") => Some("hep"),
        () => None,
    }
}

/// The NetCDF files of a folder, in the order of their names, or the one that was named.
fn files(data: &Path) -> Option<Vec<PathBuf>> {
    let is_series = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| SERIES.contains(&ending))
    };
    let mut files = match std::fs::read_dir(data) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![data.to_owned()],
    };
    files.retain(is_series);
    files.sort();
    (!files.is_empty()).then_some(files)
}

/// The first variable of time, rows and columns that all files have on one grid, and how many time steps the
/// shortest has.
fn variable(files: &[PathBuf]) -> Option<(String, usize)> {
    let all: Option<Vec<_>> = files.iter().map(|file| extents(file).ok()).collect();
    let all = all?;
    let (first, others) = all.split_first()?;
    let in_all = |name: &str, grid: &[usize], length: usize| {
        let mut lengths = others.iter().map(|file| {
            let same = file.iter().find(|(other, _)| other == name);
            same.filter(|(_, of)| of.len() == 3 && of[1..] == *grid)
                .map(|(_, of)| of[0])
        });
        lengths.try_fold(length, |least, length| Some(least.min(length?)))
    };
    first.iter().find_map(|(name, of)| {
        let [length, rows, columns] = of[..] else {
            return None;
        };
        let length = in_all(name, &[rows, columns], length)?;
        (length > 2 && rows > 1 && columns > 1).then(|| (name.clone(), length))
    })
}
