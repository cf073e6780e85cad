//! `tradewind explain`: where the time of a run went, and which keys would help.

use std::path::PathBuf;
use std::process::ExitCode;

use tradewind_folder::found::FoundRun;
use tradewind_folder::input;
use tradewind_process::Docs;
use tradewind_process::log::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run's folder; the newest in runs/ if not given.
    run_folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let place = FoundRun::find(arguments.run_folder.as_deref());
    match place.and_then(tradewind_watch::explain) {
        Ok(paragraphs) => {
            say(paragraphs.join("\n\n"));
            ExitCode::SUCCESS
        }
        Err(error) => input::fail(&error, Docs::WATCHING).into(),
    }
}
