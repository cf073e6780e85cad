//! What a run leaves at its end: summary, pictures, and the table on the terminal.

use std::time::Duration;

use anyhow::Context;
use tradewind_common::config::Config;
use tradewind_common::record::{Evaluation, StepRecord};

use crate::cluster::ClusterStatus;
use crate::folder::RunFolder;
use crate::metrics::Metrics;
use crate::report::forecast::draw_forecast;
use crate::report::loss::draw_loss;
use crate::report::maps::Maps;
use crate::report::table;
use crate::say;
use crate::summary::{Fault, Inputs, Status, Summary};

/// Writes the summary first, then the pictures; a picture that cannot be made is told and costs
/// nothing else. How the run ended: a completed one whose results cannot be read has failed.
pub(crate) fn finish(
    config: &Config,
    folder: &RunFolder,
    (mut status, mut faults): (Status, Vec<Fault>),
    cluster: Option<ClusterStatus>,
    wall: Duration,
) -> anyhow::Result<Status> {
    let mut metrics = Metrics::new(folder.file("metrics.jsonl"));
    let records = metrics.fresh().unwrap_or_else(|error| {
        eprintln!("metrics.jsonl cannot be read: {error}");
        Vec::new()
    });
    if let Some(complaint) = metrics.complaint() {
        eprintln!("{complaint}");
    }
    let evaluation = match status {
        Status::Completed => match read_evaluation(folder) {
            Ok(evaluation) => Some(evaluation),
            Err(error) => {
                eprintln!("the run failed: {error:#}");
                status = Status::Failed;
                faults.push(Fault::of_launcher(format!("{error:#}")));
                None
            }
        },
        _ => None,
    };
    let inputs = Inputs {
        status,
        faults,
        wall_seconds: wall.as_secs_f64(),
        records: &records,
        cluster: cluster.as_ref(),
        evaluation: evaluation.as_ref(),
    };
    let summary = Summary::new(config, inputs);
    folder.write("summary.json", &serde_json::to_string_pretty(&summary)?)?;
    for drawn in [
        draw_records(folder, &records),
        draw_maps(folder, evaluation.as_ref()),
    ] {
        if let Err(error) = drawn {
            eprintln!("a picture is missing: {error:#}");
        }
    }
    if let Some(evaluation) = &evaluation {
        say(table::metric(evaluation));
    }
    say(table::closing(&summary, folder.path()));
    Ok(status)
}

fn read_evaluation(folder: &RunFolder) -> anyhow::Result<Evaluation> {
    let path = folder.file("evaluation.json");
    let name = || format!("reading {}", path.display());
    serde_json::from_str(&std::fs::read_to_string(&path).with_context(name)?).with_context(name)
}

fn draw_records(folder: &RunFolder, records: &[StepRecord]) -> anyhow::Result<()> {
    if !records.is_empty() {
        draw_loss(records, &folder.file("loss.png"), &folder.file("loss.svg"))?;
    }
    Ok(())
}

fn draw_maps(folder: &RunFolder, evaluation: Option<&Evaluation>) -> anyhow::Result<()> {
    if evaluation.is_some() {
        let maps = Maps::read(&folder.file("forecast.safetensors"))?;
        draw_forecast(&maps, &folder.file("forecast.png"))?;
    }
    Ok(())
}
