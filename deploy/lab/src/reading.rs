//! What a run's folder holds, read back.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;
use tradewind_common::loss::Loss as Lost;
use tradewind_common::record::{Better, Measure, StepRecord, Validation};
use tradewind_config::Config;

use super::file::{Goal, Target};
use tradewind_folder::failure::Cause;
use tradewind_folder::lines::{Lines, Metrics};
use tradewind_folder::records::latest;

/// Part of the steps that may miss their pace before a run says nothing about time.
pub const MISSED_MAX: f64 = 0.05;

/// A run that has come to an end.
#[derive(Clone, Debug)]
pub struct Reading {
    pub config: Config,
    pub summary: RunSummary,
    /// In the order of their wall times.
    pub records: Vec<StepRecord>,
    /// Evaluations on the validation split along the way, in the order of their samples.
    pub validations: Vec<Validation>,
}

/// What is needed of `summary.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct RunSummary {
    pub status: String,
    /// Of the `tradewind` that ran it.
    pub version: Option<String>,
    pub libtorch: Option<String>,
    pub wall_seconds: f64,
    pub train_seconds: f64,
    /// The snapshot that it went on from, if it did.
    pub resumed_from: Option<u64>,
    pub samples: Samples,
    pub updates: Option<Updates>,
    pub exchanged: Option<Exchanged>,
    pub groups: Vec<Group>,
    pub delay: Option<Delay>,
    pub loss: Loss,
    pub metric: Option<Metric>,
    pub failure: Option<Cause>,
    #[serde(default)]
    pub faults: Faults,
}

/// What went wrong on the way.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Faults {
    /// Earlier versions wrote a number here, which was not what is lost.
    #[serde(default)]
    pub lost: serde_json::Value,
}

