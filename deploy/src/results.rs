//! What a run leaves at its end: summary, pictures, and the table on the terminal.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tradewind_common::exit::Exit;
use tradewind_common::loss::Loss;
use tradewind_common::record::{Evaluation, StepRecord};
use tradewind_config::Config;
use tradewind_server::snapshot::{Folder, manifest};

use crate::cluster::ClusterStatus;
use crate::events::Events;
use crate::failure::{Cause, Failure};
use crate::folder::RunFolder;
use crate::lines::Metrics;
use crate::report::forecast::draw_forecast;
use crate::report::loss::draw_loss;
use crate::report::maps::Maps;
use crate::report::table;
use crate::say;
use crate::summary::{Inputs, Status, Summary};

/// How a run ended.
pub(crate) struct End {
    pub(crate) status: Status,
    /// What ended it, if it has failed.
    pub(crate) failure: Option<Cause>,
    /// What the servers told at the end; `None` if they could not be asked.
    pub(crate) cluster: Option<ClusterStatus>,
    /// What restored shards have lost, as the coordinator told last; `None` if it never did.
    pub(crate) lost: Option<Loss>,
    /// The snapshot that it went on from.
    pub(crate) resumed_from: Option<u64>,
    pub(crate) wall: Duration,
}

/// Writes the summary first, then the pictures; a picture that cannot be made is told and costs
/// nothing else. With what the run ends: a completed one whose results cannot be read has failed.
///
/// `fleet` is the folder of the servers: the run's own, or one that other runs have as well.
pub(crate) fn finish(
    config: &Config,
    folder: &RunFolder,
    fleet: &Path,
    mut end: End,
) -> anyhow::Result<Exit> {
    let records = latest(read(Metrics::new(folder.file("metrics.jsonl"))));
    let events = Events::of(fleet, &config.name).all();
    let evaluation = match end.status {
        Status::Completed => match read_evaluation(folder.path()) {
            Ok(evaluation) => Some(evaluation),
            Err(error) => {
                eprintln!("the run failed: {error:#}");
                end.status = Status::Failed;
                end.failure = Some(Failure::from(error).cause);
                None
            }
        },
        _ => None,
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
    Ok(summary.exit())
}

/// All records of a file, as far as it can be read; complaints are told.
fn read(mut lines: Metrics) -> Vec<StepRecord> {
    let records = lines.fresh().unwrap_or_else(|error| {
        eprintln!("{}: {error}", lines.path().display());
        Vec::new()
    });
    if let Some(complaint) = lines.complaint() {
        eprintln!("{complaint}");
    }
    records
}

/// What counts of the records: a resumed run trains again what came after its snapshot, and what a
/// group had done from there on the first time is lost.
pub(crate) fn latest(records: Vec<StepRecord>) -> Vec<StepRecord> {
    let mut lowest: HashMap<u32, u64> = HashMap::new();
    let mut kept: Vec<StepRecord> = records
        .into_iter()
        .rev()
        .filter(|record| {
            let later = lowest.entry(record.group).or_insert(u64::MAX);
            let counts = record.clock < *later;
            *later = record.clock.min(*later);
            counts
        })
        .collect();
    kept.reverse();
    kept
}

/// The evaluation of the run in this folder.
pub(crate) fn read_evaluation(folder: &Path) -> anyhow::Result<Evaluation> {
    let path = folder.join("evaluation.json");
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
    if evaluation.is_some_and(|evaluation| !evaluation.picture.is_empty()) {
        let maps = Maps::read(&folder.file("forecast.safetensors"))?;
        draw_forecast(&maps, &folder.file("forecast.png"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::loss::tests::run;

    #[test]
    fn what_was_trained_again_counts_once() {
        let first = run(1, 5);
        let mut all = first.clone();
        all.extend(first[3..].iter().map(|record| StepRecord {
            wall: record.wall + 100.0,
            ..record.clone()
        }));
        let kept = latest(all);
        assert_eq!(kept.len(), first.len());
        assert_eq!(kept[..3], first[..3]);
        assert_eq!(kept[3].wall, first[3].wall + 100.0);
    }
}
