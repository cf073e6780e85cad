//! A configuration that is yet to be written: which keys have a value, and the text with what each means.

use std::collections::BTreeMap;
use std::path::Path;

use toml_edit::Document;
use tradewind_config::key::{Key, Section};
use tradewind_config::keys::sections;
use tradewind_config::{Kind, TaskDefinition, Value};

use super::data::Found;

/// What is shipped for each model: settings that it was tried with.
const SHIPPED: &[(&str, &str)] = &[
    (
        "forecast",
        include_str!("../../configs/climate-forecast.toml"),
    ),
    ("mnist", include_str!("../../configs/mnist.toml")),
    ("resnet50", include_str!("../../configs/resnet50.toml")),
    ("replay", include_str!("../../configs/replay.toml")),
    ("cosmoflow", include_str!("../../configs/cosmoflow.toml")),
    ("hep", include_str!("../../configs/hep.toml")),
    ("deepcam", include_str!("../../configs/deepcam.toml")),
    (
        "climate-boxes",
        include_str!("../../configs/climate-boxes.toml"),
    ),
];

/// What a script begins with.
const SCRIPT: &str = r#"
[run]
seed = 1
[cluster]
servers = 1
groups = [1, 1]
[train]
samples = 10000
batch = 32
consistency = "bounded"
staleness_bound = 3
[optimizer]
name = "adam"
learning_rate = 0.001
"#;

/// Keys that are shown with their defaults, besides those of the model.
const OFFERED: &[&str] = &[
    "servers.replication",
    "snapshots.kept",
    "train.overlap",
    "compute.device",
    "compute.precision",
    "optimizer.clip_norm",
    "schedule.warmup_samples",
    "schedule.decay",
    "exchange.up",
    "loader.readers",
    "liveness.snapshot_ms",
    "evaluation.every_samples",
    "telemetry.prometheus",
];

