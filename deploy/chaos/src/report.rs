//! What faults came to: `chaos.json`, and the lines at the end.

mod expelled;
mod measure;

use std::collections::BTreeMap;

use serde::Serialize;
use tradewind_common::record::StepRecord;

use super::session::SessionOutcome;
use super::shared::Injected;
use super::soak::Soaked;
use super::watch::{Looked, Restored};
use expelled::expelled;
use measure::{Measured, measure};
use tradewind_folder::events::Event;

/// `chaos.json`.
#[derive(Clone, Debug, Serialize)]
pub struct ChaosReport {
    pub seed: u64,
    /// Empty if everything held.
    pub violations: Vec<String>,
    /// Faults by kind and victim.
    pub faults: BTreeMap<String, usize>,
    /// Faults whose victims were not there, or, one at a time, for which it never was time.
    pub left_out: usize,
    /// What the coordinator and the launcher did about them, by the event's kind.
    pub recoveries: BTreeMap<String, usize>,
    pub watched: Looked,
    /// Shards that were restored from a snapshot, and what was lost.
    pub restored: Vec<Restored>,
    pub soak: Soaked,
    /// By kind and victim, seconds.
    pub times: BTreeMap<String, Times>,
    pub work: Work,
    pub measured: Vec<Measured>,
}

/// Steps of all groups while faults could happen.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Work {
    pub seconds: f64,
    pub steps: usize,
    pub samples: u64,
}

/// The median and the longest of what was measured of one sort of fault, seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    pub faults: usize,
    /// From the fault to the coordinator's event.
    pub detection: Option<Spread>,
    /// How much longer than usual other groups' clocks took.
    pub pause: Option<Spread>,
    /// From the loss of a server to the first clock after its shards had another primary.
    pub failover: Option<Spread>,
    /// From the loss of a rank to the next clock of its group.
    pub again: Option<Spread>,
}

/// Of several times.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    pub longest: f64,
}

impl Spread {
    fn of(times: impl Iterator<Item = f64>) -> Option<Self> {
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        Some(Self {
            median: *times.get(times.len() / 2)?,
            longest: *times.last()?,
        })
    }
}

/// Kinds of events that say what was done about faults.
const RECOVERIES: &[&str] = &[
    "rank_lost",
    "group_formed",
    "server_lost",
    "heir",
    "promoted",
    "copy_full",
    "orphaned",
    "restored",
    "updates_lost",
    "copy_removed",
    "coordinator",
    "coordinator_moved",
    "process_killed",
    "process_restarted",
    "snapshot",
    "snapshot_failed",
];

impl ChaosReport {
    pub fn new(
        (seed, lease): (u64, f64),
        (injected, left_out): (&[Injected], usize),
        outcome: SessionOutcome,
        records: &[StepRecord],
        events: &[Event],
    ) -> Self {
        let measured = measure(injected, records, events, lease);
        let mut violations = outcome.violations;
        violations.extend(expelled(injected, events, lease));
        let mut faults = BTreeMap::new();
        for one in injected {
            *faults.entry(sort(one)).or_default() += 1;
        }
        let mut recoveries = BTreeMap::new();
        for event in events.iter().filter(|event| event.wall >= outcome.from) {
            if RECOVERIES.contains(&event.kind.as_str()) {
                *recoveries.entry(event.kind.clone()).or_default() += 1;
            }
        }
        Self {
            seed,
            faults,
            left_out,
            recoveries,
            times: times(&measured),
            work: Work::between(outcome.from, outcome.to, records),
            measured,
            watched: outcome.looked,
            restored: outcome.restored,
            soak: outcome.soaked,
            violations,
        }
    }

    /// Lines for people.
    pub fn lines(&self) -> Vec<String> {
        let counted = |counts: &BTreeMap<String, usize>| {
            let counts = counts.iter().map(|(what, n)| format!("{n} {what}"));
            counts.collect::<Vec<_>>().join(", ")
        };
        let mut lines = vec![
            format!("faults: {}", counted(&self.faults)),
            format!("recovery: {}", counted(&self.recoveries)),
        ];
        if self.left_out > 0 {
            let n = self.left_out;
            lines.push(format!(
                "left out: {n} whose victims were not there, or killed too often"
            ));
        }
        let Looked {
            rounds,
            digests,
            clocks,
            acknowledged,
            restored,
            lost_at_least,
            lost_told,
            ..
        } = self.watched;
        lines.push(format!(
            "watched: {rounds} rounds, {clocks} clocks, {acknowledged} acknowledgements looked up, {digests} digests compared"
        ));
        lines.push(format!(
            "restored: {restored} shards; {lost_told} updates were told as lost, the checker saw at least {lost_at_least}"
        ));
        let shown = |spread: Option<Spread>| {
            spread.map_or_else(
                || "-".to_owned(),
                |s| format!("{:.2}/{:.2}", s.median, s.longest),
            )
        };
        lines.push(format!(
            "{:<20} {:>3} {:>12} {:>12} {:>12} {:>12}   (median/longest, s)",
            "fault", "n", "detection", "others pause", "failover", "group again"
        ));
        for (sort, times) in &self.times {
            let Times {
                faults,
                detection,
                pause,
                failover,
                again,
            } = times;
            lines.push(format!(
                "{sort:<20} {faults:>3} {:>12} {:>12} {:>12} {:>12}",
                shown(*detection),
                shown(*pause),
                shown(*failover),
                shown(*again)
            ));
        }
        let Work {
            seconds,
            steps,
            samples,
        } = self.work;
        lines.push(format!(
            "work: {steps} steps and {samples} samples in {seconds:.0} s"
        ));
        lines.extend(self.soak.lines());
        lines
    }
}

impl Work {
    fn between(from: f64, to: f64, records: &[StepRecord]) -> Self {
        let within = |r: &&StepRecord| from > 0.0 && (from..=to).contains(&r.wall);
        let records = records.iter().filter(within);
        Self {
            seconds: (to - from).max(0.0),
            steps: records.clone().count(),
            samples: records.map(|record| record.samples).sum(),
        }
    }
}

/// What sort of fault it was, in words.
fn sort(injected: &Injected) -> String {
    let fault = &injected.fault;
    format!("{} {}", fault.kind.word(), fault.victim.sort())
}

fn times(measured: &[Measured]) -> BTreeMap<String, Times> {
    let mut sorts: BTreeMap<String, Vec<&Measured>> = BTreeMap::new();
    for one in measured {
        sorts.entry(one.sort.clone()).or_default().push(one);
    }
    let times = |of: Vec<&Measured>| Times {
        faults: of.len(),
        detection: Spread::of(of.iter().filter_map(|m| m.detection)),
        pause: Spread::of(of.iter().filter_map(|m| m.pause)),
        failover: Spread::of(of.iter().filter_map(|m| m.failover)),
        again: Spread::of(of.iter().filter_map(|m| m.again)),
    };
    let sorts = sorts.into_iter();
    sorts.map(|(sort, of)| (sort, times(of))).collect()
}
