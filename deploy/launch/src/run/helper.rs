//! Verbs of the worker that are no ranks.

use super::{Interruption, Outcome};
use crate::{Keeper, LOOK, Process, Programs, Role, environment};
use tradewind_folder::run::RunFolder;
use tradewind_process::log::say;

/// What they are started with.
pub(super) struct Helper<'a> {
    pub(super) programs: &'a Programs,
    pub(super) folder: &'a RunFolder,
    pub(super) token: &'a str,
}

impl Helper<'_> {
    /// Runs one to its end, and keeps the run's servers going meanwhile.
    pub(super) async fn run(
        &self,
        role: Role,
        arguments: &[String],
        interruption: &mut Interruption,
        mut keeper: Option<&mut Keeper<'_>>,
    ) -> anyhow::Result<Outcome> {
        let verb = match role {
            Role::Evaluation => "evaluate",
            _ => "check",
        };
        let config = self.folder.file("config.toml");
        let mut all = vec![verb.to_owned(), format!("--config={}", config.display())];
        all.extend_from_slice(arguments);
        let log = self.folder.file(&format!("logs/{verb}.log"));
        let environment = environment(self.token);
        let mut process = Process::start(role, &self.programs.worker, &all, &environment, &log)?;
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