impl RunSummary {
    /// What restored shards have lost of what had been acknowledged; `None` if nothing is known to be.
    pub fn lost(&self) -> Option<Lost> {
        let lost: Option<Lost> = serde_json::from_value(self.faults.lost.clone()).ok()?;
        lost.filter(|lost| !lost.is_none())
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Samples {
    pub applied: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Updates {
    pub dropped: u64,
    pub applied: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Exchanged {
    pub pushed_bytes: u64,
    pub pulled_bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    pub ranks: u32,
    pub clocks: u64,
    #[serde(default)]
    pub data_seconds: f64,
    pub compute_seconds: f64,
    pub reduce_seconds: f64,
    pub exposed_seconds: f64,
    pub wait_seconds: f64,
    pub lag_max: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Delay {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Loss {
    pub r#final: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Metric {
    pub name: String,
    pub unit: String,
    pub value: f64,
    /// Which way it is better, if that was told.
    pub better: Option<Better>,
    pub validation: Measure,
}

/// Seconds that a rank spent on an average, by what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    pub reading: f64,
    pub computing: f64,
    pub reducing: f64,
    /// Standing still for an exchange, without `waiting`.
    pub exchanging: f64,
    /// Held back by the consistency policy.
    pub waiting: f64,
}

impl Reading {
    /// Reads a folder.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn of(folder: &Path) -> anyhow::Result<Self> {
        let text = read(folder, "config.toml")?;
        let file = folder.join("config.toml").display().to_string();
        let config = Config::parse(&text, &file, folder, &[])?;
        let summary = summary(folder)?;
        let records = lines(Metrics::new(folder.join("metrics.jsonl")))?;
        let mut records = latest(records);
        records.sort_by(|a, b| a.wall.total_cmp(&b.wall));
        let mut validations = lines(Lines::new(folder.join("validation.jsonl")))?;
        validations.sort_by_key(|validation: &Validation| validation.samples);
        Ok(Self {
            config,
            summary,
            records,
            validations,
        })
    }

    /// When its first step began, seconds since the Unix epoch.
    pub fn begun(&self) -> f64 {
        self.records
            .iter()
            .map(StepRecord::begun)
            .fold(f64::INFINITY, f64::min)
    }

    /// Why it cannot have reached a target: another metric was measured, as of runs that were made by
    /// hand.
    pub fn other_metric(&self, target: &Target) -> Option<String> {
        target.is_not(&self.validations.first()?.measure.name)
    }

    /// The evaluations of different parameters: an update that passes several multiples at once leaves the
    /// same for each.
    pub fn evaluations(&self) -> Vec<&Validation> {
        let mut own: Vec<&Validation> = self.validations.iter().collect();
        own.dedup_by_key(|v| v.samples_applied);
        own
    }

    /// The first of two evaluations in a row that reach the goal.
    pub fn reached(&self, goal: Goal) -> Option<&Validation> {
        let own = self.evaluations();
        let met = |v: &Validation| goal.met(v.measure.value);
        let first = own.windows(2).find(|pair| met(pair[0]) && met(pair[1]));
        first.map(|pair| pair[0])
    }

    /// Seconds of an average rank. What is exposed of an exchange includes what it waited.
    pub fn times(&self) -> Times {
        let groups = &self.summary.groups;
        let ranks: f64 = groups.iter().map(|g| f64::from(g.ranks)).sum();
        let mean = |of: fn(&Group) -> f64| {
            groups
                .iter()
                .map(|g| of(g) * f64::from(g.ranks))
                .sum::<f64>()
                / ranks
        };
        Times {
            reading: mean(|g| g.data_seconds),
            computing: mean(|g| g.compute_seconds),
            reducing: mean(|g| g.reduce_seconds),
            exchanging: mean(|g| (g.exposed_seconds - g.wait_seconds).max(0.0)),
            waiting: mean(|g| g.wait_seconds.min(g.exposed_seconds)),
        }
    }

    /// Part of the steps in which a rank's computation took longer than its pace; 0 without one. Under
    /// `sync` whoever is late holds up all groups: there it is the part of everybody's steps.
    pub fn missed(&self) -> f64 {
        let (late, steps) = match self.config.train.consistency.waits_for_all() {
            true => {
                let mut clocks: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
                for r in &self.records {
                    let (late, steps) = clocks.entry(r.clock).or_default();
                    *late = r.missed_pace.max(*late);
                    *steps = r.local_steps.max(*steps);
                }
                let all = clocks.into_values();
                all.fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1))
            }
            false => {
                let late = self.records.iter().map(|r| r.missed_pace).sum::<u64>();
                (late, self.steps())
            }
        };
        late as f64 / steps.max(1) as f64
    }

    /// Steps of all groups: of several each between two exchanges, where they are local.
    fn steps(&self) -> u64 {
        self.records.iter().map(|r| r.local_steps).sum()
    }

    /// Steps of an average exchange.
    pub fn local_steps(&self) -> Option<f64> {
        let exchanges: u64 = self.records.iter().map(|r| r.exchanges).sum();
        (exchanges > 0).then(|| self.steps() as f64 / exchanges as f64)
    }

    /// Bytes of values in all exchanges, both ways.
    pub fn bytes(&self) -> Option<u64> {
        let exchanged = self.summary.exchanged.as_ref()?;
        Some(exchanged.pushed_bytes + exchanged.pulled_bytes)
    }

    /// Updates applied, as the last record tells.
    pub fn updates(&self) -> u64 {
        self.records.iter().map(|r| r.updates).max().unwrap_or(0)
    }
}

/// A run's summary alone.
///
/// # Errors
/// It is missing or damaged.
pub fn summary(folder: &Path) -> anyhow::Result<RunSummary> {
    serde_json::from_str(&read(folder, "summary.json")?)
        .with_context(|| format!("{} is damaged", folder.join("summary.json").display()))
}

fn read(folder: &Path, name: &str) -> anyhow::Result<String> {
    let path = folder.join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// All lines of a file; a damaged one is an error, because what it said is lost.
pub fn lines<T: serde::de::DeserializeOwned>(mut lines: Lines<T>) -> anyhow::Result<Vec<T>> {
    let records = lines.fresh();
    let path = lines.path().display().to_string();
    let records = records.with_context(|| format!("cannot read {path}"))?;
    match lines.complaint() {
        Some(complaint) => bail!("{complaint}"),
        None => Ok(records),
    }
}
