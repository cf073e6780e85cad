//! `summary.json`; docs/run-folder.md explains every key.

use std::collections::BTreeMap;

use serde::Serialize;
use tradewind_common::exit::Exit;
use tradewind_common::holders::Holders;
use tradewind_common::loss::Loss as Lost;
use tradewind_common::record::{Better, Evaluation, Measure, StepRecord};
use tradewind_config::Config;
use tradewind_proto::v1::ShardStatusReply;

use crate::cluster::{ClusterStatus, holding};
use crate::events::Event;
use crate::failure::Cause;

/// Sentences about what was mended.
const RECOVERED_MAX: usize = 100;

/// Events that say that updates were lost, that a shard was restored, and that a damaged snapshot was
/// passed over.
const LOST: &str = "updates_lost";
const RESTORED: &str = "restored";
const DAMAGED: &str = "damaged_snapshot";

/// Exchanges of each group whose mean is the final loss.
const FINAL_EXCHANGES: usize = 10;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// The budget was applied.
    Completed,
    /// It could not go on.
    Failed,
    /// Somebody ended it.
    Interrupted,
}

/// Decisions on (group, clock, block), summed over shards; `None` when the servers could not be
/// asked.
#[derive(Clone, Debug, Serialize)]
struct Updates {
    applied: u64,
    skipped: u64,
    dropped: u64,
    duplicate: u64,
    refused: u64,
}