/// The keys that only a user knows, with examples.
const DATA: &[(&str, &str)] = &[
    ("data.folder", r#""data""#),
    ("data.files", r#"["temperature.nc"]"#),
    ("data.variable", r#""t2m""#),
    ("data.validation", "[400, 440]"),
    ("data.held_out", "[440, 480]"),
];

/// Of a series: what only its user knows, and what has a default.
const OF_OTHER_DATA: &[&str] = &["data.time_origin", "data.step_name", "data.layout"];

/// Width of a line of comment.
const WIDTH: usize = 100;

/// Characters of what a key means, beyond which no further sentence is begun.
const MEANING: usize = 160;

/// A key's value, as TOML.
#[derive(Clone, Debug)]
struct Set {
    value: String,
    /// It is an example that somebody has to replace.
    is_open: bool,
}

/// A configuration that is yet to be written.
#[derive(Debug)]
pub(super) struct Draft {
    /// `None` for a script.
    task: Option<&'static TaskDefinition>,
    name: String,
    values: BTreeMap<String, Set>,
}

impl Draft {
    /// For a script that this command starts.
    pub(super) fn of_script(name: &str, command: Value) -> Self {
        let mut draft = Self::new(None, name, SCRIPT);
        draft.set("model.command", command.to_string(), false);
        let samples = draft.values["train.samples"].value.clone();
        draft.set("train.samples", samples, true);
        draft
    }

    /// For a built-in model: the settings that are shipped for it, and the data that were found.
    pub(super) fn of_model(
        task: &'static TaskDefinition,
        name: &str,
        found: Option<Found>,
    ) -> Self {
        let shipped = SHIPPED.iter().find(|(model, _)| *model == task.name);
        let (_, shipped) = shipped.expect("each model has one");
        let mut draft = Self::new(Some(task), name, shipped);
        for key in OF_OTHER_DATA {
            draft.values.remove(*key);
        }
        let own = |key: &str| task.keys.iter().any(|is| is.name == key);
        for (key, example) in DATA.iter().filter(|(key, _)| own(key)) {
            draft.set(key, (*example).into(), true);
        }
        for (key, value) in found.into_iter().flat_map(|found| found.values) {
            draft.set(key, value.to_string(), false);
        }
        draft
    }

    fn new(task: Option<&'static TaskDefinition>, name: &str, base: &str) -> Self {
        let base = Document::parse(base).expect("what is shipped is TOML");
        let mut values = BTreeMap::new();
        for (section, keys) in base.as_table().iter() {
            let keys = keys.as_table_like().expect("keys are in sections");
            for (key, item) in keys.iter() {
                let value = item.as_value().expect("a key has a value").clone();
                let value = value.decorated("", "").to_string();
                let set = Set {
                    value,
                    is_open: false,
                };
                values.insert(format!("{section}.{key}"), set);
            }
        }
        let mut draft = Self {
            task,
            name: name.into(),
            values,
        };
        let name = Value::Text(name.into());
        draft.set("run.name", name.to_string(), false);
        draft
    }

    fn set(&mut self, key: &str, value: String, is_open: bool) {
        self.values.insert(key.into(), Set { value, is_open });
    }

    /// The name of the run.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Keys with examples that somebody has to replace.
    pub(super) fn open(&self) -> Vec<&str> {
        let open = self.values.iter().filter(|(_, set)| set.is_open);
        open.map(|(key, _)| key.as_str()).collect()
    }

    /// The file's text; `file` is where it is going to be.
    pub(super) fn text(&self, file: &Path) -> String {
        let what = match self.task {
            Some(task) => format!("Trains {}.", task.about),
            None => "Trains with a PyTorch script of your own as each rank.".into(),
        };
        let file = file.display();
        let mut text = comment(&what);
        text += &format!(
            "#\n#   tradewind config {file}    checks this file, and prints it with every key\n\
             #   tradewind run {file}       trains\n#\n"
        );
        text += &comment(
            "A line that begins with `#` and a key shows a default. `tradewind config --keys` tells of all keys.",
        );
        for section in sections() {
            let keys: Vec<String> = section
                .keys
                .iter()
                .filter_map(|key| self.key(key))
                .collect();
            let lines = match keys.is_empty() {
                true => self.settings(section).unwrap_or_default(),
                false => keys.join("\n"),
            };
            if !lines.is_empty() {
                text += &format!("\n[{}]\n{lines}", section.name);
            }
        }
        text
    }

    /// What a key means, and its value; `None` if it is not shown.
    fn key(&self, key: &Key) -> Option<String> {
        let (_, name) = key.name.split_once('.').expect("keys are section.name");
        let own = self.task.and_then(|task| {
            let mut keys = task.keys.iter();
            keys.find(|own| own.name == key.name)
        });
        let line = match (self.values.get(key.name), key.default) {
            (Some(set), _) => {
                let open = if set.is_open { "    # set this" } else { "" };
                format!("{name} = {}{open}\n", set.value)
            }
            (None, Some(default)) if own.is_some() || OFFERED.contains(&key.name) => {
                format!("#{name} = {default}\n")
            }
            _ => return None,
        };
        let meaning = match own {
            Some(own) => plain(own.meaning),
            None => beginning(&plain(key.meaning)),
        };
        let choices = match key.kind {
            Kind::Choice(choices) if key.name != "model.name" => {
                format!(" One of {}.", choices.join(", "))
            }
            _ => String::new(),
        };
        Some(comment(&format!("{meaning}{choices}")) + &line)
    }

    /// The section that a script reads.
    fn settings(&self, section: &Section) -> Option<String> {
        let is_there = self.task.is_none() && section.name == "script";
        is_there.then(|| comment(&plain(section.about)) + "#width = 64\n")
    }
}

/// The first sentences: one, and further ones as far as they are short.
fn beginning(text: &str) -> String {
    if text.len() <= MEANING {
        return text.into();
    }
    let begins = |end: &usize| text[end + 1..].starts_with(|c: char| c.is_uppercase() || c == '`');
    let ends = text
        .match_indices(". ")
        .map(|(at, _)| at + 1)
        .filter(begins);
    let ends: Vec<usize> = ends.collect();
    let within = ends.iter().rfind(|end| **end <= MEANING);
    let end = within.or(ends.first()).copied();
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Markdown without its links.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some(begin) = rest.find('[') {
        let link = rest[begin..].find("](").and_then(|words| {
            let words = &rest[begin + 1..begin + words];
            let after = &rest[begin + words.len() + 3..];
            let (_, after) = after.split_once(')')?;
            (!words.contains(']')).then_some((words, after))
        });
        let Some((words, after)) = link else {
            text += &rest[..=begin];
            rest = &rest[begin + 1..];
            continue;
        };
        let before = &rest[..begin];
        match (before.strip_suffix(" ("), after.strip_prefix(')')) {
            // A page of docs, in parentheses.
            (Some(before), Some(after)) => {
                text += before;
                rest = after;
            }
            _ => {
                text += before;
                text += words;
                rest = after;
            }
        }
    }
    text + rest
}

/// Lines of comment.
fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &format!("{line}\n");
            line = "#".into();
        }
        line += &format!(" {word}");
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use tradewind_config::{Tasks, keys};

    use super::*;

    #[test]
    fn each_model_has_settings_that_it_was_tried_with() {
        let models: Vec<&str> = Tasks::built_in().definitions().map(|is| is.name).collect();
        let shipped: Vec<&str> = SHIPPED.iter().map(|(model, _)| *model).collect();
        assert_eq!(shipped, models);
        for key in OFFERED {
            let known = keys::find(key).unwrap_or_else(|| panic!("{key} is no key"));
            assert!(known.default.is_some(), "{key}");
        }
    }

    #[test]
    fn comments_are_plain_text() {
        let check = |markdown: &str, want: &str| assert_eq!(plain(markdown), want);
        check("A rate ([policies](policies.md#a)).", "A rate.");
        check("As [NAME](b.md) has it.", "As NAME has it.");
        check(
            "`[]` is no [list](c.md); [a, b] is.",
            "`[]` is no list; [a, b] is.",
        );
        check("[open", "[open");
        let long = "word ".repeat(40);
        for line in comment(&long).lines() {
            assert!(line.starts_with("# word") && line.len() <= WIDTH, "{line}");
        }
        let check = |text: &str, want: &str| assert_eq!(beginning(text), want);
        check("One. Two.", "One. Two.");
        check(
            &format!("One. Two is e.g. here. A{long}"),
            "One. Two is e.g. here.",
        );
        check(&format!("A{long}. `b` is."), &format!("A{long}."));
    }
}
