//! A task that a configuration may choose, and who checks its settings.

use std::sync::Arc;

use super::{Task, TaskDefinition, TaskSettings, Unfit};

/// A task, and how its settings are checked.
#[derive(Clone)]
pub struct KnownTask {
    /// What it is.
    pub definition: TaskDefinition,
    check: Check,
}

/// Finds what does not fit together.
type CheckElsewhere = dyn Fn(&Task) -> Vec<Unfit> + Send + Sync;

/// How settings are checked.
#[derive(Clone)]
enum Check {
    /// Here.
    Here(fn(&Task) -> Vec<Unfit>),
    /// By whoever knows the task.
    Elsewhere(Arc<CheckElsewhere>),
    /// They have been.
    Done,
}

impl KnownTask {
    /// A task whose settings are known here.
    pub const fn of<S: TaskSettings>() -> Self {
        Self {
            definition: S::DEFINITION,
            check: Check::Here(check::<S>),
        }
    }

    /// A task whose settings `check` has somebody else look at.
    pub fn elsewhere(
        definition: TaskDefinition,
        check: impl Fn(&Task) -> Vec<Unfit> + Send + Sync + 'static,
    ) -> Self {
        Self {
            definition,
            check: Check::Elsewhere(Arc::new(check)),
        }
    }

    /// A task of a configuration that has been checked before.
    pub fn recorded(definition: TaskDefinition) -> Self {
        Self {
            definition,
            check: Check::Done,
        }
    }

    /// What does not fit together in its settings.
    pub fn check(&self, task: &Task) -> Vec<Unfit> {
        match &self.check {
            Check::Here(check) => check(task),
            Check::Elsewhere(check) => check(task),
            Check::Done => Vec::new(),
        }
    }
}

fn check<S: TaskSettings>(task: &Task) -> Vec<Unfit> {
    match S::of(task) {
        Ok(settings) => {
            let mut found = Vec::new();
            settings.check(&mut |key, problem| found.push(Unfit { key, problem }));
            found
        }
        Err(unfit) => vec![unfit],
    }
}
