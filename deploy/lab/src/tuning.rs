//! The trials that every setting gets before its cells are run, and what they come to.
//!
//! All settings get the same grid, which then grows for each where its best point lies on an edge.
//! What comes next follows from the trials' results alone, so an interrupted tuning goes on.

use anyhow::bail;
use tradewind_common::schedule::{Schedule, Unit};

use super::cell;
use super::file::{ExperimentPlan, Goal, Tuning};
use super::grid::{self, Grid, Next, Score};
use super::matrix::{Cell, Matrix};

/// The searches of all settings.
pub struct Searches {
    /// By setting; none without `[tuning]`.
    grids: Vec<Grid>,
}

/// A trial, for `tuning.csv` and the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub id: String,
    /// Digest of its configuration.
    pub configuration: String,
    pub setting: usize,
    /// Keys with their values.
    pub values: Vec<(String, f64)>,
    /// The measure on the validation split at its end; `None` if it failed or was not run.
    pub measure: Option<f64>,
    /// The run that its measure is of; `None` if it was not run here.
    pub source: Option<Source>,
    /// The setting's cells are run with its values.
    pub chosen: bool,
    /// Keys whose value is the last that was tried, if it is chosen: another one might be better.
    pub on_edge: Vec<String>,
}

/// A run of a trial: of this one, or of one that had to come to the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub run: String,
    /// The part of its steps that missed their pace.
    pub missed: f64,
}

impl Searches {
    /// Checks every trial of the first grids.
    ///
    /// # Errors
    /// Values that no run can have, with the lines that set them.
    pub fn new(plan: &ExperimentPlan, matrix: &Matrix) -> anyhow::Result<Self> {
        let Some(tuning) = &plan.tuning else {
            return Ok(Self { grids: Vec::new() });
        };
        let grid = Grid {
            knobs: tuning.knobs.clone(),
        };
        let mut problems = Vec::new();
        for setting in 0..matrix.settings.len() {
            for point in grid.points() {
                match trial(plan, tuning, matrix, setting, &point) {
                    Ok(cell) => problems.extend(never_warm(plan, &cell)),
                    Err(found) => problems.extend(found),
                }
            }
        }
        problems.sort();
        problems.dedup();
        if !problems.is_empty() {
            bail!("{}", problems.join("\n"));
        }
        let grids = vec![grid; matrix.settings.len()];
        Ok(Self { grids })
    }

    /// The trials to be run next. The best point of a setting that needs no more is fixed in the matrix, but
    /// where a trial could not be run. `measure` tells what a trial came to, by its measure
    /// on the validation split: `None` while it has to be run.
    ///
    /// # Errors
    /// Values that the cells of a setting cannot have, though its trials could.
    pub fn next(
        &mut self,
        plan: &ExperimentPlan,
        matrix: &mut Matrix,
        mut measure: impl FnMut(&Cell) -> Option<Score>,
    ) -> anyhow::Result<Vec<Cell>> {
        let Some(tuning) = &plan.tuning else {
            return Ok(Vec::new());
        };
        let better = plan.target.as_ref().map(|target| target.goal);
        let mut todo = Vec::new();
        let mut best = Vec::new();
        for (setting, grid) in self.grids.iter_mut().enumerate() {
            let next = grid.next(|point| match trial(plan, tuning, matrix, setting, point) {
                Ok(cell) => measure(&cell).map(|score| less_is_better(better, score)),
                // Beyond the grid that was checked, where a setting may not have what others may.
                Err(_) => Some(Score::None),
            });
            match next {
                Next::Try(points) => {
                    let trials = points
                        .iter()
                        .filter_map(|point| trial(plan, tuning, matrix, setting, point).ok());
                    todo.extend(trials);
                }
                Next::Best(point) => best.push((setting, point)),
            }
        }
        for (setting, point) in best {
            let keys = tuning.knobs.iter().map(|knob| knob.key.clone());
            let tuned = point.map(|point| keys.zip(point).collect());
            matrix.fix(plan, setting, tuned)?;
        }
        Ok(todo)
    }