/// Bytes of values in all exchanges, as they travelled; `None` when the servers could not be asked.
#[derive(Clone, Debug, Serialize)]
struct Exchanged {
    pushed_bytes: u64,
    pulled_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Samples {
    budget: u64,
    applied: u64,
    unused: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct Group {
    id: u32,
    ranks: u32,
    clocks: u64,
    samples: u64,
    skipped: u64,
    overflowed: u64,
    data_seconds: f64,
    data_p50: f64,
    data_p99: f64,
    utilization: f64,
    staged_bytes: u64,
    staged_seconds: f64,
    compute_seconds: f64,
    reduce_seconds: f64,
    exchange_seconds: f64,
    exposed_seconds: f64,
    wait_seconds: f64,
    lag_max: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Shard {
    server: u32,
    /// Servers that had a full copy of it.
    copies: Vec<u32>,
    bytes: u64,
    blocks: u64,
    updates: u64,
    version_min: u64,
    version_max: u64,
    /// The explicit momentum of its last update, where that is not the optimizer's own.
    momentum: Option<f64>,
}

/// Updates between pull and application, per contribution and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Delay {
    p50: u64,
    p99: u64,
    max: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Loss {
    first: Option<f64>,
    r#final: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct Baseline {
    name: String,
    value: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Metric {
    name: String,
    unit: String,
    value: f64,
    better: Better,
    validation: Measure,
    baselines: Vec<Baseline>,
}

/// What went wrong without ending the run, and how it was mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Faults {
    /// Events by their kind.
    counts: BTreeMap<String, u64>,
    /// The first of what was mended, in words.
    recovered: Vec<String>,
    /// What restored shards have lost; `null` if nobody could tell at the end.
    lost: Option<Lost>,
    /// How often a shard was restored from a snapshot.
    restored: u64,
    /// How often a damaged snapshot was passed over for that.
    damaged_snapshots: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Snapshots {
    newest: Option<u64>,
}

/// What a run came to.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    run: String,
    /// Of `tradewind`.
    version: &'static str,
    /// Version of the libtorch that evaluated.
    libtorch: Option<String>,
    /// How it ended.
    pub status: RunOutcome,
    /// What `tradewind run` returns.
    pub exit_status: u8,
    seed: u64,
    /// Seconds from its start to its end.
    pub wall_seconds: f64,
    /// Seconds from the first exchange to the last.
    pub train_seconds: f64,
    samples: Samples,
    updates: Option<Updates>,
    exchanged: Option<Exchanged>,
    groups: Vec<Group>,
    shards: Vec<Shard>,
    delay: Option<Delay>,
    loss: Loss,
    metric: Option<Metric>,
    params_digest: Option<String>,
    /// What ended the run before its end.
    failure: Option<Cause>,
    faults: Faults,
    snapshots: Snapshots,
    /// The snapshot that it went on from.
    pub resumed_from: Option<u64>,
}

/// What a summary is made from.
pub struct Inputs<'a> {
    /// How it ended.
    pub status: RunOutcome,
    /// What ended it, if it has failed.
    pub failure: Option<Cause>,
    /// Seconds from its start to its end.
    pub wall_seconds: f64,
    /// Rows of `metrics.jsonl` that count.
    pub records: &'a [StepRecord],
    /// What happened.
    pub events: &'a [Event],
    /// The newest snapshot.
    pub snapshot: Option<u64>,
    /// The snapshot that it went on from.
    pub resumed_from: Option<u64>,
    /// What the servers told at the end.
    pub cluster: Option<&'a ClusterStatus>,
    /// What restored shards have lost, if anybody could tell.
    pub lost: Option<Lost>,
    /// The evaluation, if there was one.
    pub evaluation: Option<&'a Evaluation>,
}

impl Summary {
    /// The summary of a run with this configuration.
    pub fn new(config: &Config, inputs: Inputs<'_>) -> Self {
        let Inputs {
            records,
            cluster,
            evaluation,
            ..
        } = inputs;
        let sizes = config.cluster.groups.iter().enumerate();
        // In part they would say less than nothing.
        let shards: Option<Vec<ShardStatusReply>> =
            cluster.and_then(|cluster| cluster.shards.iter().cloned().collect());
        let told = shards.as_deref().unwrap_or(&[]);
        let faults = faults(inputs.events, inputs.lost);
        let exit = exit(inputs.status, inputs.failure.as_ref(), faults.are_lossy());
        Self {
            run: config.name.to_string(),
            version: crate::VERSION,
            libtorch: evaluation.map(|evaluation| evaluation.libtorch.clone()),
            status: inputs.status,
            exit_status: exit.number(),
            seed: config.seed,
            wall_seconds: inputs.wall_seconds,
            train_seconds: train_seconds(records),
            samples: Samples {
                budget: config.train.samples,
                applied: applied(records),
                unused: cluster.map(|cluster| cluster.run.samples_unused),
            },
            updates: shards.as_deref().map(updates),
            exchanged: shards.as_deref().map(|shards| Exchanged {
                pushed_bytes: shards.iter().map(|shard| shard.pushed_bytes).sum(),
                pulled_bytes: shards.iter().map(|shard| shard.pulled_bytes).sum(),
            }),
            groups: sizes
                .map(|(id, ranks)| group(id as u32, *ranks, records))
                .collect(),
            shards: told.iter().zip(copies(cluster)).map(shard).collect(),
            delay: delay(told.iter().map(|shard| shard.delays.as_slice())),
            loss: loss(records),
            metric: evaluation.map(metric),
            params_digest: evaluation.map(|evaluation| evaluation.params_digest.clone()),
            failure: inputs.failure,
            faults,
            snapshots: Snapshots {
                newest: inputs.snapshot,
            },
            resumed_from: inputs.resumed_from,
        }
    }

    /// How the run ended, as its process says it.
    pub fn exit(&self) -> Exit {
        Exit::of(self.exit_status.into()).expect("it was made from one")
    }

    /// What was lost, in words; `None` if nothing is known to be.
    pub fn lost(&self) -> Option<String> {
        let said = |lost: Lost| format!("{lost} that were acknowledged are lost");
        let unknown = || "updates that were acknowledged are lost".to_owned();
        let lost = self.faults.are_lossy();
        lost.then(|| self.faults.lost.map_or_else(unknown, said))
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshots.newest
    }

    /// Steps of all groups that were skipped because scaled gradients overflowed.
    pub fn overflowed(&self) -> u64 {
        self.groups.iter().map(|group| group.overflowed).sum()
    }
}

/// What counts against the budget: of a gradient that was dropped nothing, whatever its group trained.
fn applied(records: &[StepRecord]) -> u64 {
    let applied = records.iter().map(|record| record.samples_applied);
    applied.max().unwrap_or(0)
}

/// From the beginning of the first step to the end of the last exchange.
fn train_seconds(records: &[StepRecord]) -> f64 {
    let first = records
        .iter()
        .map(StepRecord::begun)
        .fold(f64::INFINITY, f64::min);
    let last = records
        .iter()
        .map(|r| r.wall)
        .fold(f64::NEG_INFINITY, f64::max);
    if records.is_empty() {
        0.0
    } else {
        last - first
    }
}

fn updates(shards: &[ShardStatusReply]) -> Updates {
    let mut sum = Updates {
        applied: 0,
        skipped: 0,
        dropped: 0,
        duplicate: 0,
        refused: 0,
    };
    for shard in shards {
        sum.applied += shard.applied;
        sum.skipped += shard.skipped;
        sum.dropped += shard.dropped;
        sum.duplicate += shard.duplicate;
        sum.refused += shard.refused;
    }
    sum
}

impl Faults {
    /// Whether updates were lost. Where the servers could not tell at the end, an event may have.
    fn are_lossy(&self) -> bool {
        match self.lost {
            Some(lost) => !lost.is_none(),
            None => self.counts.contains_key(LOST),
        }
    }
}

/// With what a run ends.
fn exit(status: RunOutcome, failure: Option<&Cause>, lossy: bool) -> Exit {
    match status {
        RunOutcome::Completed if lossy => Exit::DoneWithLosses,
        RunOutcome::Completed => Exit::Done,
        RunOutcome::Failed if failure.and_then(Cause::exit) == Some(Exit::Lost) => Exit::Lost,
        RunOutcome::Failed => Exit::Failed,
        RunOutcome::Interrupted => Exit::Interrupted,
    }
}

fn faults(events: &[Event], lost: Option<Lost>) -> Faults {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event.is_fault()) {
        *counts.entry(event.kind.clone()).or_default() += 1;
    }
    let mended = events.iter().filter(|event| event.is_mended());
    let recovered = mended.map(|event| event.text.clone());
    let count = |kind: &str| counts.get(kind).copied().unwrap_or_default();
    Faults {
        recovered: recovered.take(RECOVERED_MAX).collect(),
        lost,
        restored: count(RESTORED),
        damaged_snapshots: count(DAMAGED),
        counts,
    }
}

fn group(id: u32, ranks: u32, records: &[StepRecord]) -> Group {
    let own = || records.iter().filter(|r| r.group == id);
    // Rows that were merged count as so many exchanges of their mean.
    let wait = |r: &StepRecord| (r.data_seconds / r.exchanges as f64, r.exchanges);
    let mut waits: Vec<(f64, u64)> = own().map(wait).collect();
    waits.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
    Group {
        id,
        ranks,
        clocks: own().map(|r| r.exchanges).sum(),
        samples: own().map(|r| r.samples).sum(),
        skipped: own().filter(|r| r.skipped).map(|r| r.exchanges).sum(),
        overflowed: own().filter(|r| r.overflowed).map(|r| r.exchanges).sum(),
        data_seconds: own().map(|r| r.data_seconds).sum(),
        data_p50: quantile(&waits, 0.5),
        data_p99: quantile(&waits, 0.99),
        utilization: utilization(own()),
        staged_bytes: own().map(|r| r.staged_bytes).sum(),
        staged_seconds: own().map(|r| r.staged_seconds).sum(),
        compute_seconds: own().map(|r| r.compute_seconds).sum(),
        reduce_seconds: own().map(|r| r.reduce_seconds).sum(),
        exchange_seconds: own().map(|r| r.exchange_seconds).sum(),
        exposed_seconds: own().map(|r| r.exposed_seconds).sum(),
        wait_seconds: own().map(|r| r.wait_seconds).sum(),
        lag_max: own().map(|r| r.lag).max().unwrap_or(0),
    }
}

/// The least of sorted values, each with how often it is there, up to which so great a part of all lies; 0 without
/// any.
fn quantile(sorted: &[(f64, u64)], part: f64) -> f64 {
    let all: u64 = sorted.iter().map(|(_, count)| count).sum();
    let mut passed = 0;
    let reaches = |count: u64| {
        passed += count;
        passed as f64 >= part * all as f64
    };
    let mut counts = sorted.iter().map(|(_, count)| *count);
    counts.position(reaches).map_or(0.0, |at| sorted[at].0)
}

/// What part of a group's time is computing, as DLIO defines the utilization of an accelerator (Devarajan et al.
/// 2021, "DLIO: A Data-Centric Benchmark for Scientific Deep Learning Applications").
fn utilization<'a>(own: impl Iterator<Item = &'a StepRecord>) -> f64 {
    let (mut computing, mut begun, mut ended) = (0.0, f64::INFINITY, f64::NEG_INFINITY);
    for record in own {
        computing += record.compute_seconds;
        begun = record.begun().min(begun);
        ended = record.wall.max(ended);
    }
    if ended > begun {
        computing / (ended - begun)
    } else {
        0.0
    }
}

