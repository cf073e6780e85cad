//! Verbs of the worker that are no ranks.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use super::{Interruption, Outcome};
use crate::secrets::rank;
use crate::{Keeper, LOOK, Process, Programs, Role, Secrets};
use tradewind_common::RunId;
use tradewind_common::run_files::{CHECK_LOG, evaluate_log};
use tradewind_folder::run::RunFolder;
use tradewind_process::log::say;
use tradewind_programs::worker::{
    CheckArguments, EvaluateArguments, THREADS, WorkerArguments, WorkerVerb,
};

/// What they are started with.
pub(super) struct Helper<'a> {
    pub(super) programs: &'a Programs,
    pub(super) folder: &'a RunFolder,
    pub(super) secrets: &'a Secrets,
    pub(super) run: &'a RunId,
}

impl Helper<'_> {
    /// Checks data and model, before there are servers.
    pub(super) async fn check(
        &self,
        arguments: CheckArguments,
        interruption: &mut Interruption,
    ) -> anyhow::Result<Outcome> {
        let one = self.start(Role::Check, CHECK_LOG, arguments.into())?;
        follow(vec![one], interruption, None).await
    }

    /// Evaluates the servers' parameters, by a process or by the ranks of a group.
    pub(super) async fn evaluate(
        &self,
        ranks: Vec<EvaluateArguments>,
        interruption: &mut Interruption,
        keeper: &mut Keeper<'_>,
    ) -> anyhow::Result<Outcome> {
        let mut processes = Vec::new();
        for arguments in ranks {
            let log = evaluate_log(arguments.rank);
            processes.push(self.start(Role::Evaluation, &log, arguments.into())?);
        }
        follow(processes, interruption, Some(keeper)).await
    }

    fn start(&self, role: Role, log: &str, arguments: WorkerArguments) -> anyhow::Result<Process> {
        let log = self.folder.file(log);
        let (threads, group) = match &arguments.verb {
            // One process that evaluates alone reads as a rank of the first group does.
            WorkerVerb::Evaluate(evaluate) => (evaluate.threads, evaluate.group.unwrap_or(0)),
            WorkerVerb::Check(_) | WorkerVerb::Train(_) | WorkerVerb::Tasks(_) => (THREADS, 0),
        };
        let environment = self
            .secrets
            .environment(&rank(self.run, group, None), threads)?;
        let command = self.programs.rank.command(&arguments, &environment)?;
        Process::start_command(role, command, &log)
    }
}

/// When somebody wrote into a log last; who wrote nothing comes after all others.
fn last_words(log: &Path) -> (bool, Option<SystemTime>) {
    let written = fs::metadata(log).ok().filter(|log| log.len() > 0);
    (
        written.is_none(),
        written.and_then(|log| log.modified().ok()),
    )
}

/// Sees processes to their end, and keeps the run's servers going meanwhile. Where one of them fails, the others
/// are ended.
async fn follow(
    mut processes: Vec<Process>,
    interruption: &mut Interruption,
    mut keeper: Option<&mut Keeper<'_>>,
) -> anyhow::Result<Outcome> {
    let stop = |processes: &mut Vec<Process>| Process::stop_all(processes.iter_mut().collect());
    loop {
        let mut ended = 0;
        let mut failed = Vec::new();
        for process in &mut processes {
            match process.poll()? {
                Some(end) if end.success => ended += 1,
                Some(end) => failed.push(end),
                None => {}
            }
        }
        // Where several have failed since it was looked last, most lost their connection to the one that failed first.
        let first = failed.into_iter().min_by_key(|end| last_words(&end.log));
        if let Some(end) = first {
            stop(&mut processes);
            return Ok(Outcome::Failed(end.into()));
        }
        if ended == processes.len() {
            return Ok(Outcome::Completed);
        }
        if let Some(keeper) = &mut keeper {
            let found = keeper.look()?;
            found.messages.iter().for_each(say);
            if let Some(failure) = found.failure {
                stop(&mut processes);
                return Ok(Outcome::Failed(failure));
            }
        }
        tokio::select! {
            by = interruption.wait() => {
                if let Some(process) = processes.first() {
                    say(format_args!("{by}: ending {}", process.role()));
                }
                stop(&mut processes);
                return Ok(Outcome::Interrupted);
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
