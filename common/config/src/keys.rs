//! Every configuration key, once: its type, range, default and meaning. The parser, the resolved
//! configuration and the table in the README are made from these lists.

mod compute;
mod fleet;
mod operation;
mod optimizer;
mod slurm;
mod task;
mod update;

use super::value::Kind::{self, Float, Int};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// `section.name`.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// As TOML; `None` for a key that has to be given.
    pub default: Option<&'static str>,
    /// The `model.name` that it is for; with another one it has no effect and need not be given.
    pub task: Option<&'static str>,
    /// What it means, with its unit.
    pub meaning: &'static str,
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    meaning: &'static str,
) -> Key {
    Key {
        name,
        kind,
        default,
        task: None,
        meaning,
    }
}

const fn forecast(key: Key) -> Key {
    Key {
        task: Some("forecast"),
        ..key
    }
}

const fn mnist(key: Key) -> Key {
    Key {
        task: Some("mnist"),
        ..key
    }
}

const fn resnet(key: Key) -> Key {
    Key {
        task: Some("resnet50"),
        ..key
    }
}

const fn int(min: i64, max: i64) -> Kind {
    Int { min, max }
}

const fn float(min: f64, max: f64) -> Kind {
    Float { min, max }
}

const MANY: i64 = 1_000_000_000_000;

/// All keys, by section.
pub fn all() -> impl Iterator<Item = &'static Key> {
    let lists = [
        fleet::KEYS,
        task::KEYS,
        update::KEYS,
        compute::KEYS,
        optimizer::KEYS,
        operation::KEYS,
        slurm::KEYS,
    ];
    lists.into_iter().flatten()
}

impl Key {
    /// The default as a value; `None` for a key that has to be given.
    pub fn default_value(&self) -> Option<super::Value> {
        let item = toml_edit::Item::Value(self.default?.parse().expect("defaults are TOML"));
        Some(self.kind.read(&item).expect("defaults are in range"))
    }
}

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    all().find(|key| key.name == name)
}

/// The keys as a table in Markdown.
pub fn markdown() -> String {
    let mut table = String::from("| key | type | default | meaning |\n|---|---|---|---|\n");
    for key in all() {
        let default = key
            .default
            .map_or("required".to_owned(), |d| format!("`{d}`"));
        let Key {
            name,
            kind,
            meaning,
            ..
        } = key;
        let task = key
            .task
            .map_or(String::new(), |task| format!("(`{task}`) "));
        table += &format!("| `{name}` | {kind} | {default} | {task}{meaning} |\n");
    }
    table
}
