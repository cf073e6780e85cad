//! `tradewind slurm`: runs as jobs of Slurm. Slurm starts, watches and ends them; what is here writes
//! scripts, says who is who inside of a job, and shows jobs beside the runs that they belong to.

mod address;
mod asked;
mod attach;
mod cancel;
mod client;
mod fleet;
mod gave_up;
mod handing_in;
mod job;
mod jobs;
mod lead;
mod queue;
mod render;
mod seat;
mod standing;
mod start;
mod submit;
mod task;
mod visit;

use std::process::ExitCode;

use tradewind_common::exit::Exit;

use crate::runtime::one_thread;
use crate::status;
pub(crate) use asked::check;
pub(crate) use queue::{Queued, is_handed_in, queued};
pub(crate) use standing::abandoned;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the batch script of a run: a component for the servers, and one for each group.
    Render(submit::Render),
    /// Hand a run in, and print its jobs.
    Submit(submit::Submit),
    /// Hand in servers that many runs can be on.
    Serve(submit::Serve),
    /// Hand in more groups for a run under way, as a job of their own.
    Attach(attach::Attach),
    /// Ask a group to leave its run.
    Detach(attach::Detach),
    /// Show the jobs of runs, with Slurm's reasons for those that wait.
    Status(standing::Status),
    /// End all jobs of a run, after a last snapshot.
    Cancel(cancel::Cancel),
    /// Start the server or the rank of this task, again and again: what srun runs.
    #[command(hide = true)]
    Task(task::Arguments),
    /// See a run to its end: what the batch script becomes.
    #[command(hide = true)]
    Lead(lead::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.verb {
        Verb::Task(arguments) => return task::run(arguments),
        Verb::Lead(arguments) => return lead::run(arguments),
        Verb::Render(arguments) => submit::render(arguments),
        Verb::Submit(arguments) => match submit::submit(arguments) {
            Ok(Some(folder)) => return status::follow(&folder),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        },
        Verb::Serve(arguments) => submit::serve(arguments),
        Verb::Attach(arguments) => wait(attach::attach(arguments)),
        Verb::Detach(arguments) => wait(attach::detach(arguments)),
        Verb::Status(arguments) => wait(standing::status(arguments)),
        Verb::Cancel(arguments) => wait(cancel::cancel(arguments)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            match error.is::<tradewind_config::ConfigError>() {
                true => Exit::BadInput.into(),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// Whether a run has jobs that are not over.
pub(crate) fn has_jobs(run: &std::path::Path) -> anyhow::Result<bool> {
    standing::unfinished(run).map(|job| job.is_some())
}

fn wait(done: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    one_thread()?.block_on(done)
}
