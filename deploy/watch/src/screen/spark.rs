//! The course of a run in one row or two: bars of its loss and of its samples a second.

use crate::curve::Point;

/// Steps of the height of a bar, for one row.
pub(super) const STEPS: u64 = 8;

/// The course of a quantity: a value for each place, from the first step to now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Course {
    pub(super) values: Vec<Option<f64>>,
}

impl Course {
    /// The mean loss, in `places` places at most.
    pub(super) fn of_loss(points: &[Point], places: usize) -> Self {
        let mean = |points: &[Point]| {
            let known: Vec<f64> = points.iter().filter_map(Point::loss).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        Self {
            values: pieces(points, places).map(mean).collect(),
        }
    }

    /// Samples a second that were applied, likewise.
    pub(super) fn of_rate(points: &[Point], places: usize) -> Self {
        // When so many samples had been applied; groups tell of them in whatever order.
        let mut before: Option<(f64, u64)> = None;
        let mut values = Vec::new();
        for piece in pieces(points, places) {
            let most = piece.iter().map(|point| point.samples_applied).max();
            let wall = piece.last().expect("pieces are not empty").wall;
            let (since, had) = before.unwrap_or((piece[0].wall, piece[0].samples_applied));
            let have = most.map_or(had, |most| most.max(had));
            let seconds = wall - since;
            values.push((seconds > 0.0).then(|| (have - had) as f64 / seconds));
            before = Some((wall, have));
        }
        Self { values }
    }

    /// The least and the greatest value.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        let known = || self.values.iter().flatten().copied();
        Some((known().reduce(f64::min)?, known().reduce(f64::max)?))
    }

    /// Bars of `rows` rows, from `least` on: of what is known at least a trace is seen.
    pub(super) fn bars(&self, least: f64, rows: u16) -> Vec<Option<u64>> {
        let top = STEPS * u64::from(rows);
        let most = self.range().map_or(least, |(_, most)| most);
        let bar = |value: f64| match most > least {
            true => (((value - least) / (most - least) * top as f64).round() as u64).clamp(1, top),
            false => 1,
        };
        self.values.iter().map(|value| value.map(bar)).collect()
    }
}

/// Points that follow each other, in so many pieces at most, none of them empty.
fn pieces(points: &[Point], places: usize) -> impl Iterator<Item = &[Point]> {
    points.chunks(points.len().div_ceil(places.max(1)).max(1))
}
