//! `results.csv` and `results.parquet`: a row for each cell; docs/experiments.md explains every
//! column.

use super::compare::times;
use super::earlier::{CONFIGURATION, MEASURE};
use super::line::{CellState, Line, Run};
use super::matrix::Matrix;
use super::reading::Reading;
use super::table::{Column, Values};
use super::tuning::Trial;

/// All columns, rows in the order of the lines and their runs.
pub fn columns(experiment: &str, lines: &[Line]) -> Vec<Column> {
    let rows: Vec<(&Line, &Run)> = lines
        .iter()
        .flat_map(|line| line.runs.iter().map(move |run| (line, run)))
        .collect();
    let rows = Rows { rows: &rows, lines };
    let mut columns = vec![
        rows.texts("experiment", |_, _| Some(experiment.to_owned())),
        rows.texts("cell", |_, run| Some(run.id.clone())),
        rows.texts("panel", |line, _| {
            Some(line.panel.clone()).filter(|p| !p.is_empty())
        }),
        rows.texts("setting", |line, _| Some(line.label.clone())),
    ];
    let axes = lines.first().map_or(&[][..], |line| &line.values);
    for (index, (axis, _)) in axes.iter().enumerate() {
        columns.push(rows.texts(&format!("axis.{axis}"), |line, _| {
            Some(line.values.get(index)?.1.clone())
        }));
    }
    let tuned = lines.iter().find_map(|line| line.tuned.as_ref());
    for (index, (key, _)) in tuned.into_iter().flatten().enumerate() {
        columns.push(rows.floats(&format!("tuned.{key}"), |line, _| {
            Some(line.tuned.as_ref()?.get(index)?.1)
        }));
    }
    columns.extend([
        rows.ints("seed", |_, run| Some(run.seed)),
        rows.texts("status", |_, run| Some(status(run).0.to_owned())),
        rows.texts("reason", |_, run| status(run).1),
        rows.of("ranks", |r| Some(u64::from(r.config.world_size()))),
        rows.of("groups", |r| Some(r.config.cluster.groups.len() as u64)),
        rows.flags("reached", |_, run| {
            matches!(run.state, CellState::Completed(_) | CellState::Failed(_))
                .then_some(run.reached.is_some())
        }),
        rows.floats("seconds_to_target", |_, run| Some(run.reached?.seconds)),
        rows.floats("samples_to_target", |_, run| Some(run.reached?.samples)),
        rows.floats("updates_to_target", |_, run| Some(run.reached?.updates)),
        rows.floats("times_sooner", |line, run| rows.sooner(line, run)),
        rows.text_of("metric", |r| Some(r.summary.metric.as_ref()?.name.clone())),
        rows.text_of("unit", |r| Some(r.summary.metric.as_ref()?.unit.clone())),
        rows.text_of("validation_metric", |r| {
            Some(r.summary.metric.as_ref()?.validation.name.clone())
        }),
        rows.text_of("validation_unit", |r| {
            Some(r.summary.metric.as_ref()?.validation.unit.clone())
        }),
        rows.number_of("metric_validation", |r| {
            Some(r.summary.metric.as_ref()?.validation.value)
        }),
        rows.number_of("metric_held_out", |r| {
            Some(r.summary.metric.as_ref()?.value)
        }),
        rows.number_of("loss_final", |r| r.summary.loss.r#final),
        rows.number_of("train_seconds", |r| Some(r.summary.train_seconds)),
        rows.number_of("wall_seconds", |r| Some(r.summary.wall_seconds)),
        rows.of("samples_applied", |r| Some(r.summary.samples.applied)),
        rows.of("updates", |r| Some(r.updates())),
        rows.of("exchanges", |r| {
            Some(r.summary.groups.iter().map(|g| g.clocks).sum())
        }),
        rows.floats("local_steps", |_, run| any(run)?.local_steps()),
        rows.of("bytes_exchanged", Reading::bytes),
        rows.of("decisions_applied", |r| {
            Some(r.summary.updates.as_ref()?.applied)
        }),
        rows.of("decisions_dropped", |r| {
            Some(r.summary.updates.as_ref()?.dropped)
        }),
        rows.number_of("data_seconds", |r| Some(r.times().reading)),
        rows.number_of("computing_seconds", |r| Some(r.times().computing)),
        rows.number_of("reducing_seconds", |r| Some(r.times().reducing)),
        rows.number_of("exchanging_seconds", |r| Some(r.times().exchanging)),
        rows.number_of("waiting_seconds", |r| Some(r.times().waiting)),
        rows.of("delay_p50", |r| Some(r.summary.delay.as_ref()?.p50)),
        rows.of("delay_p99", |r| Some(r.summary.delay.as_ref()?.p99)),
        rows.of("delay_max", |r| Some(r.summary.delay.as_ref()?.max)),
        rows.of("lag_max", |r| {
            r.summary.groups.iter().map(|g| g.lag_max).max()
        }),
        rows.of("lost_updates", |r| Some(r.summary.lost()?.updates)),
        rows.of("lost_samples", |r| Some(r.summary.lost()?.samples)),
        rows.number_of("pace_seconds", |r| Some(r.config.step_seconds)),
        rows.number_of("pace_missed", |r| Some(r.missed())),
        rows.text_of("version", |r| r.summary.version.clone()),
        rows.text_of("libtorch", |r| r.summary.libtorch.clone()),
    ]);
    columns
}

/// The columns of `tuning.csv`: a row for each trial.
pub fn trials(matrix: &Matrix, trials: &[Trial]) -> Vec<Column> {
    let texts = |name: &str, of: &dyn Fn(&Trial) -> Option<String>| {
        column(name, Values::Texts(trials.iter().map(of).collect()))
    };
    let setting = |trial: &Trial| &matrix.settings[trial.setting];
    let mut columns = vec![
        texts("trial", &|trial| Some(trial.id.clone())),
        texts("panel", &|trial| {
            Some(setting(trial).panel.clone()).filter(|p| !p.is_empty())
        }),
        texts("setting", &|trial| Some(setting(trial).label.clone())),
    ];
    let keys = trials.first().map_or(&[][..], |trial| &trial.values);
    for (index, (key, _)) in keys.iter().enumerate() {
        let values = trials.iter().map(|trial| Some(trial.values[index].1));
        columns.push(column(key, Values::Floats(values.collect())));
    }
    let measures = trials.iter().map(|trial| trial.measure).collect();
    columns.push(column(MEASURE, Values::Floats(measures)));
    let run = |trial: &Trial| Some(trial.source.as_ref()?.run.clone());
    columns.push(texts("run", &run));
    let missed = |trial: &Trial| Some(trial.source.as_ref()?.missed);
    let missed = trials.iter().map(missed).collect();
    columns.push(column("pace_missed", Values::Floats(missed)));
    columns.push(texts(CONFIGURATION, &|trial| {
        Some(trial.configuration.clone())
    }));
    let chosen = trials.iter().map(|trial| Some(trial.chosen)).collect();
    columns.push(column("chosen", Values::Flags(chosen)));
    columns.push(texts("on_edge", &|trial| {
        Some(trial.on_edge.join(" ")).filter(|keys| !keys.is_empty())
    }));
    columns
}

struct Rows<'a> {
    rows: &'a [(&'a Line, &'a Run)],
    lines: &'a [Line],
}

