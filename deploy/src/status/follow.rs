//! Follows a run that jobs of Slurm keep going, shown as `tradewind run` shows its own: a line for each
//! group, a bar over the samples, and what happens.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use tokio::time::sleep;
use tradewind_common::exit::Exit;

use super::{PAUSE, check_kept};
use tradewind_folder::events::Events;
use tradewind_folder::found::{FoundRun, exit};
use tradewind_folder::input;
use tradewind_folder::lines::Metrics;
use tradewind_folder::records::read_evaluation;
use tradewind_folder::runtime::one_thread;
use tradewind_launch::progress::Progress;
use tradewind_launch::run::Interruption;
use tradewind_process::Docs;
use tradewind_process::log::say;
use tradewind_watch::{Watcher, table};

/// Shows a run until it ends; Ctrl-C leaves it alone.
pub(crate) fn follow(run: &Path) -> ExitCode {
    let runtime = one_thread().map_err(Into::into);
    match runtime.and_then(|runtime| runtime.block_on(until_end(run))) {
        Ok(code) => code,
        Err(error) => input::fail(&error, Docs::WATCHING).into(),
    }
}

async fn until_end(run: &Path) -> anyhow::Result<ExitCode> {
    let place = FoundRun::find(Some(run))?;
    let path = place.path.clone();
    let mut interruption = Interruption::new()?;
    let mut shown = Shown::new(&place);
    let mut watcher = Watcher::new(place);
    let ended = loop {
        shown.fresh();
        let standing = tokio::select! {
            standing = watcher.look() => standing,
            _ = interruption.wait() => return Ok(shown.leave(&path)),
        };
        shown.jobs(table::jobs(&standing));
        if standing.over() {
            shown.fresh();
            shown.progress.finish();
            check_kept(&standing)?;
            break standing.ended.unwrap_or_default();
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = interruption.wait() => return Ok(shown.leave(&path)),
        }
    };
    if let Ok(evaluation) = read_evaluation(&path) {
        say(tradewind_folder::closing::metric(&evaluation));
    }
    say(format_args!("{ended}; the run is in {}", path.display()));
    Ok(exit(&path).unwrap_or(Exit::Failed).into())
}

/// What is shown, and how far what is shown of has been read.
struct Shown {
    progress: Progress,
    metrics: Metrics,
    events: Events,
    /// What was last told of the jobs.
    jobs: Vec<String>,
}

impl Shown {
    fn new(place: &FoundRun) -> Self {
        let config = &place.config;
        let interactive = std::io::stderr().is_terminal();
        let out = Box::new(std::io::stdout());
        let groups = config.cluster.groups.len();
        Self {
            progress: Progress::new(groups, config.train.samples, interactive, out),
            metrics: Metrics::new(place.path.join("metrics.jsonl")),
            events: place.events(),
            jobs: Vec::new(),
        }
    }

    /// Shows what has been written down since; what cannot be read now is read with the next look.
    fn fresh(&mut self) {
        for record in self.metrics.fresh().unwrap_or_default() {
            self.progress.record(&record);
        }
        for event in self.events.fresh().unwrap_or_default() {
            if event.is_shown() {
                self.progress.message(&event.text);
            }
        }
    }

    /// Shows how jobs that do not run stand, where that has changed.
    fn jobs(&mut self, jobs: Vec<String>) {
        for text in &jobs {
            if !self.jobs.contains(text) {
                self.progress.message(text);
            }
        }
        self.jobs = jobs;
    }

    /// The run goes on.
    fn leave(self, path: &Path) -> ExitCode {
        self.progress.finish();
        let path = path.display();
        say(format_args!(
            "the run goes on; `tradewind status {path}` shows it, `tradewind slurm cancel {path}` ends it"
        ));
        ExitCode::SUCCESS
    }
}
