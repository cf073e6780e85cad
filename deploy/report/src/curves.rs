//! The curves of a run from what its groups have written down: as they are drawn while it goes on, by TensorBoard, and
//! handed on afterwards, to MLflow and W&B.
//!
//! A curve has few points, each of all exchanges since the one before. Where it is along the way is told in samples that
//! were applied to the run, so that runs with other batches compare.

use std::collections::BTreeMap;

use tradewind_common::record::StepRecord;

/// Points of a curve over the budget.
pub(crate) const POINTS_MAX: u64 = 1000;

/// Groups with curves of their own.
pub(crate) const GROUPS_MAX: usize = 64;

/// What the curves of a group, or of all groups together, are at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Seconds since the Unix epoch.
    pub wall: f64,
    /// Samples that were applied to the run.
    pub samples: u64,
    /// The curves that have a point here, by name.
    pub values: Vec<(&'static str, f64)>,
}

/// The points of a run with this budget in samples: of all groups together, `None`, and of each group by itself.
pub fn points(records: &[StepRecord], budget: u64) -> Vec<(Option<u32>, Point)> {
    let mut all = Points::new(budget);
    let mut groups: BTreeMap<u32, Points> = BTreeMap::new();
    let mut points = Vec::new();
    for record in records {
        points.extend(all.take(record).map(|point| (None, point)));
        if groups.len() < GROUPS_MAX || groups.contains_key(&record.group) {
            let group = groups.entry(record.group);
            let group = group.or_insert_with(|| Points::new(budget));
            points.extend(group.take(record).map(|point| (Some(record.group), point)));
        }
    }
    points
}

/// Makes points of records, one after the other.
#[derive(Debug)]
pub(crate) struct Points {
    window: Window,
    /// What the next point is made of.
    merged: Option<StepRecord>,
    /// When the last point was, seconds since the Unix epoch; `None` before the first record.
    since: Option<f64>,
}

impl Points {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            window: Window::new(budget, POINTS_MAX),
            merged: None,
            since: None,
        }
    }

    /// Takes a record in; the point that ends with it, if one does.
    pub(crate) fn take(&mut self, record: &StepRecord) -> Option<Point> {
        let since = *self.since.get_or_insert_with(|| record.begun());
        let merged = match self.merged.take() {
            Some(merged) => merged.and(record.clone()),
            None => record.clone(),
        };
        if !self.window.ends(record.samples_applied) {
            self.merged = Some(merged);
            return None;
        }
        self.since = Some(record.wall);
        Some(point(&merged, record.wall - since))
    }
}

/// The point of merged records, which are of so many seconds.
fn point(merged: &StepRecord, seconds: f64) -> Point {
    let each = |sum: f64| sum / merged.exchanges as f64;
    let mut values = vec![
        ("lag", merged.lag as f64),
        ("updates", merged.updates as f64),
        ("seconds/data", each(merged.data_seconds)),
        ("seconds/compute", each(merged.compute_seconds)),
        ("seconds/reduce", each(merged.reduce_seconds)),
        ("seconds/exchange", each(merged.exposed_seconds)),
        ("seconds/wait", each(merged.wait_seconds)),
    ];
    values.extend(merged.loss.map(|loss| ("loss", loss)));
    values.extend(merged.delay.map(|delay| ("delay/max", delay as f64)));
    if seconds > 0.0 {
        values.push(("samples_per_second", merged.samples as f64 / seconds));
    }
    Point {
        wall: merged.wall,
        samples: merged.samples_applied,
        values,
    }
}

/// Divides the budget into parts.
#[derive(Debug)]
pub(crate) struct Window {
    samples: u64,
    /// In which part the last one ended; `None` at first.
    last: Option<u64>,
}

impl Window {
    pub(crate) fn new(budget: u64, parts: u64) -> Self {
        Self {
            samples: (budget / parts).max(1),
            last: None,
        }
    }

    /// Whether another part has begun with so many applied samples.
    pub(crate) fn ends(&mut self, applied: u64) -> bool {
        let part = applied / self.samples;
        let ends = self.last != Some(part);
        self.last = Some(part);
        ends
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::record::fixture::run;

    use super::*;

    #[test]
    fn points_are_of_all_groups_and_of_each() {
        let records = run(3, 6);
        let budget = records.iter().map(|record| record.samples).sum();
        let points = points(&records, budget);
        for group in 0..3 {
            let own = records.iter().filter(|record| record.group == group);
            let want: Vec<_> = own
                .map(|record| (record.samples_applied, record.wall))
                .collect();
            let of = points.iter().filter(|(of, _)| *of == Some(group));
            let told: Vec<_> = of.map(|(_, point)| (point.samples, point.wall)).collect();
            assert_eq!(told, want);
        }
        let mut all = points.iter().filter(|(of, _)| of.is_none());
        let last = all.next_back().unwrap();
        assert_eq!(last.1.samples, records.last().unwrap().samples_applied);
        assert!(
            last.1
                .values
                .contains(&("lag", records.last().unwrap().lag as f64))
        );
    }

    #[test]
    fn a_run_of_many_groups_has_bounded_curves() {
        let points = points(&run(70, 2), 1 << 20);
        let groups: std::collections::BTreeSet<u32> =
            points.iter().filter_map(|(of, _)| *of).collect();
        assert_eq!(groups.len(), GROUPS_MAX);
    }
}
