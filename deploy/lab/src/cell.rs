//! Whether a cell has been run, and what became of it: `cell.json` in its folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tradewind_common::exit::Exit;
use tradewind_config::Config;

use super::machine::Host;
use super::matrix::Cell;
use super::reading::{self, MISSED_MAX, Reading};
use tradewind_folder::parts::Parts;
use tradewind_process::whole;

/// Status of a run that has trained to its end.
const COMPLETED: &str = "completed";

/// Files that a cell's results are read from.
const FILES: &[&str] = &["config.toml", "summary.json", METRICS];

/// One of them, which may have parts.
const METRICS: &str = "metrics.jsonl";

/// One more, of runs that were evaluated on the way.
const VALIDATION: &str = "validation.jsonl";

/// Written when a cell has come to its end; with it the cell is finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    pub outcome: CellOutcome,
    /// Where it ran, if whoever recorded it knew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// BLAKE3 of each file that results are read from, as hex.
    files: BTreeMap<String, String>,
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CellOutcome {
    /// It trained to its end.
    Completed,
    /// Training diverged; another try would end the same way.
    Failed(String),
    /// It trained to its end, but what it says about time is worth nothing.
    Void(String),
}

/// The digest by which a trial is known elsewhere: of [`Config::identity`], as hex.
pub fn digest(cell: &Cell) -> String {
    short(cell.config.identity())
}

