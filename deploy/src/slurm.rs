//! `tradewind slurm`: what people type about jobs, and what Slurm starts.

use std::process::ExitCode;

use tradewind_folder::input;
use tradewind_folder::runtime::one_thread;
use tradewind_launch::slurm;
use tradewind_process::Docs;

use crate::status;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the batch script of a run: a component for the servers, and one for each group.
    Render(slurm::Render),
    /// Submit a run, and print its jobs.
    Submit(slurm::Submit),
    /// Submit a job of servers that many runs can share.
    Serve(slurm::Serve),
    /// Submit more groups for a run under way, as a job of their own.
    Attach(slurm::Attach),
    /// Ask a group to leave its run.
    Detach(slurm::Detach),
    /// Show the jobs of runs, with Slurm's reasons for those that wait.
    Status(slurm::Status),
    /// End all jobs of a run, after a last snapshot.
    Cancel(slurm::Cancel),
    /// Start the server or the rank of this task, again and again: what srun runs.
    #[command(hide = true)]
    Task(slurm::Task),
    /// Make a secret for each task, by which it has a certificate issued: what the batch script does first.
    #[command(hide = true)]
    Secrets(slurm::Secrets),
    /// See a run to its end: what the batch script becomes.
    #[command(hide = true)]
    Lead(slurm::Lead),
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.verb {
        Verb::Task(arguments) => return slurm::task(arguments),
        Verb::Lead(arguments) => return slurm::lead(arguments),
        Verb::Render(arguments) => slurm::render(arguments),
        Verb::Submit(arguments) => match slurm::submit(arguments) {
            Ok(Some(folder)) => return status::follow(&folder),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        },
        Verb::Serve(arguments) => slurm::serve(arguments),
        Verb::Attach(arguments) => wait(slurm::attach(arguments)),
        Verb::Detach(arguments) => wait(slurm::detach(arguments)),
        Verb::Status(arguments) => wait(slurm::status(arguments)),
        Verb::Cancel(arguments) => wait(slurm::cancel(arguments)),
        Verb::Secrets(arguments) => slurm::secrets(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => input::fail(&error, Docs::SLURM).into(),
    }
}

fn wait(done: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    one_thread()?.block_on(done)
}