    /// All trials as far as they are known. `told` tells what a trial came to, and by which run.
    pub fn trials(
        &self,
        plan: &ExperimentPlan,
        matrix: &Matrix,
        mut told: impl FnMut(&Cell) -> (Option<Score>, Option<Source>),
    ) -> Vec<Trial> {
        let Some(tuning) = &plan.tuning else {
            return Vec::new();
        };
        let of = |(setting, grid): (usize, &Grid)| {
            let points = grid.points().into_iter();
            let cells = points.filter_map(|point| {
                let cell = trial(plan, tuning, matrix, setting, &point).ok()?;
                Some((cell, point))
            });
            let cells: Vec<(Cell, Vec<f64>)> = cells.collect();
            let is_edge = |(at, value): (usize, f64)| {
                let allowed: Vec<f64> = cells.iter().map(|(_, point)| point[at]).collect();
                grid.knobs[at].is_edge(value, &allowed)
            };
            let trials = cells.iter().map(|(cell, point)| {
                let keys = tuning.knobs.iter().map(|knob| knob.key.clone());
                let values: Vec<(String, f64)> = keys.zip(point.iter().copied()).collect();
                let chosen = matrix.settings[setting].tuned.as_ref() == Some(&values);
                let knobs = point.iter().copied().enumerate();
                let edges = knobs.filter(|knob| chosen && is_edge(*knob));
                let (score, source) = told(cell);
                Trial {
                    on_edge: edges.map(|(knob, _)| values[knob].0.clone()).collect(),
                    source,
                    measure: match score {
                        Some(Score::Of(measure)) => Some(measure),
                        Some(Score::None | Score::Unknown) | None => None,
                    },
                    chosen,
                    configuration: cell::digest(cell),
                    id: cell.id.clone(),
                    setting,
                    values,
                }
            });
            trials.collect::<Vec<_>>()
        };
        self.grids.iter().enumerate().flat_map(of).collect()
    }
}

/// A trial whose rate only ever rises says nothing about the rate.
fn never_warm(plan: &ExperimentPlan, trial: &Cell) -> Option<String> {
    let config = &trial.config;
    let local = config.local.as_ref().map(|local| &local.schedule);
    let schedule = local.unwrap_or(&config.optimizer.schedule);
    let length = format!("schedule.warmup_samples = {}", schedule.warmup);
    does_not_end(plan, trial, schedule, &length)
}

/// The same of one whose warm-up is counted in epochs, once it is known how many samples one has.
pub(super) fn never_warm_in(
    plan: &ExperimentPlan,
    trial: &Cell,
    epoch_samples: u64,
) -> Option<String> {
    let optimizer = &trial.config.optimizer;
    let epochs = optimizer.warmup_epochs;
    let schedule = optimizer.schedule_of(epoch_samples);
    let length = format!(
        "schedule.warmup_epochs = {epochs}, {} samples of this data,",
        schedule.warmup
    );
    (epochs > 0.0).then(|| does_not_end(plan, trial, &schedule, &length))?
}

fn does_not_end(
    plan: &ExperimentPlan,
    trial: &Cell,
    schedule: &Schedule,
    length: &str,
) -> Option<String> {
    let samples = trial.config.train.samples;
    (schedule.unit == Unit::Samples && schedule.warmup >= samples).then(|| {
        format!(
            "{}: {length} does not fit into a trial of {samples} samples (tuning.part of train.samples)",
            plan.file
        )
    })
}

fn less_is_better(better: Option<Goal>, score: Score) -> Score {
    match (score, better) {
        (Score::Of(measure), Some(Goal::AtLeast(_))) => Score::Of(-measure),
        (score, _) => score,
    }
}

/// What names of a setting's trials begin with.
fn trials_of(stem: &str) -> String {
    format!("{stem}-tune")
}

/// Whether a run of this name is a trial of the setting with this stem.
pub(super) fn is_trial_of(id: &str, stem: &str) -> bool {
    id.starts_with(&(trials_of(stem) + "-"))
}

/// The run of a setting at a point of its grid.
fn trial(
    plan: &ExperimentPlan,
    tuning: &Tuning,
    matrix: &Matrix,
    setting: usize,
    point: &[f64],
) -> Result<Cell, Vec<String>> {
    let own = matrix.of(setting).next().expect("there are seeds");
    let samples = (tuning.part * own.config.train.samples as f64).max(1.0) as u64;
    let mut set = vec![("train.samples", samples.to_string())];
    let mut id = trials_of(&matrix.settings[setting].stem);
    for (knob, value) in tuning.knobs.iter().zip(point) {
        set.push((knob.key.as_str(), grid::toml(&knob.key, *value)));
        id += &format!("-{value}");
    }
    matrix.trial(plan, setting, (id, tuning.seed), &set)
}
