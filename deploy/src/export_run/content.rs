//! What of a run is exported.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use tradewind_common::record::StepRecord;
use tradewind_common::run_files;
use tradewind_folder::found::FoundRun;
use tradewind_folder::input::BadInput;
use tradewind_folder::lines::Metrics;
use tradewind_folder::records::{latest, measured, read_evaluation};
use tradewind_lab::keys_of;
use tradewind_launch::run::secret;
use tradewind_process::whole;
use tradewind_report::curves;

/// Where a run's folder has the name by which the run is found again where it was exported.
const ID: &str = "export-id";

const MODEL: &str = "model.safetensors";

/// Files that are exported, where they are there.
const FILES: &[&str] = &[
    run_files::CONFIG,
    run_files::SUMMARY,
    run_files::EVALUATION,
    "validation.jsonl",
    "loss.png",
    "loss.svg",
    "forecast.png",
    "predicted.png",
    "roc.png",
    MODEL,
];

/// Results that are exported: their names, and where they are in `summary.json`.
const RESULTS: &[(&str, &str)] = &[
    ("summary/loss", "/loss/final"),
    ("summary/train_seconds", "/train_seconds"),
    ("summary/wall_seconds", "/wall_seconds"),
    ("summary/samples", "/samples/applied"),
    ("summary/updates", "/updates/applied"),
    ("summary/updates_dropped", "/updates/dropped"),
    ("summary/delay_p50", "/delay/p50"),
    ("summary/delay_max", "/delay/max"),
    ("summary/lost_samples", "/faults/lost/samples"),
    ("summary/lost_updates", "/faults/lost/updates"),
];

/// A run as it is handed on.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) about: About,
    /// Name, samples that were applied, seconds since the Unix epoch, and value.
    pub(super) points: Vec<(String, u64, f64, f64)>,
}

/// All but the curves.
#[derive(Debug, Serialize)]
pub(super) struct About {
    id: String,
    pub(super) name: String,
    experiment: String,
    /// `completed`, `failed`, `interrupted`; `abandoned` if it wrote no summary.
    state: String,
    /// Seconds since the Unix epoch.
    begun: f64,
    ended: f64,
    /// Every key of the configuration, with its value as TOML.
    parameters: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
    /// Files and their bytes.
    files: Vec<(PathBuf, u64)>,
    /// How many there are, so that none is missed.
    points: usize,
}

impl Content {
    pub(super) fn of(run: &FoundRun, experiment: &str, with_model: bool) -> anyhow::Result<Self> {
        let folder = fs::canonicalize(&run.path)?;
        let records = read(Metrics::new(folder.join(run_files::METRICS)))?;
        let records = latest(records);
        let first = records.iter().map(|record| record.begun()).reduce(f64::min);
        let last = records.iter().map(|record| record.wall).reduce(f64::max);
        let (Some(begun), Some(ended)) = (first, last) else {
            let told = format!("{} has trained nothing yet", run.path.display());
            return Err(BadInput(told).into());
        };
        let applied = records.iter().map(|record| record.samples_applied).max();
        let at_the_end = (applied.unwrap_or(0), ended);
        let summary = summary(&folder)?;
        let budget = run.config.train.samples;
        let mut points = curves(&records, budget);
        let mut tags = tags(run, &folder, &summary);
        for (name, value) in results(&summary) {
            points.push((name, at_the_end.0, at_the_end.1, value));
        }
        if folder.join(run_files::EVALUATION).is_file() {
            let evaluation = read_evaluation(&folder)?;
            for it in measured(&folder, &evaluation, (budget, ended))? {
                tags.insert(
                    format!("tradewind.unit.{}", it.measure.name),
                    it.measure.unit,
                );
                points.push((it.measure.name, it.samples, it.wall, it.measure.value));
            }
            for it in evaluation.baselines {
                let name = format!("baseline/{}", it.name);
                points.push((name, at_the_end.0, at_the_end.1, it.value));
            }
        }
        tags.retain(|_, value| !value.is_empty());
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let about = About {
            id: id(&folder)?,
            name: name.into_owned(),
            experiment: experiment.to_owned(),
            state: tags["tradewind.state"].clone(),
            begun,
            ended,
            parameters: keys_of(run.config.resolved()),
            tags,
            files: files(&folder, with_model),
            points: points.len(),
        };
        Ok(Self { about, points })
    }
}

/// All records; a damaged line is an error, because what it said is lost.
fn read(mut metrics: Metrics) -> anyhow::Result<Vec<StepRecord>> {
    let path = metrics.path().display().to_string();
    let records = metrics
        .fresh()
        .with_context(|| format!("cannot read {path}"))?;
    match metrics.complaint() {
        Some(complaint) => Err(anyhow::anyhow!(complaint)),
        None => Ok(records),
    }
}

/// Null of a run that wrote none: its launcher was killed.
fn summary(folder: &Path) -> anyhow::Result<Value> {
    let path = folder.join(run_files::SUMMARY);
    match fs::read_to_string(&path) {
        Ok(text) => {
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Those of all groups under their plain names, those of a group under its own.
fn curves(records: &[StepRecord], budget: u64) -> Vec<(String, u64, f64, f64)> {
    let points = curves::points(records, budget).into_iter();
    let named = points.flat_map(|(group, point)| {
        let head = group.map_or(String::new(), |group| format!("group-{group}/"));
        let values = point.values.into_iter();
        values.map(move |(name, value)| (format!("{head}{name}"), point.samples, point.wall, value))
    });
    named.collect()
}

fn results(summary: &Value) -> impl Iterator<Item = (String, f64)> {
    let results = RESULTS.iter();
    results
        .filter_map(|(name, place)| Some(((*name).to_owned(), summary.pointer(place)?.as_f64()?)))
}

fn tags(run: &FoundRun, folder: &Path, summary: &Value) -> BTreeMap<String, String> {
    let told = |key: &str| summary[key].as_str().unwrap_or_default().to_owned();
    let state = match summary["status"].as_str() {
        Some(state) => state.to_owned(),
        None => "abandoned".to_owned(),
    };
    let better = summary["metric"]["better"].as_str().unwrap_or_default();
    let tags = [
        ("state", state),
        ("version", told("version")),
        ("libtorch", told("libtorch")),
        ("params_digest", told("params_digest")),
        ("run", run.config.name.to_string()),
        ("folder", folder.display().to_string()),
        ("better", better.to_owned()),
    ];
    let tags = tags.into_iter();
    tags.map(|(key, value)| (format!("tradewind.{key}"), value))
        .collect()
}

fn files(folder: &Path, with_model: bool) -> Vec<(PathBuf, u64)> {
    let names = FILES.iter().filter(|name| with_model || **name != MODEL);
    let files = names.filter_map(|name| {
        let path = folder.join(name);
        let bytes = fs::metadata(&path).ok().filter(|is| is.is_file())?.len();
        Some((path, bytes))
    });
    files.collect()
}

/// The name by which the run is found again: the same however often it is resumed, and wherever its folder is moved.
fn id(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join(ID);
    match fs::read_to_string(&path) {
        Ok(id) => Ok(id.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = secret()?;
            whole::write(&path, &id)?;
            Ok(id)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
