//! A person's own script in the place of a task: the command that starts it, and the settings that it reads,
//! which nobody else checks.

use serde_json::{Map, Value as Json};
use toml_edit::{Item, Value as Toml};

use super::task::SCRIPT;
use super::{Place, Problem, Value, Values, at};

/// The key that makes a script the run's task.
pub(super) const COMMAND: &str = "model.command";

/// The section of its settings.
pub(super) const SECTION: &str = "script";

/// The settings of section `script`, and where the first of them was given.
#[derive(Default)]
pub(super) struct Given {
    pub(super) settings: Map<String, Json>,
    place: Option<Place>,
}

/// `model.command` as an override, from the words of a command line.
pub fn command_override(words: &[String]) -> String {
    format!("{COMMAND}={}", Value::Texts(words.to_vec()))
}

impl Given {
    /// Takes a setting in; `path` is what stands behind `script.`. What is wrong with it otherwise.
    pub(super) fn put(&mut self, path: &str, item: &Item, place: Place) -> Result<(), String> {
        let value = json(item)?;
        self.place.get_or_insert(place);
        let (tables, name) = path.rsplit_once('.').map_or(("", path), |split| split);
        let mut table = &mut self.settings;
        for head in tables.split('.').filter(|head| !head.is_empty()) {
            let inner = table.entry(head).or_insert_with(|| Map::new().into());
            let inner = inner.as_object_mut();
            table = inner.ok_or_else(|| format!("is in {head}, which is no table"))?;
        }
        table.insert(name.to_owned(), value);
        Ok(())
    }

    /// Its lines of a resolved configuration: a line for each setting.
    pub(super) fn to_toml(&self, before: &str) -> String {
        let lines = self.settings.iter();
        let lines = lines.map(|(name, value)| format!("{before}{} = {}\n", key(name), toml(value)));
        lines.collect()
    }
}

/// Puts the script in the place of a task, if there is one.
pub(super) fn settle(values: &mut Values<'_>, problems: &mut Vec<Problem>) {
    let Some(Value::Texts(command)) = values.find(COMMAND) else {
        return orphaned(values, problems);
    };
    match command.first() {
        None => return orphaned(values, problems),
        Some(program) if program.is_empty() => {
            problems.push(values.problem(COMMAND, "names no program"));
        }
        Some(_) => {}
    }
    for key in ["model.name", "model.program"] {
        if matches!(values.find(key), Some(Value::Text(name)) if !name.is_empty()) {
            let what = format!("has no place beside {COMMAND}: a script brings its own model");
            problems.push(values.problem(key, what));
        }
    }
    let name = Value::Text(SCRIPT.name.into());
    values.map.insert("model.name", (name, Place::Default));
}

/// Settings that nobody reads.
fn orphaned(values: &Values<'_>, problems: &mut Vec<Problem>) {
    if let Some(place) = &values.script.place {
        let at = at(values.file, place);
        problems.push(Problem {
            key: SECTION.into(),
            text: format!(
                "{at}: section {SECTION:?} is for a script of your own, and there is none; name its command with {COMMAND}, or behind `tradewind run FILE --`"
            ),
        });
    }
}

/// A TOML item as JSON; dates are text.
fn json(item: &Item) -> Result<Json, String> {
    match item {
        Item::None => Ok(Json::Null),
        Item::Value(value) => json_of(value),
        Item::Table(table) => {
            let values = table.iter();
            let values = values.map(|(name, item)| Ok((name.to_owned(), json(item)?)));
            values
                .collect::<Result<Map<_, _>, String>>()
                .map(Json::from)
        }
        Item::ArrayOfTables(tables) => {
            let tables = tables.iter().map(|table| json(&Item::Table(table.clone())));
            tables.collect::<Result<Vec<_>, String>>().map(Json::from)
        }
    }
}

fn json_of(value: &Toml) -> Result<Json, String> {
    Ok(match value {
        Toml::String(text) => Json::from(text.value().as_str()),
        Toml::Integer(number) => Json::from(*number.value()),
        Toml::Float(number) => match Json::from(*number.value()) {
            Json::Null => return Err("is no finite number".into()),
            number => number,
        },
        Toml::Boolean(flag) => Json::from(*flag.value()),
        Toml::Datetime(time) => Json::from(time.value().to_string()),
        Toml::Array(list) => {
            let values: Result<Vec<Json>, String> = list.iter().map(json_of).collect();
            Json::from(values?)
        }
        Toml::InlineTable(table) => {
            let values = table.iter();
            let values = values.map(|(name, value)| Ok((name.to_owned(), json_of(value)?)));
            Json::from(values.collect::<Result<Map<_, _>, String>>()?)
        }
    })
}

/// A value that came from TOML, on one line of it.
fn toml(value: &Json) -> String {
    match value {
        Json::Array(list) => {
            let values: Vec<String> = list.iter().map(toml).collect();
            format!("[{}]", values.join(", "))
        }
        Json::Object(table) => {
            let values = table.iter();
            let values: Vec<String> = values
                .map(|(name, value)| format!("{} = {}", key(name), toml(value)))
                .collect();
            format!("{{ {} }}", values.join(", "))
        }
        Json::String(text) => quoted(text),
        // Numbers and flags are the same in both.
        other => other.to_string(),
    }
}

fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    match !name.is_empty() && name.chars().all(bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}

/// As a string of TOML on one line; JSON escapes what it has to, but for one character.
fn quoted(text: &str) -> String {
    Json::from(text).to_string().replace('\x7f', "\\u007f")
}
