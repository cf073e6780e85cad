//! `tradewind slurm secrets`: what the batch script does before its steps. Each task gets a secret to enrol with. A job
//! that no lead sees to its end makes them void again when it is over.

use std::path::PathBuf;

use tradewind_folder::found::FoundRun;
use tradewind_folder::member::Member;

use super::identity::job_start;
use super::job::What;
use super::start::Start;
use super::task_secrets::{self, TaskName};
use crate::secrets::identity;

/// What the batch script says.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The run's folder.
    run: PathBuf,
    /// The steps of the job: servers=TASKS, group-NUMBER=TASKS.
    #[arg(required_unless_present = "over", value_name = "STEP", value_parser = Step::parse)]
    steps: Vec<Step>,
    /// The job is over: its secrets are good for nothing any more.
    #[arg(long, conflicts_with = "steps")]
    over: bool,
}

/// A step, and how many tasks it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) what: What,
    pub(super) tasks: u32,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.what {
            What::Servers => write!(f, "servers={}", self.tasks),
            What::Group(group) => write!(f, "group-{group}={}", self.tasks),
        }
    }
}

impl Step {
    fn parse(text: &str) -> Result<Self, String> {
        let read = || {
            let (name, tasks) = text.split_once('=')?;
            let what = match name.strip_prefix("group-") {
                Some(group) => What::Group(group.parse().ok()?),
                None if name == "servers" => What::Servers,
                None => return None,
            };
            let tasks = tasks.parse().ok()?;
            Some(Self { what, tasks })
        };
        read().ok_or_else(|| "a step is servers=TASKS or group-NUMBER=TASKS".to_owned())
    }

    fn members(self) -> impl Iterator<Item = Member> {
        (0..self.tasks).map(move |task| match self.what {
            What::Servers => Member::Server(task),
            What::Group(group) => Member::Rank { group, rank: task },
        })
    }
}

/// Makes the secrets of a job's start, if its tasks speak TLS; those of its earlier starts are void then.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let place = FoundRun::find(Some(&arguments.run))?;
    if arguments.over {
        return task_secrets::forget(&place.fleet, job_start()?);
    }
    make_all(&place, job_start()?, &arguments.steps)
}

fn make_all(place: &FoundRun, start: Start, steps: &[Step]) -> anyhow::Result<()> {
    task_secrets::forget_before(&place.fleet, start)?;
    for member in steps.iter().flat_map(|step| step.members()) {
        // The task of the first server founds the authority; of a fleet's servers a run has none.
        if member != Member::Server(0) {
            let own = identity(&place.config.name, member);
            task_secrets::make(&place.fleet, TaskName::new(start, member), &own)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_as_it_is_written() {
        for (text, what, tasks) in [
            ("servers=3", What::Servers, 3),
            ("group-12=4", What::Group(12), 4),
        ] {
            let step = Step { what, tasks };
            assert_eq!(step.to_string(), text);
            assert_eq!(Step::parse(text), Ok(step));
        }
        for wrong in [
            "",
            "servers",
            "servers=",
            "group=2",
            "group--1=2",
            "ranks=2",
        ] {
            assert!(Step::parse(wrong).is_err(), "{wrong}");
        }
    }
}
