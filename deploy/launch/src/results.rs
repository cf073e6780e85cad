//! What a run leaves at its end: summary, pictures, and the table on the terminal.

use std::path::Path;
use std::time::Duration;

use tradewind_common::exit::Exit;
use tradewind_common::loss::Loss;
use tradewind_common::record::{Evaluation, StepRecord};
use tradewind_common::run_files;
use tradewind_config::Config;
use tradewind_server::snapshot::{Folder, manifest};

use crate::board;
use tradewind_folder::closing;
use tradewind_folder::cluster::ClusterStatus;
use tradewind_folder::events::Events;
use tradewind_folder::failure::{Cause, Failure};
use tradewind_folder::lines::Metrics;
use tradewind_folder::records::{latest, read_evaluation};
use tradewind_folder::run::RunFolder;
use tradewind_folder::summary::{Inputs, RunOutcome, Summary};
use tradewind_process::log::say;
use tradewind_report::forecast::draw_forecast;
use tradewind_report::loss::draw_loss;
use tradewind_report::maps::Maps;
use tradewind_report::roc::draw_roc;
use tradewind_report::scatter::draw_scatters;

/// What is said of a run whose evaluation has found nothing.
const NOT_EVALUATED: &str =
    "the script has registered no function with @rank.evaluate, so the summary has no metric";

/// How a run ended.
pub struct End {
    /// In what way.
    pub status: RunOutcome,
    /// What ended it, if it has failed.
    pub failure: Option<Cause>,
    /// What the servers told at the end; `None` if they could not be asked.
    pub cluster: Option<ClusterStatus>,
    /// What restored shards have lost, as the coordinator told last; `None` if it never did.
    pub lost: Option<Loss>,
    /// The snapshot that it went on from.
    pub resumed_from: Option<u64>,
    /// Seconds from its start to its end.
    pub wall: Duration,
}

/// Writes the summary first, then the pictures; a picture that cannot be made is told and costs
/// nothing else. With what the run ends: a completed one whose results cannot be read has failed.
///
/// `fleet` is the folder of the servers: the run's own, or one that other runs have as well.
pub fn finish(
    config: &Config,
    folder: &RunFolder,
    fleet: &Path,
    mut end: End,
) -> anyhow::Result<Exit> {
    let records = latest(read(Metrics::new(folder.file(run_files::METRICS))));
    let events = Events::of(fleet, &config.name).all();
    let evaluation = match end.status {
        // Not every script has something to evaluate with.
        RunOutcome::Completed
            if config.is_script() && !folder.file(run_files::EVALUATION).exists() =>
        {
            say(NOT_EVALUATED);
            None
        }
        RunOutcome::Completed => match read_evaluation(folder.path()) {
            Ok(evaluation) => Some(evaluation),
            Err(error) => {
                tradewind_process::complain!("the run failed: {error:#}");
                end.status = RunOutcome::Failed;
                end.failure = Some(Failure::from(error).cause);
                None
            }
        },
        RunOutcome::Failed | RunOutcome::Interrupted => None,
    };
    let snapshots = manifest::list(&Folder::new(fleet), &config.name);
    let inputs = Inputs {
        status: end.status,
        failure: end.failure,
        wall_seconds: end.wall.as_secs_f64(),
        records: &records,
        events: &events,
        snapshot: snapshots.ok().and_then(|numbers| numbers.last().copied()),
        resumed_from: end.resumed_from,
        cluster: end.cluster.as_ref(),
        lost: end.lost,
        evaluation: evaluation.as_ref(),
    };
    let summary = Summary::new(config, inputs);
    folder.write(run_files::SUMMARY, &serde_json::to_string_pretty(&summary)?)?;
    if let Some(evaluation) = &evaluation
        && let Some(told) = board::measured(config, folder.path(), evaluation)
    {
        tradewind_process::complain!("{told}");
    }
    for drawn in [
        draw_records(folder, &records),
        draw_maps(folder, evaluation.as_ref()),
        draw_evaluated(folder, evaluation.as_ref()),
    ] {
        if let Err(error) = drawn {
            tradewind_process::complain!("a picture is missing: {error:#}");
        }
    }
    if let Some(evaluation) = &evaluation {
        say(closing::metric(evaluation));
    }
    say(closing::closing(&summary, folder.path()));
    Ok(summary.exit())
}

/// All records of a file, as far as it can be read; complaints are told.
fn read(mut lines: Metrics) -> Vec<StepRecord> {
    let records = lines.fresh().unwrap_or_else(|error| {
        tradewind_process::complain!("{}: {error}", lines.path().display());
        Vec::new()
    });
    if let Some(complaint) = lines.complaint() {
        tradewind_process::complain!("{complaint}");
    }
    records
}

fn draw_records(folder: &RunFolder, records: &[StepRecord]) -> anyhow::Result<()> {
    if !records.is_empty() {
        draw_loss(records, &folder.file("loss.png"), &folder.file("loss.svg"))?;
    }
    Ok(())
}

fn draw_maps(folder: &RunFolder, evaluation: Option<&Evaluation>) -> anyhow::Result<()> {
    if evaluation.is_some_and(|evaluation| !evaluation.picture.is_empty()) {
        let maps = Maps::read(&folder.file("forecast.safetensors"))?;
        draw_forecast(&maps, &folder.file("forecast.png"))?;
    }
    Ok(())
}

fn draw_evaluated(folder: &RunFolder, evaluation: Option<&Evaluation>) -> anyhow::Result<()> {
    let Some(Evaluation {
        curves, scatters, ..
    }) = evaluation
    else {
        return Ok(());
    };
    if !curves.is_empty() {
        draw_roc(curves, &folder.file("roc.png"))?;
    }
    if !scatters.is_empty() {
        draw_scatters(scatters, &folder.file("predicted.png"))?;
    }
    Ok(())
}
