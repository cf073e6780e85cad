//! A configuration as text: whole, and what of it makes it another than the default.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use toml_edit::Document;

use super::task::{KnownTask, SCRIPT, Task, described, description};
use super::tasks::Tasks;
use super::{Value, Values, keys, script};

/// The section of a resolved configuration that has no keys for people: what is known of its task.
pub const RECORDED: &str = "recorded";

/// What a resolved configuration begins with: the build that has written it.
const BY: &str = "# Written by Tradewind ";

/// This build: its version, and which keys it has.
fn build() -> String {
    let mut keys = DefaultHasher::new();
    for key in keys::all() {
        (key.name, format!("{:?}", key.kind), key.default).hash(&mut keys);
    }
    let keys = keys.finish() as u32;
    format!("{} with keys {keys:08x}", env!("CARGO_PKG_VERSION"))
}

/// What is to be said beside problems with a configuration that another build has written.
pub(super) fn of_another_build(text: &str) -> Option<String> {
    let (by, own) = (text.lines().next()?.strip_prefix(BY)?, build());
    (by != own).then(|| {
        format!(
            "it was written by another build of Tradewind ({by}) than this program's ({own}): build \
             tradewind, tradewind-server, tradewind-worker and the Python package from the same source"
        )
    })
}

/// Every key that has a value, as TOML. Of tasks of somebody's own only the chosen one's are there: others
/// are known to their program alone.
pub(super) fn resolved(values: &Values<'_>, task: &Task, folder: &Path) -> String {
    let own = |name: &str| {
        values
            .tasks
            .own()
            .iter()
            .any(|is| is.definition.name == name)
    };
    let is_script = task.name() == SCRIPT.name;
    let mut text = format!("{BY}{}\n", build());
    let mut section = "";
    for key in values.tasks.keys() {
        let of_another = !key.is_for(task.name());
        // A script has no name, and nothing of other tasks.
        if is_script && (of_another || key.name == "model.name") {
            continue;
        }
        let value = match values.find(key.name) {
            Some(_) if of_another && key.tasks.iter().any(|of| own(of)) => continue,
            Some(value) if of_another => value.clone(),
            Some(value) => value.absolute(key.kind, folder),
            None => continue,
        };
        let (head, name) = key.name.split_once('.').expect("keys are section.name");
        if head != section {
            text += &format!("\n[{head}]\n");
            section = head;
        }
        text += &format!("{name} = {value}\n");
    }
    if is_script {
        text += &format!("\n[{}]\n{}", script::SECTION, values.script.to_toml(""));
    }
    if own(task.name()) {
        let told = Value::Text(description([task.definition()].into_iter()));
        text += &format!(
            "\n# For whoever reads this without the worker program.\n[{RECORDED}]\ntask = {told}\n"
        );
    }
    text
}

/// The tasks that a configuration was written down with, if it is a [`resolved`] one of a task of somebody's
/// own.
pub(super) fn recorded(text: &str) -> Option<Tasks> {
    let document = Document::parse(text).ok()?;
    let told = document
        .get(RECORDED)?
        .as_table_like()?
        .get("task")?
        .as_str()?;
    let known = described(told).ok()?.into_iter().map(KnownTask::recorded);
    Tasks::with(known.collect()).ok()
}

/// A line for each key that is not at its default, but for paths, which may differ between machines.
pub(super) fn identity(values: &Values<'_>) -> String {
    let lines = values.tasks.keys().filter(|key| !key.kind.is_path());
    let lines = lines.filter_map(|key| {
        let value = values.departure(key)?;
        Some(format!("{} = {value}\n", key.name))
    });
    let lines: String = lines.collect();
    lines + &values.script.to_toml("script.")
}
