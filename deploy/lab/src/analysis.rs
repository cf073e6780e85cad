//! What the cells come to: for each setting means over its seeds. compare.rs has what they are compared with.

use std::collections::BTreeMap;

use super::compare::compared;
use super::file::Target;
use super::keys::setting_keys;
use super::line::{CellState, Line, Reached, Run, Sums};
use super::matrix::Matrix;
use super::reading::Metric;
use super::stats::mean;

/// Lines in the order of the matrix.
pub fn lines(
    matrix: &Matrix,
    mut runs: BTreeMap<String, Run>,
    target: Option<&Target>,
) -> Vec<Line> {
    let settings = matrix.settings.iter().enumerate();
    let lines = settings.map(|(index, setting)| Line {
        label: setting.label.clone(),
        panel: setting.panel.clone(),
        values: setting.values.clone(),
        synchronous: setting.synchronous,
        tuned: setting.tuned.clone(),
        on_edge: Vec::new(),
        keys: matrix
            .of(index)
            .next()
            .map_or_else(BTreeMap::new, |cell| setting_keys(cell.config.resolved())),
        runs: matrix
            .of(index)
            .map(|cell| runs.remove(&cell.id).expect("there is one for each cell"))
            .collect(),
        sums: Sums::default(),
    });
    summed(lines.collect(), target)
}

/// Fills in the sums.
pub fn summed(mut lines: Vec<Line>, target: Option<&Target>) -> Vec<Line> {
    for line in &mut lines {
        line.sums = sums(&line.runs);
    }
    compared(lines, target)
}

fn sums(runs: &[Run]) -> Sums {
    let reached: Vec<Reached> = runs.iter().filter_map(|run| run.reached).collect();
    // A run that diverged has not reached the target either.
    let tried = runs
        .iter()
        .filter(|run| !matches!(run.state, CellState::NotRun(_) | CellState::Void(..)));
    let tried = tried.count();
    let all = |of: fn(&Reached) -> f64| {
        let values: Vec<f64> = reached.iter().map(of).collect();
        mean(&values).filter(|_| values.len() == tried)
    };
    let metric = |of: fn(&Metric) -> f64| {
        let values: Vec<f64> = runs.iter().filter_map(|run| run.metric(of)).collect();
        mean(&values)
    };
    let train = runs.iter().filter_map(|run| run.reading());
    let train: Vec<f64> = train.map(|r| r.summary.train_seconds).collect();
    let bytes = runs.iter().filter_map(|run| run.reading()?.bytes());
    let bytes: Vec<f64> = bytes.map(|bytes| bytes as f64).collect();
    Sums {
        counted: tried,
        reached: reached.len(),
        seconds: all(|r| r.seconds),
        samples: all(|r| r.samples),
        validation: metric(|m| m.validation.value),
        held_out: metric(|m| m.value),
        against: None,
        bytes: mean(&bytes),
        train_seconds: mean(&train),
        sooner: None,
        ratios: Vec::new(),
        baseline: false,
        best_synchronous: false,
    }
}
