//! A key of a configuration, and the section that it is in.

use super::value::Kind::{self, Float, Int};

/// Keys that belong together: a table of the file.
#[derive(Clone, Debug)]
pub struct Section {
    /// As in the file: `[name]`.
    pub name: &'static str,
    /// What it is for, in two sentences; Markdown, whose links are relative to docs/.
    pub about: &'static str,
    /// Lines of TOML that are right on top of [`MINIMAL`](crate::keys::MINIMAL).
    pub example: &'static str,
    /// Its keys, in the order in which they are told.
    pub keys: Vec<Key>,
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// `section.name`.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// As TOML; `None` for a key that has to be given.
    pub default: Option<&'static str>,
    /// The values of `model.name` that it is for; with another one it has no effect and need not be given. None
    /// where it is for all.
    pub tasks: &'static [&'static str],
    /// What it means, with its unit, in sentences that need no other row; Markdown, whose links are
    /// relative to docs/. On which other keys its effect depends is added where it is shown.
    pub meaning: &'static str,
}

impl Key {
    /// Whether it has an effect where `model.name` is this.
    pub fn is_for(&self, task: &str) -> bool {
        self.tasks.is_empty() || self.tasks.contains(&task)
    }
}

/// A key of no task in particular.
pub const fn key(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    meaning: &'static str,
) -> Key {
    Key {
        name,
        kind,
        default,
        tasks: &[],
        meaning,
    }
}

/// A whole number.
pub const fn int(min: i64, max: i64) -> Kind {
    Int { min, max }
}

/// A number.
pub const fn float(min: f64, max: f64) -> Kind {
    Float { min, max }
}

/// More than anybody counts to.
pub const MANY: i64 = 1_000_000_000_000;