impl Rows<'_> {
    fn all<T>(&self, of: impl Fn(&Line, &Run) -> Option<T>) -> Vec<Option<T>> {
        self.rows.iter().map(|(line, run)| of(line, run)).collect()
    }

    fn texts(&self, name: &str, of: impl Fn(&Line, &Run) -> Option<String>) -> Column {
        column(name, Values::Texts(self.all(of)))
    }

    fn ints(&self, name: &str, of: impl Fn(&Line, &Run) -> Option<u64>) -> Column {
        let int = |line: &Line, run: &Run| of(line, run).and_then(|n| i64::try_from(n).ok());
        column(name, Values::Ints(self.all(int)))
    }

    fn floats(&self, name: &str, of: impl Fn(&Line, &Run) -> Option<f64>) -> Column {
        column(name, Values::Floats(self.all(of)))
    }

    fn flags(&self, name: &str, of: impl Fn(&Line, &Run) -> Option<bool>) -> Column {
        column(name, Values::Flags(self.all(of)))
    }

    fn of(&self, name: &str, of: impl Fn(&Reading) -> Option<u64>) -> Column {
        self.ints(name, |_, run| of(any(run)?))
    }

    fn number_of(&self, name: &str, of: impl Fn(&Reading) -> Option<f64>) -> Column {
        self.floats(name, |_, run| of(any(run)?))
    }

    fn text_of(&self, name: &str, of: impl Fn(&Reading) -> Option<String>) -> Column {
        self.texts(name, |_, run| of(any(run)?))
    }

    /// Paired with the run of the same seed in the best synchronous setting of the panel.
    fn sooner(&self, line: &Line, run: &Run) -> Option<f64> {
        let best = self
            .lines
            .iter()
            .find(|other| other.panel == line.panel && other.sums.best_synchronous)?;
        Some(times(&best.runs).get(&run.seed)? / run.reached?.seconds)
    }
}

/// What a run left, also one whose times count for nothing.
fn any(run: &Run) -> Option<&Reading> {
    match &run.state {
        CellState::Completed(reading) | CellState::Void(_, reading) => Some(reading),
        CellState::NotRun(_) | CellState::Failed(_) => None,
    }
}

/// In a word, and why.
pub fn status(run: &Run) -> (&'static str, Option<String>) {
    match &run.state {
        CellState::NotRun(why) => ("not run", why.clone()),
        CellState::Failed(why) => ("failed", Some(why.clone())),
        CellState::Void(why, _) => ("void", Some(why.clone())),
        CellState::Completed(_) => ("completed", None),
    }
}

fn column(name: &str, values: Values) -> Column {
    Column {
        name: name.to_owned(),
        values,
    }
}
