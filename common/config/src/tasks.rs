//! The tasks that a configuration may choose from: the built-in ones, and those of somebody's own worker
//! program.

use std::fmt;
use std::sync::LazyLock;

use super::keys::{self, Key, Section};
use super::task::{BUILT_IN, KnownTask, TaskDefinition};
use super::value::Kind;

/// All tasks that a configuration may choose from.
#[derive(Clone)]
pub struct Tasks {
    /// The built-in ones come first.
    known: Vec<KnownTask>,
    /// `model.name`, with all of them to choose from.
    name: Key,
    /// Of each that is not built in.
    sections: Vec<Section>,
    /// Why the worker program could not tell its tasks.
    pub(crate) unanswered: Option<String>,
}

impl Tasks {
    /// Those that every worker program has.
    pub fn built_in() -> &'static Self {
        static BUILT: LazyLock<Tasks> = LazyLock::new(|| Tasks {
            known: BUILT_IN.to_vec(),
            name: *keys::find("model.name").expect("a key"),
            sections: Vec::new(),
            unanswered: None,
        });
        &BUILT
    }

    /// The same with further ones.
    ///
    /// # Errors
    /// Says which of their definitions cannot be, and why.
    pub fn with(more: Vec<KnownTask>) -> Result<Self, String> {
        let mut tasks = Self::built_in().clone();
        for task in more {
            let TaskDefinition { name, keys, .. } = task.definition;
            let refuse = |why: String| Err(format!("task {name:?} cannot be: {why}"));
            if let Err(why) = defined(&task.definition) {
                return refuse(why);
            }
            if tasks.named(name).is_some() {
                return refuse("there is another task of this name".into());
            }
            tasks.sections.push(Section {
                name,
                about: task.definition.about,
                example: "",
                keys: keys.to_vec(),
            });
            tasks.known.push(task);
        }
        let names: Vec<&'static str> = tasks.known.iter().map(|is| is.definition.name).collect();
        if !tasks.sections.is_empty() {
            tasks.name.kind = Kind::Choice(names.leak());
        }
        Ok(tasks)
    }

    /// The built-in ones, where a worker program of somebody's own could not tell its tasks. A
    /// configuration is refused with this reason, and with all that is wrong besides.
    pub fn unanswered(why: String) -> Self {
        let mut tasks = Self::built_in().clone();
        tasks.unanswered = Some(why);
        tasks
    }

    /// The task of this name.
    pub fn named(&self, name: &str) -> Option<&KnownTask> {
        self.known.iter().find(|task| task.definition.name == name)
    }

    /// What each is.
    pub fn definitions(&self) -> impl Iterator<Item = &TaskDefinition> {
        self.known.iter().map(|task| &task.definition)
    }

    /// Those that are not built in.
    pub fn own(&self) -> &[KnownTask] {
        &self.known[BUILT_IN.len()..]
    }

    /// The section of each that is not built in.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Every key of a configuration.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let name = |key: &'static Key| match key.name {
            "model.name" => &self.name,
            _ => key,
        };
        let own = self.sections.iter().flat_map(|section| &section.keys);
        keys::all().map(name).chain(own)
    }

    /// The key of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Key> {
        self.keys().find(|key| key.name == name)
    }
}

/// Whether somebody's own task can stand beside the others.
fn defined(task: &TaskDefinition) -> Result<(), String> {
    let bare = |text: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        !text.is_empty() && text.chars().all(allowed)
    };
    if !bare(task.name) {
        return Err("a name has lower-case letters, digits, - and _".into());
    }
    if keys::sections().any(|section| section.name == task.name) {
        return Err("there is a section of this name".into());
    }
    let mut seen = Vec::new();
    for key in task.keys {
        let own = key.name.strip_prefix(task.name);
        let own = own.and_then(|rest| rest.strip_prefix('.'));
        if !own.is_some_and(bare) {
            return Err(format!(
                "its keys are {}.KEY, not {:?}",
                task.name, key.name
            ));
        }
        if seen.contains(&key.name) {
            return Err(format!("{} is there twice", key.name));
        }
        if let Some(Err(what)) = key.default.map(|default| key.kind.read_text(default)) {
            return Err(format!("the default of {} {what}", key.name));
        }
        seen.push(key.name);
    }
    Ok(())
}

impl PartialEq for Tasks {
    fn eq(&self, other: &Self) -> bool {
        let definitions = |tasks: &Self| -> Vec<TaskDefinition> {
            tasks.known.iter().map(|task| task.definition).collect()
        };
        definitions(self) == definitions(other)
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.known.iter().map(|task| task.definition.name);
        f.debug_list().entries(names).finish()
    }
}
