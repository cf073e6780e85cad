//! A setting with its runs, and what they come to: what the tables, the page and the terminal are made of.

use std::collections::BTreeMap;

use super::cell::{CellOutcome, CellRecord};
use super::file::Target;
use super::matrix::Cell;
use super::reading::{Metric, Reading};
use super::stats::Estimate;
use tradewind_common::loss::Loss as Lost;

/// A cell as far as it has been run.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: String,
    pub seed: u64,
    pub state: CellState,
    /// When it reached the target.
    pub reached: Option<Reached>,
}

/// How far a cell has been run.
#[derive(Clone, Debug)]
pub enum CellState {
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
pub struct Reached {
    /// Seconds since its first step began.
    pub seconds: f64,
    /// Samples that the block that was ahead had applied.
    pub samples: f64,
    pub updates: f64,
}

impl Run {
    /// A run as a cell of an experiment.
    pub fn new(
        cell: &Cell,
        ended: Option<(&CellRecord, anyhow::Result<Reading>)>,
        target: Option<&Target>,
    ) -> Self {
        let state = match ended {
            None => CellState::NotRun(None),
            Some((record, reading)) => match (&record.outcome, reading) {
                (CellOutcome::Failed(why), _) => CellState::Failed(why.clone()),
                (_, Err(error)) => CellState::NotRun(Some(format!("{error:#}"))),
                (CellOutcome::Void(why), Ok(reading)) => {
                    CellState::Void(why.clone(), Box::new(reading))
                }
                (CellOutcome::Completed, Ok(reading)) => CellState::Completed(Box::new(reading)),
            },
        };
        Self::of(cell.id.clone(), cell.seed, state, target)
    }

    pub fn of(id: String, seed: u64, state: CellState, target: Option<&Target>) -> Self {
        let state = match (state, target) {
            (CellState::Completed(reading), Some(target)) => match reading.other_metric(target) {
                Some(why) => CellState::NotRun(Some(why)),
                None => CellState::Completed(reading),
            },
            (state, _) => state,
        };
        let reached = match &state {
            CellState::Completed(reading) => target.and_then(|target| {
                let at = reading.reached(target.goal)?;
                Some(Reached {
                    seconds: at.wall - reading.begun(),
                    samples: at.samples_applied.1 as f64,
                    updates: at.updates as f64,
                })
            }),
            CellState::NotRun(_) | CellState::Failed(_) | CellState::Void(..) => None,
        };
        Self {
            id,
            seed,
            state,
            reached,
        }
    }

    /// What it left, if that counts.
    pub fn reading(&self) -> Option<&Reading> {
        match &self.state {
            CellState::Completed(reading) => Some(reading),
            CellState::NotRun(_) | CellState::Failed(_) | CellState::Void(..) => None,
        }
    }

    pub(super) fn metric(&self, of: impl Fn(&Metric) -> f64) -> Option<f64> {
        self.reading()?.summary.metric.as_ref().map(of)
    }
}

/// How far some runs have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub all: usize,
    /// Those that came to an end, those of them in which training diverged, and those that are void.
    pub ended: usize,
    pub failed: usize,
    pub void: usize,
}

impl Progress {
    pub fn of<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Self {
        let count = |what: fn(&CellState) -> bool| runs.clone().filter(|r| what(&r.state)).count();
        Self {
            all: count(|_| true),
            ended: count(|state| !matches!(state, CellState::NotRun(_))),
            failed: count(|state| matches!(state, CellState::Failed(_))),
            void: count(|state| matches!(state, CellState::Void(..))),
        }
    }

    /// Whether each has a result: no run that is still to come can change what they say.
    pub fn is_complete(self) -> bool {
        self.ended - self.void == self.all
    }
}

/// A setting with its runs, and what they come to.
#[derive(Clone, Debug)]
pub struct Line {
    pub label: String,
    pub panel: String,
    pub values: Vec<(String, String)>,
    pub synchronous: bool,
    /// What its tuning came to: keys with their values.
    pub tuned: Option<Vec<(String, f64)>>,
    /// Keys for which it is the last value that was tried.
    pub on_edge: Vec<String>,
    /// Its resolved configuration, every key with its value as TOML.
    pub keys: BTreeMap<String, String>,
    pub runs: Vec<Run>,
    pub sums: Sums,
}

impl Line {
    /// Its runs that count although updates were lost on the way, with how many.
    pub fn lossy(&self) -> Vec<(&Run, Lost)> {
        let lost = |run: &Run| run.reading()?.summary.lost();
        let runs = self.runs.iter();
        runs.filter_map(|run| Some((run, lost(run)?))).collect()
    }

    /// Its name, with a mark if [`lossy`](Self::lossy) has any; [`footnote`] says what that means.
    pub fn marked(&self) -> String {
        let mark = if self.lossy().is_empty() { "" } else { LOSSY };
        format!("{}{mark}", self.label)
    }
}

/// Behind the name of a setting.
const LOSSY: &str = " †";

/// What the mark of settings means, with the cells that are why; `None` if none has it.
pub fn footnote<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Option<String> {
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
pub struct Sums {
    /// Runs that count, and those of them that reached the target.
    pub counted: usize,
    pub reached: usize,
    /// Only where all runs have reached it: a miss is never averaged away.
    pub seconds: Option<Estimate>,
    pub samples: Option<Estimate>,
    /// The metric on the validation split, and on the held-out one, at the end.
    pub validation: Option<Estimate>,
    pub held_out: Option<Estimate>,
    /// Its metric on the held-out split less that of the baseline, paired by seed.
    pub against: Option<Estimate>,
    /// Bytes of values in all exchanges.
    pub bytes: Option<Estimate>,
    /// Seconds of training.
    pub train_seconds: Option<Estimate>,
    /// How many times sooner than the baseline it reached the target, where that always did; and that of
    /// each seed.
    pub sooner: Option<Estimate>,
    pub ratios: Vec<f64>,
    /// It is the synchronous setting that the others of its panel are compared with.
    pub baseline: bool,
    /// And it has reached the target with all seeds, so times can be, too.
    pub best_synchronous: bool,
}

/// The names of the panels, each once, in the order of the lines.
pub fn panels(lines: &[Line]) -> Vec<String> {
    let mut panels: Vec<String> = Vec::new();
    for line in lines {
        if !panels.contains(&line.panel) {
            panels.push(line.panel.clone());
        }
    }
    panels
}
