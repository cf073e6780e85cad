//! Every configuration key, once: its type, range, default and meaning, and the section that it is
//! in. The parser, the resolved configuration, messages and docs/configuration.md are made from these
//! lists.

mod compute;
mod fleet;
mod operation;
mod optimizer;
mod page;
mod slurm;
mod task;
mod update;

use super::value::Kind::{self, Float, Int};

pub use page::markdown;

/// Keys that belong together: a table of the file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// As in the file: `[name]`.
    pub name: &'static str,
    /// What it is for, in two sentences; Markdown, whose links are relative to docs/.
    pub about: &'static str,
    /// Lines of TOML that are right on top of [`MINIMAL`].
    pub example: &'static str,
    /// Its keys, in the order in which they are told.
    pub keys: &'static [Key],
}

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
    /// What it means, with its unit, in sentences that need no other row; Markdown, whose links are
    /// relative to docs/. On which other keys its effect depends is added where it is shown.
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

/// A configuration of the keys that have to be given, and no others.
pub const MINIMAL: &str = r#"[run]
name = "first"

[data]
files = ["temperature.nc"]
variable = "t2m"
validation = [400, 440]
held_out = [440, 480]

[train]
samples = 10000

[optimizer]
learning_rate = 0.01
"#;

/// All sections.
pub fn sections() -> impl Iterator<Item = &'static Section> {
    let lists = [
        fleet::SECTIONS,
        task::SECTIONS,
        update::SECTIONS,
        compute::SECTIONS,
        optimizer::SECTIONS,
        operation::SECTIONS,
        slurm::SECTIONS,
    ];
    lists.into_iter().flatten()
}

/// All keys, by section.
pub fn all() -> impl Iterator<Item = &'static Key> {
    sections().flat_map(|section| section.keys)
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
