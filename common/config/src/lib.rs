//! Configuration: TOML and overrides in, strict types out. Everything wrong with it is reported at
//! once, each with the key, the line and the nearest right name.

mod checked;
mod choice;
mod compute;
mod idle;
pub mod keys;
mod local;
mod optimizer;
pub mod page;
mod policy;
mod read;
mod resolved;
mod schedule;
mod slurm;
mod stragglers;
mod task;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use checked::{Cluster, Config, Exchange, Liveness, Telemetry, Train};
pub use compute::{Compute, DeviceChoice, LossScaling, Precision};
pub use local::{Algorithm, Inner, Local};
pub use optimizer::Optimizer;
pub use slurm::{ENDING_S as SLURM_ENDING_S, Slurm};
pub use task::{Forecast, Mnist, Resnet, Task};
use toml_edit::{Document, Item, TableLike};
pub use value::{Kind, Value};

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Line(usize),
    Override,
    Default,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, `section.name`; empty if the file is no TOML.
    pub key: String,
    /// Where and what, for a person.
    pub text: String,
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError(pub Vec<Problem>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(|problem| problem.text.as_str()).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Values by key, with where each was given.
struct Values<'a> {
    file: &'a str,
    map: BTreeMap<&'static str, (Value, Place)>,
}

impl Values<'_> {
    fn get(&self, name: &str) -> &Value {
        self.find(name)
            .expect("every key of the task has a value, or the configuration was refused")
    }

    /// `None` for a key of another task.
    fn find(&self, name: &str) -> Option<&Value> {
        self.map.get(name).map(|(value, _)| value)
    }

    /// The value of a key, unless it has none or its default.
    fn departure(&self, key: &keys::Key) -> Option<&Value> {
        let value = self.find(key.name)?;
        (key.default_value().as_ref() != Some(value)).then_some(value)
    }

    /// A problem of a key that has a value of the right type.
    fn problem(&self, name: &str, what: impl fmt::Display) -> Problem {
        let (value, place) = &self.map[name];
        Problem {
            key: name.into(),
            text: format!("{}: {name} = {value} {what}", at(self.file, place)),
        }
    }
}

fn at(file: &str, place: &Place) -> String {
    match place {
        Place::Line(line) => format!("{file}, line {line}"),
        Place::Override => "--set".into(),
        Place::Default => format!("{file} (default)"),
    }
}

impl Config {
    /// Reads a configuration. `file` is what messages call it, `folder` what relative data paths
    /// are relative to; `overrides` are `key=value` with TOML values (bare words pass for text).
    pub fn parse(
        text: &str,
        file: &str,
        folder: &Path,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let mut values = Values {
            file,
            map: BTreeMap::new(),
        };
        read_file(text, &mut values, &mut problems);
        for setting in overrides {
            if let Err(problem) = read_override(setting, &mut values) {
                problems.push(problem);
            }
        }
        fill_defaults(&mut values, &mut problems);
        if !problems.is_empty() {
            return Err(ConfigError(problems));
        }
        checked::check(&values, folder).map_err(ConfigError)
    }
}

fn read_file(text: &str, values: &mut Values<'_>, problems: &mut Vec<Problem>) {
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let text = format!("{}, line {line}: {}", values.file, error.message());
            problems.push(Problem {
                key: String::new(),
                text,
            });
            return;
        }
    };
    read_table(text, "", document.as_table(), values, problems);
}

fn read_table(
    text: &str,
    prefix: &str,
    table: &dyn TableLike,
    values: &mut Values<'_>,
    problems: &mut Vec<Problem>,
) {
    for (name, item) in table.iter() {
        let full = format!("{prefix}{name}");
        let key_span = table.key(name).and_then(|key| key.span());
        let line = key_span
            .or_else(|| item.span())
            .map_or(1, |span| line_of(text, span.start));
        match item.as_table_like() {
            Some(inner) if prefix.is_empty() => {
                read_table(text, &format!("{full}."), inner, values, problems);
            }
            _ => {
                if let Err(problem) = read_item(&full, item, Place::Line(line), values) {
                    problems.push(problem);
                }
            }
        }
    }
}

fn read_override(setting: &str, values: &mut Values<'_>) -> Result<(), Problem> {
    let Some((name, text)) = setting.split_once('=') else {
        let text = format!("--set {setting}: give it as key=value");
        return Err(Problem {
            key: setting.into(),
            text,
        });
    };
    let (name, text) = (name.trim(), text.trim());
    // Where text is wanted, what looks like a number or a time is text all the same.
    let wants_text = keys::find(name).is_some_and(|key| key.kind == Kind::Text);
    let item = match text.parse::<toml_edit::Value>() {
        Ok(value) if !wants_text || value.is_str() => Item::Value(value),
        _ => Item::Value(text.into()),
    };
    read_item(name, &item, Place::Override, values)
}

fn read_item(
    name: &str,
    item: &Item,
    place: Place,
    values: &mut Values<'_>,
) -> Result<(), Problem> {
    let place_text = at(values.file, &place);
    let problem = |what: String| Problem {
        key: name.into(),
        text: format!("{place_text}: {name} {what}"),
    };
    let Some(key) = keys::find(name) else {
        return Err(problem(format!("is no key{}", way_out(name))));
    };
    let value = key.kind.read(item).map_err(problem)?;
    values.map.insert(key.name, (value, place));
    Ok(())
}

/// What else there is: the nearest right name, or the sections if there is no such section.
fn way_out(name: &str) -> String {
    let near = nearest(name);
    let section = name.split('.').next().unwrap_or_default();
    let mut names = keys::sections().map(|known| known.name);
    if !near.is_empty() || names.any(|known| known == section) {
        return near;
    }
    let names: Vec<_> = keys::sections().map(|known| known.name).collect();
    format!(
        "; there is no section {section:?}; sections are {}",
        names.join(", ")
    )
}

/// The nearest right name. Keys that differ only in their section come first: people forget it.
fn nearest(name: &str) -> String {
    let last = |name: &str| name.rsplit('.').next().map(str::to_owned);
    let (same_end, others): (Vec<&str>, Vec<&str>) = keys::all()
        .map(|key| key.name)
        .partition(|key| last(key) == last(name));
    match (same_end.as_slice(), others) {
        ([], others) => value::suggestion(name, others.into_iter(), 0.75),
        (same_end, _) => value::suggestion(name, same_end.iter().copied(), 0.0),
    }
}

/// Keys of other tasks than the configured one get no value unless they have a default.
fn fill_defaults(values: &mut Values<'_>, problems: &mut Vec<Problem>) {
    let task = match values.map.get("model.name") {
        Some((Value::Text(name), _)) => name.clone(),
        _ => keys::find("model.name")
            .and_then(|key| key.default)
            .map_or(String::new(), |name| name.trim_matches('"').to_owned()),
    };
    for key in keys::all() {
        if values.map.contains_key(key.name) || problems.iter().any(|p| p.key == key.name) {
            continue;
        }
        match key.default_value() {
            Some(value) => {
                values.map.insert(key.name, (value, Place::Default));
            }
            None if key.task.is_some_and(|needs| needs != task) => {}
            None => {
                let text = format!("{}: {} is missing. {}", values.file, key.name, key.meaning);
                problems.push(Problem {
                    key: key.name.into(),
                    text,
                });
            }
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

#[cfg(test)]
mod tests;
