//! `tradewind snapshot`: has a snapshot of a run taken now.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use tradewind_folder::found::FoundRun;
use tradewind_folder::input;
use tradewind_folder::runtime::one_thread;
use tradewind_process::Docs;
use tradewind_process::log::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run's folder; the newest in runs/ if not given.
    run_folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match take(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => input::fail(&error, Docs::SNAPSHOTS).into(),
    }
}

fn take(arguments: &Arguments) -> anyhow::Result<()> {
    let place = FoundRun::find(arguments.run_folder.as_deref())?;
    let name = &place.config.name;
    if let Some(ended) = place.ended() {
        return Err(anyhow!("run {name} is over ({ended}); its snapshots stay"));
    }
    let there = place.coordinator()?;
    let there = there.with_context(|| format!("run {name} has no coordinator yet; try again"))?;
    let access = place.access()?;
    let runtime = one_thread()?;
    let taken = runtime.block_on(access.snapshot(&there.address, name));
    let taken = taken
        .map_err(|status| anyhow!("no snapshot of run {name} was taken: {}", status.message()))?;
    say(format_args!(
        "snapshot {} is in {}",
        taken.number, taken.folder
    ));
    Ok(())
}
