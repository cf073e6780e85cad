//! A setting with its runs, and what they come to: what the tables, the page and the terminal are made of.

use std::collections::BTreeMap;

use super::cell::{Outcome, Seal};
use super::file::Target;
use super::matrix::Cell;
use super::reading::{Metric, Reading};
use super::stats::Estimate;
use tradewind_common::loss::Loss as Lost;

/// A cell as far as it has been run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) seed: u64,
    pub(crate) state: State,
    /// When it reached the target.
    pub(crate) reached: Option<Reached>,
}

/// How far a cell has been run.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Nothing came of it yet; why, if it was tried.
    NotRun(Option<String>),
    /// Training diverged.
    Failed(String),
    /// Why the results say nothing about time.
    Void(String, Box<Reading>),
    Completed(Box<Reading>),
}

/// When a run reached the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reached {
    /// Seconds since its first step began.
    pub(crate) seconds: f64,
    /// Samples that the block that was ahead had applied.
    pub(crate) samples: f64,
    pub(crate) updates: f64,
}

impl Run {
    /// A run as a cell of an experiment.
    pub(crate) fn new(
        cell: &Cell,
        ended: Option<(&Seal, anyhow::Result<Reading>)>,
        target: Option<&Target>,
    ) -> Self {
        let state = match ended {
            None => State::NotRun(None),
            Some((seal, reading)) => match (&seal.outcome, reading) {
                (Outcome::Failed(why), _) => State::Failed(why.clone()),
                (_, Err(error)) => State::NotRun(Some(format!("{error:#}"))),
                (Outcome::Void(why), Ok(reading)) => State::Void(why.clone(), Box::new(reading)),
                (Outcome::Completed, Ok(reading)) => State::Completed(Box::new(reading)),
            },
        };
        Self::of(cell.id.clone(), cell.seed, state, target)
    }

    pub(crate) fn of(id: String, seed: u64, state: State, target: Option<&Target>) -> Self {
        let state = match (state, target) {
            (State::Completed(reading), Some(target)) => match reading.other_metric(target) {
                Some(why) => State::NotRun(Some(why)),
                None => State::Completed(reading),
            },
            (state, _) => state,
        };
        let reached = match &state {
            State::Completed(reading) => target.and_then(|target| {
                let at = reading.reached(target.goal)?;
                Some(Reached {
                    seconds: at.wall - reading.begun(),
                    samples: at.samples_applied.1 as f64,
                    updates: at.updates as f64,
                })
            }),
            _ => None,
        };
        Self {
            id,
            seed,
            state,
            reached,
        }
    }

    /// What it left, if that counts.
    pub(crate) fn reading(&self) -> Option<&Reading> {
        match &self.state {
            State::Completed(reading) => Some(reading),
            _ => None,
        }
    }

    pub(super) fn metric(&self, of: impl Fn(&Metric) -> f64) -> Option<f64> {
        self.reading()?.summary.metric.as_ref().map(of)
    }
}

/// How far some runs have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) all: usize,
    /// Those that came to an end, those of them in which training diverged, and those that are void.
    pub(crate) ended: usize,
    pub(crate) failed: usize,
    pub(crate) void: usize,
}

impl Progress {
    pub(crate) fn of<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Self {
        let count = |what: fn(&State) -> bool| runs.clone().filter(|r| what(&r.state)).count();
        Self {
            all: count(|_| true),
            ended: count(|state| !matches!(state, State::NotRun(_))),
            failed: count(|state| matches!(state, State::Failed(_))),
            void: count(|state| matches!(state, State::Void(..))),
        }
    }

    /// Whether each has a result: no run that is still to come can change what they say.
    pub(crate) fn is_complete(self) -> bool {
        self.ended - self.void == self.all
    }
}

/// A setting with its runs, and what they come to.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) panel: String,
    pub(crate) values: Vec<(String, String)>,
    pub(crate) synchronous: bool,
    /// What its tuning came to: keys with their values.
    pub(crate) tuned: Option<Vec<(String, f64)>>,
    /// Keys for which it is the last value that was tried.
    pub(crate) on_edge: Vec<String>,
    /// Its resolved configuration, every key with its value as TOML.
    pub(crate) keys: BTreeMap<String, String>,
    pub(crate) runs: Vec<Run>,
    pub(crate) sums: Sums,
}

impl Line {
    /// Its runs that count although updates were lost on the way, with how many.
    pub(crate) fn lossy(&self) -> Vec<(&Run, Lost)> {
        let lost = |run: &Run| run.reading()?.summary.lost();
        let runs = self.runs.iter();
        runs.filter_map(|run| Some((run, lost(run)?))).collect()
    }

    /// Its name, with a mark if [`lossy`](Self::lossy) has any; [`footnote`] says what that means.
    pub(crate) fn marked(&self) -> String {
        let mark = if self.lossy().is_empty() { "" } else { LOSSY };
        format!("{}{mark}", self.label)
    }
}

/// Behind the name of a setting.
const LOSSY: &str = " †";

/// What the mark of settings means, with the cells that are why; `None` if none has it.
pub(crate) fn footnote<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Option<String> {
    let lossy = lines.into_iter().flat_map(Line::lossy);
    let cells = lossy.map(|(run, lost)| format!("{}: {lost}", run.id));
    let cells: Vec<String> = cells.collect();
    let mark = LOSSY.trim();
    (!cells.is_empty()).then(|| {
        format!(
            "{mark} updates that servers had acknowledged were lost on the way, and trained again or not: {}",
            cells.join("; ")
        )
    })
}

/// Means over the seeds of a setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    /// Runs that count, and those of them that reached the target.
    pub(crate) counted: usize,
    pub(crate) reached: usize,
    /// Only where all runs have reached it: a miss is never averaged away.
    pub(crate) seconds: Option<Estimate>,
    pub(crate) samples: Option<Estimate>,
    /// The metric on the validation split, and on the held-out one, at the end.
    pub(crate) validation: Option<Estimate>,
    pub(crate) held_out: Option<Estimate>,
    /// Its metric on the held-out split less that of the baseline, paired by seed.
    pub(crate) against: Option<Estimate>,
    /// Bytes of values in all exchanges.
    pub(crate) bytes: Option<Estimate>,
    /// Seconds of training.
    pub(crate) train_seconds: Option<Estimate>,
    /// How many times sooner than the baseline it reached the target, where that always did; and that of
    /// each seed.
    pub(crate) sooner: Option<Estimate>,
    pub(crate) ratios: Vec<f64>,
    /// It is the synchronous setting that the others of its panel are compared with.
    pub(crate) baseline: bool,
    /// And it has reached the target with all seeds, so times can be, too.
    pub(crate) best_synchronous: bool,
}

/// The names of the panels, each once, in the order of the lines.
pub(crate) fn panels(lines: &[Line]) -> Vec<String> {
    let mut panels: Vec<String> = Vec::new();
    for line in lines {
        if !panels.contains(&line.panel) {
            panels.push(line.panel.clone());
        }
    }
    panels
}
