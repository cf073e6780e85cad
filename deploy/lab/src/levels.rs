//! How the settings of a panel compare at other targets than the declared one: whoever chooses a target
//! chooses a winner, so nobody should have to trust one level.

use super::compare::{by_seed, pairs};
use super::file::{Goal, Target};
use super::line::{Line, Run};
use super::reading::Reading;
use super::stats::mean_ratio;

/// Levels that are looked at.
const LEVELS: usize = 20;

/// How many times sooner than the baseline a setting reached each level: pairs of both, from the easiest to
/// the hardest that all runs of both have reached.
pub type Ratios = Vec<(f64, f64)>;

/// The baseline of a panel, and all other settings beside it; `None` where no baseline has run with all
/// seeds, or its evaluations span no levels.
pub fn ratios<'a>(
    lines: &[&'a Line],
    target: &Target,
) -> Option<(&'a Line, Vec<(&'a Line, Ratios)>)> {
    let baseline = *lines.iter().find(|line| line.sums.baseline)?;
    let levels = levels(baseline, target.goal)?;
    let others = lines.iter().filter(|line| !line.sums.baseline);
    let ratios = others.map(|line| {
        let own = levels.iter().map_while(|level| {
            let goal = target.goal.at(*level);
            let seconds = |line: &Line| {
                let all = line.runs.iter().all(|run| seconds(run, goal).is_some());
                all.then(|| by_seed(&line.runs, |run| seconds(run, goal), mean_ratio))
            };
            let (own, other) = (seconds(line)?, seconds(baseline)?);
            let ratio = mean_ratio(&pairs(&own, &other, |own, other| other / own))?;
            Some((*level, ratio.mean))
        });
        (*line, own.collect())
    });
    Some((baseline, ratios.collect()))
}

/// Seconds until a run reached a goal.
fn seconds(run: &Run, goal: Goal) -> Option<f64> {
    let reading = run.reading()?;
    Some(reading.reached(goal)?.wall - reading.begun())
}

/// From the level that all runs of a setting reach with their first two evaluations to the best that all
/// reach: even steps, of factors where that is possible.
fn levels(line: &Line, goal: Goal) -> Option<Vec<f64>> {
    // Of the levels of two runs the easier one is reached by both.
    let easier = |a: f64, b: f64| match goal {
        Goal::AtMost(_) => a.max(b),
        Goal::AtLeast(_) => a.min(b),
    };
    let mut ends: Option<(f64, f64)> = None;
    for run in &line.runs {
        let reached = reached_levels(run.reading()?, easier);
        let first = *reached.first()?;
        let harder = |a: f64, b: &f64| if easier(a, *b) == a { *b } else { a };
        let best = reached.iter().fold(first, harder);
        ends = Some(match ends {
            None => (first, best),
            Some((from, to)) => (easier(from, first), easier(to, best)),
        });
    }
    let (from, to) = ends.filter(|(from, to)| from != to)?;
    let step = |i: usize| {
        let part = i as f64 / (LEVELS - 1) as f64;
        match i {
            0 => from,
            // As it was measured, for a hair beyond it is not reached.
            i if i == LEVELS - 1 => to,
            _ if from > 0.0 && to > 0.0 => from * (to / from).powf(part),
            _ => from + (to - from) * part,
        }
    };
    Some((0..LEVELS).map(step).collect())
}

/// The level that each two evaluations in a row both reach.
fn reached_levels(reading: &Reading, easier: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let own = reading.evaluations();
    let values: Vec<f64> = own.iter().map(|v| v.measure.value).collect();
    let pairs = values.windows(2);
    let finite = pairs.filter(|pair| pair.iter().all(|value| value.is_finite()));
    finite.map(|pair| easier(pair[0], pair[1])).collect()
}
