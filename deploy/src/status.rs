//! `tradewind status`: how a run stands, from its coordinator, its shards and its folder.

mod follow;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use tokio::time::sleep;

pub(crate) use follow::follow;
use tradewind_folder::clock::wall;
use tradewind_folder::found::FoundRun;
use tradewind_folder::input;
use tradewind_folder::runtime::one_thread;
use tradewind_launch::run::Interruption;
use tradewind_process::Docs;
use tradewind_process::log::say;
use tradewind_watch::{Standing, Watcher, screen, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run's folder; the newest in runs/ if not given.
    run_folder: Option<PathBuf>,
    /// Show it as it changes: on a terminal as a full screen, until `q` or Ctrl-C; else again every second, until
    /// Ctrl-C or the end of the run.
    #[arg(long)]
    watch: bool,
    /// As JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let runtime = one_thread();
    let shown = runtime
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(show(arguments)));
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => input::fail(&error, Docs::WATCHING).into(),
    }
}

async fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let place = FoundRun::find(arguments.run_folder.as_deref())?;
    if arguments.watch && !arguments.json && screen::is_possible() {
        return screen::show(place).await;
    }
    let mut watcher = Watcher::new(place);
    let mut interruption = Interruption::new()?;
    loop {
        let standing = tokio::select! {
            standing = watcher.look() => standing,
            _ = interruption.wait() => return Ok(()),
        };
        let text = if arguments.json {
            serde_json::to_string(&standing)?
        } else {
            table::all(&standing, wall())
        };
        say(text);
        if !arguments.watch || standing.over() {
            return check_kept(&standing);
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = interruption.wait() => return Ok(()),
        }
    }
}

/// An error if nobody keeps the run going, although it has not ended.
fn check_kept(standing: &Standing) -> anyhow::Result<()> {
    match (standing.abandoned, standing.is_slurm) {
        (false, _) => Ok(()),
        (true, false) => {
            bail!("its launcher is gone; `tradewind run CONFIG --resume` goes on from a snapshot")
        }
        (true, true) => {
            bail!(tradewind_launch::slurm::abandoned(standing.is_fleet))
        }
    }
}
