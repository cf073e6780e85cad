//! What the settings of a panel are compared with, and how they compare: paired by seed.

use std::collections::BTreeMap;

use tradewind_common::record::Better;

use super::file::{Goal, Target};
use super::line::{Line, Run, panels};
use super::stats::{Estimate, mean, mean_ratio};

/// Fills in what the lines come to beside the baseline of their panel.
pub(super) fn compared(mut lines: Vec<Line>, target: Option<&Target>) -> Vec<Line> {
    for panel in panels(&lines) {
        let own = |line: &&Line| line.panel == panel;
        let better = better(lines.iter().filter(own), target);
        let standing = lines.iter().enumerate().filter(|(_, line)| own(line));
        let standing = standing.filter(|(_, line)| line.synchronous && line.sums.counted > 0);
        let standing = standing.map(|(index, line)| (standing_of(line, better), index));
        let Some((soonest, best)) = standing
            .min_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
            .map(|(standing, index)| (standing[0], index))
        else {
            continue;
        };
        lines[best].sums.baseline = true;
        lines[best].sums.best_synchronous = soonest.is_finite();
        let by_seed = times(&lines[best].runs);
        let metrics = held_out(&lines[best].runs);
        for (index, line) in lines.iter_mut().enumerate() {
            if line.panel != panel {
                continue;
            }
            if index != best {
                let pairs = pairs(&held_out(&line.runs), &metrics, |own, other| own - other);
                line.sums.against = mean(&pairs);
            }
            if line.sums.seconds.is_some() && soonest.is_finite() {
                let ratios = pairs(&times(&line.runs), &by_seed, |own, other| other / own);
                line.sums.sooner = mean_ratio(&ratios);
                line.sums.ratios = ratios;
            }
        }
    }
    lines
}

/// What makes a synchronous setting the baseline, the least first: its mean time, if it reached the target
/// with all seeds; the part of its runs that missed; how good it was at the end.
fn standing_of(line: &Line, better: Better) -> [f64; 3] {
    let whole = line.sums.counted == line.runs.len();
    let seconds = line.sums.seconds.filter(|_| whole);
    let missed = line.runs.len() - line.sums.reached;
    let validation = line.sums.validation.map(|validation| validation.mean);
    let validation = validation.filter(|validation| !validation.is_nan());
    [
        seconds.map_or(f64::INFINITY, |seconds| seconds.mean),
        missed as f64 / line.runs.len() as f64,
        match (better, validation) {
            (_, None) => f64::INFINITY,
            (Better::Lower, Some(value)) => value,
            (Better::Higher, Some(value)) => -value,
        },
    ]
}

/// Which way the validation measure is better. Without a target only what is known of the metric on the
/// held-out split says so, and that is another one where the units differ: a loss.
fn better<'a>(lines: impl Iterator<Item = &'a Line>, target: Option<&Target>) -> Better {
    match target.map(|target| target.goal) {
        Some(Goal::AtMost(_)) => return Better::Lower,
        Some(Goal::AtLeast(_)) => return Better::Higher,
        None => {}
    }
    let mut runs = lines.flat_map(|line| &line.runs);
    let told = runs.find_map(|run| run.reading()?.summary.metric.as_ref());
    let told = told.filter(|metric| metric.unit == metric.validation.unit);
    told.and_then(|metric| metric.better).unwrap_or_default()
}

/// What becomes of each value with that of the same seed.
pub(super) fn pairs(
    own: &BTreeMap<u64, f64>,
    others: &BTreeMap<u64, f64>,
    of: impl Fn(f64, f64) -> f64,
) -> Vec<f64> {
    let pairs = own.iter();
    let pairs = pairs.filter_map(|(seed, own)| Some(of(*own, *others.get(seed)?)));
    pairs.collect()
}

/// Values by seed; of several runs of one seed their mean.
pub(super) fn by_seed(
    runs: &[Run],
    of: impl Fn(&Run) -> Option<f64>,
    mean: fn(&[f64]) -> Option<Estimate>,
) -> BTreeMap<u64, f64> {
    let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        if let Some(value) = of(run) {
            values.entry(run.seed).or_default().push(value);
        }
    }
    let means = values.into_iter().filter_map(|(seed, values)| {
        let mean = match values.as_slice() {
            // As it is, without what rounding makes of its logarithm.
            [only] => *only,
            all => mean(all)?.mean,
        };
        Some((seed, mean))
    });
    means.collect()
}

/// Seconds to the target.
pub(super) fn times(runs: &[Run]) -> BTreeMap<u64, f64> {
    by_seed(runs, |run| Some(run.reached?.seconds), mean_ratio)
}

/// The metric on the held-out split.
fn held_out(runs: &[Run]) -> BTreeMap<u64, f64> {
    by_seed(runs, |run| run.metric(|m| m.value), mean)
}