/// Of each shard, which servers have a full copy; none where the coordinator has not told.
fn copies(cluster: Option<&ClusterStatus>) -> impl Iterator<Item = Vec<u32>> {
    let holding = cluster.and_then(|cluster| holding(&cluster.run).ok());
    let holders = holding.unwrap_or_default().holders.into_iter();
    let full = |of: Holders| {
        let full = of.copies.into_iter().filter(|copy| copy.full);
        full.map(|copy| copy.server.0).collect()
    };
    holders.map(full).chain(std::iter::repeat(Vec::new()))
}

fn shard((shard, copies): (&ShardStatusReply, Vec<u32>)) -> Shard {
    Shard {
        server: shard.server,
        copies,
        bytes: shard.bytes,
        blocks: shard.blocks,
        updates: shard.updates,
        version_min: shard.version_min,
        version_max: shard.version_max,
        momentum: shard.momentum,
    }
}

/// Quantiles (nearest rank) of histograms that are added up.
fn delay<'a>(histograms: impl Iterator<Item = &'a [u64]>) -> Option<Delay> {
    let mut counts: Vec<u64> = Vec::new();
    for histogram in histograms {
        counts.resize(counts.len().max(histogram.len()), 0);
        counts
            .iter_mut()
            .zip(histogram)
            .for_each(|(sum, n)| *sum += n);
    }
    let total: u64 = counts.iter().sum();
    let quantile = |q: f64| {
        let rank = ((q * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        counts.iter().position(|n| {
            seen += n;
            seen >= rank
        })
    };
    let max = counts.iter().rposition(|n| *n > 0)?;
    Some(Delay {
        p50: quantile(0.5)? as u64,
        p99: quantile(0.99)? as u64,
        max: max as u64,
    })
}

fn loss(records: &[StepRecord]) -> Loss {
    let first = records.iter().min_by(|a, b| a.wall.total_cmp(&b.wall));
    let mut groups: Vec<u32> = records.iter().map(|r| r.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let last = |group| {
        let own: Vec<f64> = records
            .iter()
            .filter(|r| r.group == group)
            .filter_map(|r| r.loss)
            .collect();
        own[own.len().saturating_sub(FINAL_EXCHANGES)..].to_vec()
    };
    let last: Vec<f64> = groups.into_iter().flat_map(last).collect();
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    Loss {
        first: first.and_then(|r| r.loss),
        r#final: Some(mean).filter(|mean| mean.is_finite()),
    }
}

fn metric(evaluation: &Evaluation) -> Metric {
    let baseline = |b: &Measure| Baseline {
        name: b.name.clone(),
        value: b.value,
    };
    Metric {
        name: evaluation.metric.name.clone(),
        unit: evaluation.metric.unit.clone(),
        value: evaluation.metric.value,
        better: evaluation.better,
        validation: evaluation.validation.clone(),
        baselines: evaluation.baselines.iter().map(baseline).collect(),
    }
}

#[cfg(test)]
mod tests;
