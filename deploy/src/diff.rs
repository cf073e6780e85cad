//! `tradewind diff`: which keys of two runs differ, and which results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::Value;
use tradewind_common::run_files;
use tradewind_folder::found::FoundRun;
use tradewind_folder::input;
use tradewind_process::Docs;
use tradewind_process::log::say;
use tradewind_watch::table;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder of one run.
    first: PathBuf,
    /// The folder of the other.
    second: PathBuf,
}

/// Results that are compared: what stands in the table, and where it is in `summary.json`.
const RESULTS: &[(&str, &str)] = &[
    ("status", "/status"),
    ("metric on the held-out split", "/metric/value"),
    ("metric on the validation split", "/metric/validation/value"),
    ("training loss, at last", "/loss/final"),
    ("samples applied", "/samples/applied"),
    ("updates of blocks", "/updates/applied"),
    ("seconds of training", "/train_seconds"),
    ("samples lost", "/faults/lost/samples"),
    ("delay, median", "/delay/p50"),
    ("delay, largest", "/delay/max"),
    ("digest of the parameters", "/params_digest"),
    ("version", "/version"),
];

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match compare(arguments) {
        Ok(text) => {
            say(text);
            ExitCode::SUCCESS
        }
        Err(error) => input::fail(&error, Docs::WATCHING).into(),
    }
}

fn compare(arguments: &Arguments) -> anyhow::Result<String> {
    let first = FoundRun::find(Some(&arguments.first))?;
    let second = FoundRun::find(Some(&arguments.second))?;
    let keys = |run: &FoundRun| keys(run.config.identity());
    let keys = differing(&keys(&first), &keys(&second));
    let results = results(&summary(&first)?, &summary(&second)?);
    let names = [
        arguments.first.display().to_string(),
        arguments.second.display().to_string(),
    ];
    let mut text = String::new();
    for (what, rows) in [("key", keys), ("result", results)] {
        match rows.is_empty() {
            true => text += &format!("no {what} differs\n\n"),
            false => text += &(table::columns([what, &names[0], &names[1]], rows) + "\n"),
        }
    }
    Ok(text.trim_end().to_owned())
}

/// Keys that are not at their defaults, with their values, from a line each.
fn keys(identity: &str) -> BTreeMap<String, String> {
    let pairs = identity.lines().filter_map(|line| line.split_once(" = "));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Keys whose values are not the same.
fn differing(
    first: &BTreeMap<String, String>,
    second: &BTreeMap<String, String>,
) -> Vec<[String; 3]> {
    let all: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let value = |of: &BTreeMap<String, String>, key: &String| {
        of.get(key).cloned().unwrap_or_else(|| "default".into())
    };
    let rows = all
        .into_iter()
        .map(|key| [key.clone(), value(first, key), value(second, key)]);
    rows.filter(|[_, one, two]| one != two).collect()
}

/// The summary of a run; null if it has not ended.
fn summary(run: &FoundRun) -> anyhow::Result<Value> {
    let path = run.path.join(run_files::SUMMARY);
    match fs::read_to_string(&path) {
        Ok(text) => {
            serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

fn results(first: &Value, second: &Value) -> Vec<[String; 3]> {
    let told = |summary: &Value, place: &str| match summary.pointer(place) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.chars().take(16).collect(),
        Some(Value::Number(number)) => match number.as_u64() {
            Some(whole) => whole.to_string(),
            None => format!("{:.5}", number.as_f64().unwrap_or(f64::NAN)),
        },
        Some(other) => other.to_string(),
    };
    let unit = |summary: &Value| {
        summary["metric"]["unit"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let rows = RESULTS.iter().map(|(name, place)| {
        let name = match unit(first) {
            unit if place.starts_with("/metric") && !unit.is_empty() => format!("{name} ({unit})"),
            _ => (*name).to_owned(),
        };
        [name, told(first, place), told(second, place)]
    });
    rows.filter(|[_, one, two]| one != two).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_told_and_nothing_else() {
        let one = keys("run.name = \"a\"\ntrain.batch = 16\n");
        let two = keys("run.name = \"b\"\ntrain.batch = 16\nlocal.steps = 4\n");
        let row = |row: [&str; 3]| row.map(str::to_owned);
        assert_eq!(
            differing(&one, &two),
            [
                row(["local.steps", "default", "4"]),
                row(["run.name", "\"a\"", "\"b\""])
            ]
        );
        let one = json!({"status": "completed", "metric": {"value": 0.7153, "unit": "K"}, "samples": {"applied": 100}});
        let two = json!({"status": "completed", "metric": {"value": 0.75, "unit": "K"}, "samples": {"applied": 104}});
        assert_eq!(
            results(&one, &two),
            [
                row(["metric on the held-out split (K)", "0.71530", "0.75000"]),
                row(["samples applied", "100", "104"])
            ]
        );
        assert_eq!(results(&one, &Value::Null).len(), 3);
        assert_eq!(
            results(&Value::Null, &Value::Null),
            Vec::<[String; 3]>::new()
        );
    }
}
