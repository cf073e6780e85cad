//! Configuration: TOML and overrides in, strict types out. Everything wrong with it is reported at
//! once, each with the key, the line and the nearest right name.

mod checked;
mod choice;
mod cluster;
mod compute;
mod defined;
mod exchange;
mod idle;
pub mod key;
pub mod keys;
mod liveness;
mod loader;
mod local;
mod optimizer;
pub mod page;
mod policy;
mod read;
mod resolved;
mod schedule;
mod script;
mod section;
pub mod sheet;
mod slurm;
mod stragglers;
mod task;
mod tasks;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use checked::{Config, Telemetry, Train};
pub use cluster::{Cluster, Security, WantedSecurity};
pub use compute::{Compute, DeviceChoice, Precision};
pub use exchange::{Exchange, Reduce};
pub use liveness::Liveness;
pub use loader::{CacheAt, Damaged, Loader};
pub use local::{Algorithm, Inner, Local};
pub use optimizer::Optimizer;
pub use resolved::RECORDED;
pub use script::command_override;
pub use slurm::{ENDING_S as SLURM_ENDING_S, Slurm};
pub use task::{
    ClimateBoxes, Cosmoflow, Deepcam, Forecast, Hep, KnownTask, Mnist, Replay, Resnet, Task,
    TaskDefinition, TaskSettings, Typed, Unfit, Wrong, described, description,
};
pub use tasks::Tasks;
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

impl ConfigError {
    /// Known sections in which something is wrong, in the order of the table of keys.
    pub fn sections(&self) -> Vec<&'static str> {
        let wrong = |section: &&'static str| {
            let mut keys = self.0.iter().map(|problem| problem.key.as_str());
            keys.any(|key| key.split('.').next() == Some(*section))
        };
        keys::sections()
            .map(|section| section.name)
            .filter(wrong)
            .collect()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(|problem| problem.text.as_str()).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Values by key, with where each was given.
struct Values<'a> {
    file: &'a str,
    tasks: &'a Tasks,
    /// Sections of the file that others read.
    besides: &'a [&'a str],
    map: BTreeMap<&'static str, (Value, Place)>,
    script: script::Given,
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

    /// What helps if `model.name` is the name of no task.
    fn of_whom(&self) -> &'static str {
        match self.tasks.own() {
            [] => "; a model of your own needs model.program, the worker program that has it",
            _ => "",
        }
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

/// The worker program that a configuration names with `model.program`, absolute; `None` if it names none, or
/// is no TOML. The rest of it is not looked at.
pub fn program(text: &str, folder: &Path, overrides: &[String]) -> Option<PathBuf> {
    const KEY: &str = "model.program";
    let set = overrides.iter().rev().find_map(|set| {
        let (key, value) = set.split_once('=')?;
        (key.trim() == KEY).then(|| value.trim().trim_matches('"').to_owned())
    });
    let program = set.or_else(|| {
        let document = Document::parse(text).ok()?;
        let model = document.get("model")?.as_table_like()?;
        Some(model.get("program")?.as_str()?.to_owned())
    })?;
    (!program.is_empty()).then(|| folder.join(program))
}

impl Config {
    /// Reads a configuration of a built-in task, or one that has been [resolved](Self::resolved). `file` is what messages call it, `folder` what relative
    /// data paths are relative to; `overrides` are `key=value` with TOML values (bare words pass for text).
    pub fn parse(
        text: &str,
        file: &str,
        folder: &Path,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        let recorded = resolved::recorded(text);
        let tasks = recorded.as_ref().unwrap_or(Tasks::built_in());
        Self::parse_with(tasks, text, file, folder, overrides)
    }

    /// Reads a configuration of one of `tasks`; the rest is as with [`parse`](Self::parse).
    pub fn parse_with(
        tasks: &Tasks,
        text: &str,
        file: &str,
        folder: &Path,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        Self::read((tasks, &[]), text, file, folder, overrides)
    }

    /// Reads a configuration whose file has further sections, `besides`, which others read; the rest is as
    /// with [`parse`](Self::parse).
    pub fn parse_beside(
        besides: &[&str],
        text: &str,
        file: &str,
        folder: &Path,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        Self::read((Tasks::built_in(), besides), text, file, folder, overrides)
    }

