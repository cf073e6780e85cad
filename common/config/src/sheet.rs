//! Files in TOML whose keys are known, such as an experiment's: read as a configuration is, with the same
//! types and messages.

use std::collections::BTreeMap;

use toml_edit::{Document, Item, TableLike};
use tradewind_common::choice::{Setting, Settings};

use crate::defined::of_field;
use crate::key::Key;
use crate::{ConfigError, Problem, Typed, Value, value};

/// A file that is read, and what is wrong with it.
#[derive(Debug)]
pub struct Sheet<'a> {
    text: &'a str,
    file: &'a str,
    problems: Vec<Problem>,
}

/// What a section says: the values of its keys, or their defaults.
#[derive(Debug)]
pub struct Given(BTreeMap<&'static str, Value>);

impl Given {
    /// The value of a key; `None` if it has none, or the type cannot have it.
    pub fn get<T: Typed>(&self, key: &str) -> Option<T> {
        T::typed(self.0.get(key)?)
    }
}

impl<'a> Sheet<'a> {
    /// A file, by what messages call it.
    pub fn new(text: &'a str, file: &'a str) -> Self {
        Self {
            text,
            file,
            problems: Vec::new(),
        }
    }

    /// The line of a key; 0 if it is not known.
    pub fn line(&self, table: &dyn TableLike, name: &str) -> usize {
        line(self.text, table, name)
    }

    /// Notes what is wrong, on this line; 0 is none.
    pub fn problem(&mut self, line: usize, text: impl std::fmt::Display) {
        let at = match line {
            0 => self.file.to_owned(),
            line => format!("{}, line {line}", self.file),
        };
        self.problems.push(Problem {
            key: String::new(),
            text: format!("{at}: {text}"),
        });
    }

    /// Notes that something lacks.
    pub fn require(&mut self, good: bool, text: &str) {
        if !good {
            self.problem(0, text);
        }
    }

    /// Reads the section `name`, whose keys are these. What it has `besides` is read by others.
    pub fn section(
        &mut self,
        name: &str,
        keys: &[Key],
        table: &dyn TableLike,
        besides: &[&str],
    ) -> Given {
        let mut given = BTreeMap::new();
        let mut wrong = Vec::new();
        for (last, item) in table.iter().filter(|(last, _)| !besides.contains(last)) {
            let full = format!("{name}.{last}");
            let read = match keys.iter().find(|key| key.name == full) {
                Some(key) => key.kind.read(item).map(|value| (key.name, value)),
                None => Err(unknown(&full, keys, besides)),
            };
            match read {
                Ok((key, value)) => drop(given.insert(key, value)),
                Err(what) => {
                    self.problem(self.line(table, last), format!("{full} {what}"));
                    wrong.push(full);
                }
            }
        }
        for key in keys
            .iter()
            .filter(|key| !wrong.iter().any(|w| w == key.name))
        {
            if given.contains_key(key.name) {
                continue;
            }
            match key.default_value() {
                Some(value) => drop(given.insert(key.name, value)),
                None => self.problems.push(missing(self.file, key)),
            }
        }
        Given(given)
    }

    /// Reads the section `name`, whose keys are the fields of `T`. What is wrong with one is noted, and it has its
    /// default.
    pub fn settings<T: Settings>(&mut self, name: &str, table: &dyn TableLike) -> T {
        let keys: Vec<Key> = T::FIELDS.iter().map(|(_, field)| of_field(field)).collect();
        let given = self.section(name, &keys, table, &[]);
        let setting = |key: &str| given.0.get(key).map(setting);
        T::of_given(|_, field| setting(field.key)).expect("values are of their fields")
    }

    /// Whether nothing was wrong.
    ///
    /// # Errors
    /// All that was.
    pub fn finish(self) -> Result<(), ConfigError> {
        match self.problems.is_empty() {
            true => Ok(()),
            false => Err(ConfigError(self.problems)),
        }
    }
}

/// A value as the settings of a run have it.
fn setting(value: &Value) -> Setting {
    match value {
        Value::Int(count) => Setting::Count(count.unsigned_abs()),
        Value::Float(number) => Setting::Number(*number),
        Value::Bool(flag) => Setting::Flag(*flag),
        Value::Text(word) => Setting::Word(word.clone()),
        Value::Ints(list) => Setting::Counts(list.iter().map(|n| n.unsigned_abs()).collect()),
        Value::Floats(list) => Setting::Numbers(list.clone()),
        Value::Pairs(_) | Value::Texts(_) => unreachable!("no field of settings is such a list"),
    }
}

fn unknown(full: &str, keys: &[Key], besides: &[&str]) -> String {
    let near = value::suggestion(full, keys.iter().map(|key| key.name), 0.9);
    if !near.is_empty() {
        return format!("is no key{near}");
    }
    let last = keys.iter().filter_map(|key| key.name.rsplit('.').next());
    let all: Vec<&str> = last.chain(besides.iter().copied()).collect();
    format!("is no key; there are {}", all.join(", "))
}

/// A file as TOML.
///
/// # Errors
/// It is none: where and why.
pub fn document<'a>(text: &'a str, file: &str) -> Result<Document<&'a str>, ConfigError> {
    Document::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        let text = format!("{file}, line {line}: {}", error.message());
        ConfigError(vec![Problem {
            key: String::new(),
            text,
        }])
    })
}

pub(crate) fn missing(file: &str, key: &Key) -> Problem {
    Problem {
        key: key.name.into(),
        text: format!("{file}: {} is missing. {}", key.name, key.meaning),
    }
}

/// The line of a key of a table; 0 if it is not known.
pub(crate) fn line(text: &str, table: &dyn TableLike, name: &str) -> usize {
    let span = table.key(name).and_then(|key| key.span());
    let span = span.or_else(|| table.get(name).and_then(Item::span));
    span.map_or(0, |span| line_of(text, span.start))
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}
