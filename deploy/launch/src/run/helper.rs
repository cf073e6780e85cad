//! Verbs of the worker that are no ranks.

use super::{Interruption, Outcome};
use crate::{Keeper, LOOK, Process, Programs, Role, environment};
use tradewind_common::run_files::{CHECK_LOG, EVALUATE_LOG};
use tradewind_folder::run::RunFolder;
use tradewind_process::log::say;
use tradewind_programs::worker::{
    CheckArguments, EvaluateArguments, THREADS, WorkerArguments, WorkerVerb,
};

/// What they are started with.
pub(super) struct Helper<'a> {
    pub(super) programs: &'a Programs,
    pub(super) folder: &'a RunFolder,
    pub(super) token: &'a str,
}

impl Helper<'_> {
    /// Checks data and model, before there are servers.
    pub(super) async fn check(
        &self,
        arguments: CheckArguments,
        interruption: &mut Interruption,
    ) -> anyhow::Result<Outcome> {
        let (role, log) = (Role::Check, CHECK_LOG);
        self.run(role, log, arguments.into(), interruption, None)
            .await
    }

    /// Evaluates the servers' parameters.
    pub(super) async fn evaluate(
        &self,
        arguments: EvaluateArguments,
        interruption: &mut Interruption,
        keeper: &mut Keeper<'_>,
    ) -> anyhow::Result<Outcome> {
        let (role, log) = (Role::Evaluation, EVALUATE_LOG);
        self.run(role, log, arguments.into(), interruption, Some(keeper))
            .await
    }

    /// Runs one to its end, and keeps the run's servers going meanwhile.
    async fn run(
        &self,
        role: Role,
        log: &str,
        arguments: WorkerArguments,
        interruption: &mut Interruption,
        mut keeper: Option<&mut Keeper<'_>>,
    ) -> anyhow::Result<Outcome> {
        let log = self.folder.file(log);
        let threads = match &arguments.verb {
            WorkerVerb::Evaluate(evaluate) => evaluate.threads,
            WorkerVerb::Check(_) | WorkerVerb::Train(_) | WorkerVerb::Tasks(_) => THREADS,
        };
        let environment = environment(self.token, threads);
        let command = self.programs.rank.command(&arguments, &environment)?;
        let mut process = Process::start_command(role, command, &log)?;
        loop {
            match process.poll()? {
                Some(ended) if ended.success => return Ok(Outcome::Completed),
                Some(ended) => return Ok(Outcome::Failed(ended.into())),
                None => {}
            }
            if let Some(keeper) = &mut keeper {
                let found = keeper.look()?;
                found.messages.iter().for_each(say);
                if let Some(failure) = found.failure {
                    Process::stop_all(vec![&mut process]);
                    return Ok(Outcome::Failed(failure));
                }
            }
            tokio::select! {
                by = interruption.wait() => {
                    say(format_args!("{by}: ending {role}"));
                    Process::stop_all(vec![&mut process]);
                    return Ok(Outcome::Interrupted);
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}