    fn read(
        (tasks, besides): (&Tasks, &[&str]),
        text: &str,
        file: &str,
        folder: &Path,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let mut values = Values {
            file,
            tasks,
            besides,
            map: BTreeMap::new(),
            script: script::Given::default(),
        };
        read_file(text, &mut values, &mut problems);
        for setting in overrides {
            if let Err(problem) = read_override(setting, &mut values) {
                problems.push(problem);
            }
        }
        if let Some(why) = &tasks.unanswered {
            problems.push(unanswered(&mut values, why));
        }
        script::settle(&mut values, &mut problems);
        fill_defaults(&mut values, &mut problems);
        let config = match problems.is_empty() {
            true => checked::check(&values, folder),
            false => Err(problems),
        };
        config.map_err(|mut problems| {
            problems.extend(resolved::of_another_build(text).map(|why| Problem {
                key: String::new(),
                text: format!("{file}: {why}"),
            }));
            ConfigError(problems)
        })
    }
}

fn read_file(text: &str, values: &mut Values<'_>, problems: &mut Vec<Problem>) {
    let document = match sheet::document(text, values.file) {
        Ok(document) => document,
        Err(ConfigError(found)) => return problems.extend(found),
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
        let line = sheet::line(text, table, name);
        if values.besides.contains(&full.as_str()) {
            continue;
        }
        match item.as_table_like() {
            Some(_) if full == RECORDED => {}
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
    let key = values.tasks.find(name);
    let wants_text = key.is_some_and(|key| matches!(key.kind, Kind::Text | Kind::Path));
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
    let setting = name.strip_prefix(script::SECTION);
    if let Some(setting) = setting.and_then(|rest| rest.strip_prefix('.')) {
        return values.script.put(setting, item, place).map_err(problem);
    }
    let Some(key) = values.tasks.find(name) else {
        let section = name.split('.').next().unwrap_or_default();
        let ours = keys::sections().any(|known| known.name == section);
        if values.tasks.unanswered.is_some() && !ours {
            return Ok(());
        }
        let way_out = way_out(name, values.tasks, values.besides);
        return Err(problem(format!("is no key{way_out}")));
    };
    let (name, kind) = (key.name, key.kind);
    let value = kind.read(item).map_err(|what| {
        let foreign = name == "model.name" && item.is_str();
        let way_out = if foreign { values.of_whom() } else { "" };
        problem(what + way_out)
    });
    let value = match value {
        // It may be one of the tasks that are not known.
        Err(_) if name == "model.name" && values.tasks.unanswered.is_some() => return Ok(()),
        value => value?,
    };
    values.map.insert(name, (value, place));
    Ok(())
}

/// That the worker program could not tell its tasks, at the line that names it.
fn unanswered(values: &mut Values<'_>, why: &str) -> Problem {
    values.problem("model.program", why)
}

/// What else there is: the nearest right name, or the sections if there is no such section.
fn way_out(name: &str, tasks: &Tasks, besides: &[&str]) -> String {
    let near = nearest(name, tasks);
    let section = name.split('.').next().unwrap_or_default();
    let mut names = keys::sections().map(|known| known.name);
    if !near.is_empty() || names.any(|known| known == section) {
        return near;
    }
    let names = keys::sections().map(|known| known.name);
    let names: Vec<_> = names.chain(besides.iter().copied()).collect();
    format!(
        "; there is no section {section:?}; sections are {}",
        names.join(", ")
    )
}

/// The nearest right name. Keys that differ only in their section come first: people forget it.
fn nearest(name: &str, tasks: &Tasks) -> String {
    let last = |name: &str| name.rsplit('.').next().map(str::to_owned);
    let (same_end, others): (Vec<&str>, Vec<&str>) = tasks
        .keys()
        .map(|key| key.name)
        .partition(|key| last(key) == last(name));
    match (same_end.as_slice(), others) {
        ([], others) => value::suggestion(name, others.into_iter(), 0.75),
        (same_end, _) => value::suggestion(name, same_end.iter().copied(), 0.0),
    }
}

/// Keys of other tasks than the configured one get no value unless they have a default.
fn fill_defaults(values: &mut Values<'_>, problems: &mut Vec<Problem>) {
    // A name that is wrong chooses no task, and nothing is missing for it.
    let chosen = !problems
        .iter()
        .any(|problem| ["model.name", "model.program"].contains(&problem.key.as_str()));
    let task = match values.map.get("model.name") {
        Some((Value::Text(name), _)) => name.clone(),
        _ => keys::find("model.name")
            .and_then(|key| key.default)
            .map_or(String::new(), |name| name.trim_matches('"').to_owned()),
    };
    for key in values.tasks.keys() {
        if values.map.contains_key(key.name) || problems.iter().any(|p| p.key == key.name) {
            continue;
        }
        match key.default_value() {
            Some(value) => {
                values.map.insert(key.name, (value, Place::Default));
            }
            None if !(key.tasks.is_empty() || (chosen && key.is_for(&task))) => {}
            None => problems.push(sheet::missing(values.file, key)),
        }
    }
}

#[cfg(test)]
mod tests;