fn short(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

/// The digest of what decides a run's numbers. Under `sync`, when nobody is left behind, how late anyone
/// is changes the clock alone.
pub fn numbers(cell: &Cell) -> String {
    let config = &cell.config;
    let policies = &config.policies;
    let all_wait = config.train.consistency.waits_for_all()
        && policies.backup_groups == 0
        && policies.merge.is_none()
        && config.stragglers.dying.is_none()
        && config.local.is_none();
    if !all_wait {
        return digest(cell);
    }
    let lines = config.identity().lines();
    let of_time = ["run.name ", "stragglers.", "pace."];
    let own = lines.filter(|line| !of_time.iter().any(|begin| line.starts_with(begin)));
    let own: Vec<&str> = own.collect();
    short(&own.join("\n"))
}

/// What a run that has just ended comes to; `host` is where, if that is known.
///
/// # Errors
/// It failed in a way that another try may not, or what it left cannot be read.
pub fn record(folder: &Path, host: Option<Host>) -> anyhow::Result<CellRecord> {
    let reading = Reading::of(folder)?;
    let outcome = outcome(&reading)?;
    let evaluated = (!reading.validations.is_empty()).then_some(&VALIDATION);
    let parts = Parts::of(&folder.join(METRICS))?;
    let parts = parts.paths().into_iter().filter_map(|part| {
        let name = part.file_name()?.to_str()?;
        Some(name.to_owned())
    });
    let files = FILES.iter().chain(evaluated).map(|name| (*name).to_owned());
    let files = files.chain(parts).map(|name| {
        let digest = file_digest(&folder.join(&name))?;
        Ok((name, digest))
    });
    let record = CellRecord {
        outcome,
        host,
        files: files.collect::<anyhow::Result<_>>()?,
    };
    whole::write(&path(folder), serde_json::to_string_pretty(&record)?)?;
    Ok(record)
}

/// What a run came to.
///
/// # Errors
/// Why nothing came of it: another try may come further.
pub fn outcome(reading: &Reading) -> anyhow::Result<CellOutcome> {
    let summary = &reading.summary;
    if summary.status != COMPLETED {
        return match &summary.failure {
            Some(failure) if failure.exit() == Some(Exit::Diverged) => Ok(CellOutcome::Failed(
                "training diverged; its log says how".to_owned(),
            )),
            Some(failure) if failure.exit() == Some(Exit::Lost) => Err(anyhow::anyhow!(
                "it stopped because updates were lost: {}",
                failure.reason
            )),
            Some(failure) => Err(anyhow::anyhow!("{}: {}", failure.role, failure.reason)),
            None => Err(anyhow::anyhow!("it was {}", summary.status)),
        };
    }
    let (samples, every) = (
        reading.config.train.samples,
        reading.config.evaluation_samples,
    );
    // A run ends with the block that is the first to have them all; where gradients are dropped others
    // may not come to the last evaluation.
    let drops = reading.config.policies.staleness.capabilities().drops();
    let wanted = samples.checked_div(every);
    let wanted = wanted.map(|wanted| wanted - u64::from(drops).min(wanted));
    let found = reading.validations.len();
    if let Some(wanted) = wanted.filter(|wanted| (found as u64) < *wanted) {
        anyhow::bail!("{VALIDATION} has {found} of {wanted} evaluations");
    }
    if let Some(snapshot) = summary.resumed_from {
        return Ok(CellOutcome::Void(format!(
            "it went on from snapshot {snapshot} after a pause, which its times have in them"
        )));
    }
    let missed = reading.missed();
    if missed > MISSED_MAX {
        return Ok(CellOutcome::Void(format!(
            "{:.0} % of its steps took longer than pace.step_seconds",
            100.0 * missed
        )));
    }
    Ok(CellOutcome::Completed)
}

/// The record of a cell that is finished: it was run with this configuration, and every file is as
/// it was then. Otherwise why it has to be run.
pub fn finished(cell: &Cell, folder: &Path) -> Result<CellRecord, Unfinished> {
    let Ok(text) = std::fs::read_to_string(path(folder)) else {
        return Err(Unfinished::NotRun);
    };
    let record: CellRecord = serde_json::from_str(&text)
        .map_err(|_| Unfinished::Damaged("cell.json is no record of a cell".to_owned()))?;
    for (name, wanted) in &record.files {
        match file_digest(&folder.join(name)) {
            Ok(found) if found == *wanted => {}
            Ok(_) => return Err(Unfinished::Damaged(format!("{name} has been changed"))),
            Err(_) => return Err(Unfinished::Damaged(format!("{name} cannot be read"))),
        }
    }
    if !is_of(cell, folder) {
        return Err(Unfinished::OtherConfiguration);
    }
    match record.outcome {
        CellOutcome::Void(_) => Err(Unfinished::Void(Box::new(record))),
        CellOutcome::Completed | CellOutcome::Failed(_) => Ok(record),
    }
}

/// As [`finished`], but a cell that has come to its end while nobody looked gets its record now.
pub fn gather(cell: &Cell, folder: &Path) -> Result<CellRecord, Unfinished> {
    match finished(cell, folder) {
        Err(Unfinished::NotRun) if is_over(folder) && is_of(cell, folder) => {}
        found => return found,
    }
    match record(folder, None) {
        Ok(_) => finished(cell, folder),
        // It was cut short, or failed in a way that another try may not.
        Err(_) if reading::summary(folder).is_ok_and(|told| told.status != COMPLETED) => {
            Err(Unfinished::NotRun)
        }
        Err(error) => Err(Unfinished::Damaged(format!("{error:#}"))),
    }
}

/// Whether the run in this folder has come to its end, however.
pub fn is_over(folder: &Path) -> bool {
    folder.join("summary.json").exists()
}

/// Whether the run in this folder has a cell's configuration. Keys that it was written without, by an
/// earlier version, are at their defaults.
pub fn is_of(cell: &Cell, folder: &Path) -> bool {
    let text = std::fs::read_to_string(folder.join("config.toml"));
    let config = text.map(|text| Config::parse(&text, "config.toml", folder, &[]));
    matches!(config, Ok(Ok(config)) if config.resolved() == cell.config.resolved())
}

/// Why a cell has to be run.
#[derive(Clone, Debug, PartialEq)]
pub enum Unfinished {
    NotRun,
    OtherConfiguration,
    /// Its times are worth nothing, which they may be this time.
    Void(Box<CellRecord>),
    Damaged(String),
}

fn path(folder: &Path) -> PathBuf {
    folder.join("cell.json")
}

fn file_digest(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(blake3::hash(&bytes).to_string())
}
