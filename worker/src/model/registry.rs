//! The tasks of a worker program: the built-in ones, and its own.

use std::sync::LazyLock;

use tradewind_config::{
    ClimateBoxes, Config, Cosmoflow, Deepcam, Forecast, Hep, KnownTask, Mnist, Replay, Resnet,
    Task as Chosen, Tasks,
};

use super::{Reading, Task, TaskError, TaskKind};

/// The tasks that every worker program has, a line each.
const BUILT_IN: &[TaskEntry] = &[
    TaskEntry::of::<Forecast>(),
    TaskEntry::of::<Mnist>(),
    TaskEntry::of::<Resnet>(),
    TaskEntry::of::<Replay>(),
    TaskEntry::of::<Cosmoflow>(),
    TaskEntry::of::<Hep>(),
    TaskEntry::of::<Deepcam>(),
    TaskEntry::of::<ClimateBoxes>(),
];

/// A task with its model, or why there is none.
type Built = Result<Box<dyn Task>, TaskError>;

/// A task that can be trained.
#[derive(Clone)]
pub struct TaskEntry {
    known: KnownTask,
    build: fn(&Chosen, &Config) -> Built,
}

impl TaskEntry {
    /// The task whose settings these are.
    pub const fn of<K: TaskKind>() -> Self {
        Self {
            known: KnownTask::of::<K>(),
            build: build::<K>,
        }
    }
}

fn build<K: TaskKind>(chosen: &Chosen, config: &Config) -> Built {
    let settings = K::of(chosen).map_err(|unfit| TaskError::Other(unfit.to_string()))?;
    settings.build(config.seed, &Reading::of(config))
}

/// All tasks of a program.
pub struct Registry {
    entries: Vec<TaskEntry>,
    tasks: Tasks,
}

impl Registry {
    /// The built-in tasks.
    pub fn built_in() -> &'static Self {
        static BUILT: LazyLock<Registry> =
            LazyLock::new(|| Registry::with(Vec::new()).expect("they are right"));
        &BUILT
    }

    /// The built-in tasks and further ones.
    ///
    /// # Errors
    /// Says which definition cannot be, and why.
    pub fn with(own: Vec<TaskEntry>) -> Result<Self, String> {
        let known = own.iter().map(|entry| entry.known.clone());
        Ok(Self {
            tasks: Tasks::with(known.collect())?,
            entries: BUILT_IN.iter().cloned().chain(own).collect(),
        })
    }

    /// What a configuration may choose from.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Opens the data and makes the model of a configuration, with initial values from its seed.
    ///
    /// # Errors
    /// A task that is not here, a setting out of range, or data that cannot be used.
    pub fn build(&self, config: &Config) -> Result<Box<dyn Task>, TaskError> {
        let name = config.task.name();
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.known.definition.name == name);
        let entry = entry
            .ok_or_else(|| TaskError::Other(format!("this worker program has no task {name:?}")))?;
        (entry.build)(&config.task, config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_that_is_configured_can_be_built() {
        let names = |entries: &[TaskEntry]| -> Vec<&str> {
            entries.iter().map(|is| is.known.definition.name).collect()
        };
        let configured = Tasks::built_in().definitions().map(|is| is.name);
        assert_eq!(names(BUILT_IN), configured.collect::<Vec<_>>());
    }
}
