//! What is tried in a tuning: a grid that grows beyond an edge on which its best point lies.

use std::ops::RangeInclusive;

use tradewind_config::{Kind, keys};

/// How often the values of a key grow.
const WIDENINGS_MAX: usize = 2;

/// A key that is tuned, with the values that are tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Knob {
    pub key: String,
    /// Increasing.
    values: Vec<f64>,
    widened: usize,
    /// On which line of the experiment's file it is.
    pub line: usize,
}

impl Knob {
    /// `None` without values, or if they are not different numbers.
    pub fn new(key: &str, mut values: Vec<f64>, line: usize) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let distinct = values.windows(2).all(|pair| pair[0] < pair[1]);
        let usable = distinct && !values.is_empty() && values.iter().all(|v| v.is_finite());
        usable.then(|| Self {
            key: key.to_owned(),
            values,
            widened: 0,
            line,
        })
    }

    /// One more value beyond the edge on which `best` lies; whether there was one.
    fn widen(&mut self, best: f64) -> bool {
        let next = self.beyond(best).filter(|_| self.widened < WIDENINGS_MAX);
        let Some(next) = next else { return false };
        self.widened += 1;
        self.values.push(next);
        self.values.sort_unstable_by(f64::total_cmp);
        true
    }

    /// Whether there could be something better beyond this value, whether or not the grid could grow. Of
    /// the values of a grid that has grown a setting may be `allowed` only some: between its last one and
    /// the next there may be others.
    pub fn is_edge(&self, value: f64, allowed: &[f64]) -> bool {
        let refused = |v: &&f64| !allowed.contains(v);
        let mut refused = self.values.iter().filter(refused);
        let last = refused.any(|v| match *v > value {
            true => allowed.iter().all(|other| *other <= value),
            false => allowed.iter().all(|other| *other >= value),
        });
        let end = match self.values.as_slice() {
            [first, .., last] => value == *first || value == *last,
            _ => false,
        };
        let bound =
            range(&self.key).is_some_and(|range| [*range.start(), *range.end()].contains(&value));
        (end && !bound) || last
    }

    /// The next value beyond an edge. What is multiplied from update to update, as momentum is,
    /// goes half-way to 1, and as far from it again on the other side, but not below 0; everything
    /// else goes on by the ratio of the last two values, to the nearest integer where a key has no others.
    /// Nothing leaves the key's own range.
    fn beyond(&self, best: f64) -> Option<f64> {
        let (edge, inner) = match self.values.as_slice() {
            [first, second, ..] if best == *first => (*first, *second),
            [.., second, last] if best == *last => (*last, *second),
            _ => return None,
        };
        let next = if is_decay(&self.key) {
            let farther = if edge > inner { 0.5 } else { 2.0 };
            decimal((1.0 - three_digits(farther * (1.0 - edge))).max(0.0))
        } else if edge > 0.0 && inner > 0.0 {
            three_digits(edge * edge / inner)
        } else {
            return None;
        };
        let next = if is_whole(&self.key) {
            next.round()
        } else {
            next
        };
        let inside = range(&self.key).is_some_and(|range| range.contains(&next));
        (inside && !self.values.contains(&next)).then_some(next)
    }
}

/// Whether a key says how slowly a sum over updates forgets.
fn is_decay(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    ["momentum", "beta1", "beta2"].contains(&name)
}

/// Whether a key's values are integers.
fn is_whole(key: &str) -> bool {
    matches!(keys::find(key), Some(key) if matches!(key.kind, Kind::Int { .. }))
}

/// The numbers that a key allows.
fn range(key: &str) -> Option<RangeInclusive<f64>> {
    match keys::find(key)?.kind {
        Kind::Float { min, max } => Some(min..=max),
        Kind::Int { min, max } => Some(min as f64..=max as f64),
        _ => None,
    }
}

fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().expect("a number")
}

/// Without what a difference leaves behind the twelfth decimal.
fn decimal(value: f64) -> f64 {
    format!("{value:.12}").parse().expect("a number")
}

/// A value of a key as TOML.
pub fn toml(key: &str, value: f64) -> String {
    match is_whole(key) && value.fract() == 0.0 {
        true => format!("{value:.0}"),
        false => format!("{value:?}"),
    }
}

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Score {
    /// The measure, turned so that less is better.
    Of(f64),
    /// It diverged.
    None,
    /// It could not be run: nobody knows what it would have come to.
    Unknown,
}

impl Score {
    fn cost(self) -> f64 {
        match self {
            Self::Of(cost) if !cost.is_nan() => cost,
            _ => f64::INFINITY,
        }
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Trials at these points.
    Try(Vec<Vec<f64>>),
    /// This is the best point; `None` if no trial has a score, or one is unknown.
    Best(Option<Vec<f64>>),
}

/// The search of one setting.
#[derive(Clone, Debug)]
pub struct Grid {
    pub knobs: Vec<Knob>,
}

impl Grid {
    /// All combinations of the values; the first key changes last.
    pub fn points(&self) -> Vec<Vec<f64>> {
        let mut all = vec![Vec::new()];
        for knob in &self.knobs {
            let longer = all.iter().flat_map(|known: &Vec<f64>| {
                let with = |value: &f64| [known.as_slice(), &[*value]].concat();
                knob.values.iter().map(with).collect::<Vec<_>>()
            });
            all = longer.collect();
        }
        all
    }

    /// Looks at the scores, `None` where a point has not been tried, and grows where the best one
    /// lies on an edge.
    pub fn next(&mut self, mut score: impl FnMut(&[f64]) -> Option<Score>) -> Next {
        loop {
            let mut missing = Vec::new();
            let mut unknown = false;
            let mut best: Option<(f64, Vec<f64>)> = None;
            for point in self.points() {
                let score = score(&point);
                unknown |= score == Some(Score::Unknown);
                match score.map(Score::cost) {
                    None => missing.push(point),
                    Some(cost) if best.as_ref().is_none_or(|(least, _)| cost < *least) => {
                        best = Some((cost, point));
                    }
                    Some(_) => {}
                }
            }
            if !missing.is_empty() {
                return Next::Try(missing);
            }
            let Some((_, best)) = best.filter(|(cost, _)| cost.is_finite() && !unknown) else {
                return Next::Best(None);
            };
            let mut widened = false;
            for (knob, value) in self.knobs.iter_mut().zip(&best) {
                widened |= knob.widen(*value);
            }
            if !widened {
                return Next::Best(Some(best));
            }
        }
    }
}
