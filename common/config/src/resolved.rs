//! A configuration as text: whole, and what of it makes it another than the default.

use super::task::Task;
use super::{Values, keys};

/// Where data lie, which may differ between machines.
const PLACES: [&str; 2] = ["data.files", "data.folder"];

/// Every key that has a value, as TOML.
pub(super) fn resolved(values: &Values<'_>, task: &Task) -> String {
    let mut text = String::new();
    let mut section = "";
    for key in keys::all() {
        let value = match (key.name, task) {
            ("data.files", Task::Forecast(forecast)) => forecast.files_value(),
            ("data.folder", Task::Mnist(mnist)) => mnist.folder_value(),
            (name, _) => match values.find(name) {
                Some(value) => value.clone(),
                None => continue,
            },
        };
        let (head, name) = key.name.split_once('.').expect("keys are section.name");
        if head != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            text += &format!("{gap}[{head}]\n");
            section = head;
        }
        text += &format!("{name} = {value}\n");
    }
    text
}

/// A line for each key that is not at its default, but for where data lie.
pub(super) fn identity(values: &Values<'_>) -> String {
    let own = keys::all().filter(|key| !PLACES.contains(&key.name));
    let lines = own.filter_map(|key| {
        let value = values.departure(key)?;
        Some(format!("{} = {value}\n", key.name))
    });
    lines.collect()
}
