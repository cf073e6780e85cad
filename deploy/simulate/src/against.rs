//! Predicted beside measured: of one run, or of each row of an experiment's results.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value as Json;
use tradewind_config::Config;
use tradewind_process::log::say;

use crate::plan::Plan;
use crate::stored::Experiment;

/// A run, and what the simulator makes of it.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) name: String,
    /// The setting that runs with other seeds have, too.
    pub(crate) setting: String,
    pub(crate) predicted: Numbers,
    pub(crate) measured: Numbers,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Numbers {
    pub(crate) seconds: f64,
    pub(crate) updates: f64,
    pub(crate) delay_p50: f64,
    pub(crate) lag_max: f64,
}

impl Compared {
    /// By which part the predicted time is longer.
    pub(crate) fn error(&self) -> f64 {
        self.predicted.seconds / self.measured.seconds - 1.0
    }
}

/// Compares and prints.
pub(crate) fn compare(
    plan: &Plan,
    measured: &Path,
    experiment: Option<&Path>,
) -> anyhow::Result<()> {
    let rows = match experiment {
        Some(experiment) => stored(plan, measured, experiment, |_| true)?,
        None if measured.is_dir() => vec![of_run(plan, measured)?],
        None => bail!(
            "{} is no folder of a run; of the results of an experiment --experiment FILE names the file that they are of",
            measured.display()
        ),
    };
    say("predicted s  measured s   error  updates (measured)  median delay  largest lag  run");
    for row in &rows {
        let Compared {
            predicted,
            measured,
            ..
        } = row;
        say(format_args!(
            "{:11.2} {:11.2} {:+6.1} %  {:8} ({:8})  {:5} ({:3})  {:4} ({:4})  {}",
            predicted.seconds,
            measured.seconds,
            100.0 * row.error(),
            predicted.updates,
            measured.updates,
            predicted.delay_p50,
            measured.delay_p50,
            predicted.lag_max,
            measured.lag_max,
            row.name
        ));
    }
    let (median, worst) = summary(&rows);
    say(format_args!(
        "{} runs: median error {:.1} %, worst {:.1} %",
        rows.len(),
        100.0 * median,
        100.0 * worst
    ));
    for (setting, errors) in by_setting(&rows) {
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        say(format_args!("{:+6.1} %  {setting}", 100.0 * mean));
    }
    Ok(())
}

/// Prints what each cell of an experiment would come to, as CSV.
pub(crate) fn predict_all(plan: &Plan, experiment: &Path) -> anyhow::Result<()> {
    let experiment = Experiment::read(experiment)?;
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record([
        "setting",
        "seed",
        "seconds",
        "updates",
        "delay_p50",
        "lag_max",
    ])?;
    for (point, seed) in experiment.cells() {
        let numbers = predict(plan, experiment.config(&point, seed)?)?;
        let labels: Vec<&str> = point.iter().map(|(_, label)| label.as_str()).collect();
        table.write_record([
            labels.join(", "),
            seed.to_string(),
            format!("{:.2}", numbers.seconds),
            numbers.updates.to_string(),
            numbers.delay_p50.to_string(),
            numbers.lag_max.to_string(),
        ])?;
    }
    let text = String::from_utf8(table.into_inner()?)?;
    Ok(tradewind_process::log::print(&text)?)
}

/// The median and the largest of the errors, without their signs.
pub(crate) fn summary(rows: &[Compared]) -> (f64, f64) {
    let mut errors: Vec<f64> = rows.iter().map(|row| row.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let middle = |place: usize| errors.get(place).copied().unwrap_or(0.0);
    let count = errors.len();
    let median = (middle(count.saturating_sub(1) / 2) + middle(count / 2)) / 2.0;
    (median, errors.last().copied().unwrap_or(0.0))
}

fn by_setting(rows: &[Compared]) -> BTreeMap<&str, Vec<f64>> {
    let mut settings: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in rows {
        settings.entry(&row.setting).or_default().push(row.error());
    }
    settings
}

fn predict(plan: &Plan, config: Config) -> anyhow::Result<Numbers> {
    let report = crate::simulate(&plan.of_run(config))?;
    Ok(Numbers {
        seconds: report.figure("seconds"),
        updates: report.figure("updates"),
        delay_p50: report.figure("delay_p50"),
        lag_max: report.figure("lag_max"),
    })
}

/// A run's folder: `config.toml` and `summary.json`.
fn of_run(plan: &Plan, folder: &Path) -> anyhow::Result<Compared> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let config = Config::parse(&read("config.toml")?, "config.toml", folder, &[])?;
    let summary: Json = serde_json::from_str(&read("summary.json")?)?;
    let number = |at: &str| {
        summary
            .pointer(at)
            .and_then(Json::as_f64)
            .unwrap_or(f64::NAN)
    };
    let groups = summary["groups"].as_array().into_iter().flatten();
    let lags = groups.filter_map(|group| group["lag_max"].as_f64());
    let name = config.name.to_string();
    Ok(Compared {
        setting: name.clone(),
        name,
        measured: Numbers {
            seconds: number("/train_seconds"),
            updates: number("/updates/applied"),
            delay_p50: number("/delay/p50"),
            lag_max: lags.fold(0.0, f64::max),
        },
        predicted: predict(plan, config)?,
    })
}

/// The rows of an experiment's results that are `wanted`.
pub(crate) fn stored(
    plan: &Plan,
    results: &Path,
    experiment: &Path,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<Compared>> {
    let experiment = Experiment::read(experiment)?;
    let named = || format!("cannot read {}", results.display());
    let mut table = csv::Reader::from_path(results).with_context(named)?;
    let header = table.headers()?.clone();
    let mut rows = Vec::new();
    for row in table.records() {
        let row = row.with_context(named)?;
        let text = |name: &str| {
            let at = header.iter().position(|column| column == name);
            at.and_then(|at| row.get(at)).unwrap_or_default()
        };
        let number = |name: &str| text(name).parse::<f64>().unwrap_or(f64::NAN);
        if text("status") != "completed" || !wanted(text("cell")) {
            continue;
        }
        let axes = header.iter().filter_map(|name| name.strip_prefix("axis."));
        let point: Vec<_> = axes
            .map(|axis| (axis.to_owned(), text(&format!("axis.{axis}")).to_owned()))
            .collect();
        let config = experiment.config(&point, text("seed").parse()?)?;
        // Steps that follow the fastest group's speed are no part of the simulator.
        if config.local.as_ref().is_some_and(|local| local.fitted) {
            continue;
        }
        rows.push(Compared {
            name: text("cell").to_owned(),
            setting: point
                .into_iter()
                .map(|(_, label)| label)
                .collect::<Vec<_>>()
                .join(", "),
            measured: Numbers {
                seconds: number("train_seconds"),
                updates: number("updates"),
                delay_p50: number("delay_p50"),
                lag_max: number("lag_max"),
            },
            predicted: predict(plan, config)?,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
