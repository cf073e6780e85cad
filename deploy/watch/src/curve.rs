//! The course of one group in so many points, however long it trains: neighbours are merged when there are more.

use serde::Serialize;
use tradewind_common::record::StepRecord;

/// Points of a curve, at least: below that it says nothing.
pub(crate) const POINTS_MIN: usize = 32;

/// What a group does in forward and backward.
pub(crate) const COMPUTING: &str = "computing";

/// Seconds of a group, by what it did; the words are those of an experiment's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Times {
    /// Waiting for its batch.
    pub(crate) reading: f64,
    /// In forward and backward.
    pub(crate) computing: f64,
    /// In reductions that nothing hid.
    pub(crate) reducing: f64,
    /// Standing still for an exchange, without `waiting`.
    pub(crate) exchanging: f64,
    /// Held back by the consistency policy.
    pub(crate) waiting: f64,
}

impl Times {
    pub(crate) fn of(record: &StepRecord) -> Self {
        let waiting = record.wait_seconds.min(record.exposed_seconds);
        Self {
            reading: record.data_seconds,
            computing: record.compute_seconds,
            reducing: record.reduce_seconds,
            exchanging: record.exposed_seconds - waiting,
            waiting,
        }
    }

    pub(crate) fn sum(&self) -> f64 {
        self.reading + self.computing + self.reducing + self.exchanging + self.waiting
    }

    /// Each with its words, in the order of the page.
    pub(crate) fn parts(&self) -> [(&'static str, f64); 5] {
        [
            (COMPUTING, self.computing),
            ("waiting for data", self.reading),
            ("reducing", self.reducing),
            ("exchanging", self.exchanging),
            ("held back", self.waiting),
        ]
    }

    /// What took most of them, and how many.
    pub(crate) fn most(&self) -> (&'static str, f64) {
        let [first, rest @ ..] = self.parts();
        let more = |most: (&'static str, f64), next: (&'static str, f64)| {
            if next.1 > most.1 { next } else { most }
        };
        rest.into_iter().fold(first, more)
    }

    /// Both, each of the first counted once and of the second `times` times.
    pub(crate) fn plus(&self, more: &Self, times: f64) -> Self {
        Self {
            reading: self.reading + times * more.reading,
            computing: self.computing + times * more.computing,
            reducing: self.reducing + times * more.reducing,
            exchanging: self.exchanging + times * more.exchanging,
            waiting: self.waiting + times * more.waiting,
        }
    }
}

/// One exchange or several that follow each other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// Of the last of them.
    pub(crate) clock: u64,
    /// End of the last of them, seconds since the Unix epoch.
    pub(crate) wall: f64,
    pub(crate) exchanges: u64,
    pub(crate) samples_applied: u64,
    pub(crate) updates: u64,
    /// Sum of the losses of exchanges that had one, and how many these are.
    loss: (f64, u64),
    /// The greatest of them.
    pub(crate) lag: u64,
    /// The greatest of them; `None` if no gradient was applied.
    pub(crate) delay: Option<u64>,
    /// Of exchanges whose gradient was applied, at least at some block.
    pub(crate) applied: Times,
    /// Seconds of the others: skipped, or left out everywhere.
    pub(crate) for_nothing: f64,
}

impl Point {
    pub(crate) fn of(record: &StepRecord) -> Self {
        let times = Times::of(record);
        let applied = record.delay.is_some();
        Self {
            clock: record.clock,
            wall: record.wall,
            exchanges: record.exchanges,
            samples_applied: record.samples_applied,
            updates: record.updates,
            loss: match record.loss {
                Some(loss) if loss.is_finite() => {
                    (loss * record.exchanges as f64, record.exchanges)
                }
                _ => (0.0, 0),
            },
            lag: record.lag,
            delay: record.delay,
            applied: if applied { times } else { Times::default() },
            for_nothing: if applied { 0.0 } else { times.sum() },
        }
    }

    /// The mean; `None` if none was finite.
    pub(crate) fn loss(&self) -> Option<f64> {
        let (sum, count) = self.loss;
        (count > 0).then(|| sum / count as f64)
    }

    /// All seconds of these exchanges.
    pub(crate) fn seconds(&self) -> f64 {
        self.applied.sum() + self.for_nothing
    }

    /// One point for this one and a later one.
    pub(crate) fn and(&self, later: &Self) -> Self {
        Self {
            clock: later.clock,
            wall: self.wall.max(later.wall),
            exchanges: self.exchanges + later.exchanges,
            samples_applied: self.samples_applied.max(later.samples_applied),
            updates: self.updates.max(later.updates),
            loss: (self.loss.0 + later.loss.0, self.loss.1 + later.loss.1),
            lag: self.lag.max(later.lag),
            delay: self.delay.max(later.delay),
            applied: self.applied.plus(&later.applied, 1.0),
            for_nothing: self.for_nothing + later.for_nothing,
        }
    }
}

/// Points of one group, oldest first, at most so many.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    points: Vec<Point>,
    points_max: usize,
    /// Rows that become one point.
    per_point: u64,
    /// Rows in the last point.
    in_last: u64,
    /// Changes when points other than the last one do: whoever has shown some begins anew.
    epoch: u64,
}

impl Curve {
    /// An empty one; `points_max` is taken as [`POINTS_MIN`] at least.
    pub(crate) fn new(points_max: usize) -> Self {
        Self {
            points: Vec::new(),
            points_max: points_max.max(POINTS_MIN),
            per_point: 1,
            in_last: 0,
            epoch: 0,
        }
    }

    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes in the next exchange. What it makes void, because a resumed run trains it again, is returned: of
    /// points in which exchanges were merged up to one more.
    pub(crate) fn push(&mut self, point: Point) -> Vec<Point> {
        let keeps = self.points.partition_point(|old| old.clock < point.clock);
        let void: Vec<Point> = self.points.drain(keeps..).collect();
        if !void.is_empty() {
            self.epoch += 1;
            self.in_last = self.per_point;
        }
        match self.points.last_mut() {
            Some(last) if self.in_last < self.per_point => {
                *last = last.and(&point);
                self.in_last += 1;
            }
            _ => {
                if self.points.len() >= self.points_max {
                    self.halve();
                }
                self.points.push(point);
                self.in_last = 1;
            }
        }
        void
    }

    /// From now on at most so many points.
    pub(crate) fn shrink(&mut self, points_max: usize) {
        self.points_max = points_max.max(POINTS_MIN);
        while self.points.len() > self.points_max {
            self.halve();
        }
    }

    /// Makes one point of every two.
    fn halve(&mut self) {
        let odd = self.points.len() % 2 == 1;
        let pairs = self.points.chunks(2);
        self.points = pairs
            .map(|pair| match pair {
                [one, two] => one.and(two),
                alone => alone[0].clone(),
            })
            .collect();
        self.in_last = if odd {
            self.in_last
        } else {
            self.per_point + self.in_last
        };
        self.per_point *= 2;
        self.epoch += 1;
    }
}

/// One curve for all groups: their points in the order of time, at most so many.
pub(crate) fn joined<'a>(curves: impl Iterator<Item = &'a Curve>, points_max: usize) -> Vec<Point> {
    let mut all: Vec<&Point> = curves.flat_map(|curve| &curve.points).collect();
    all.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    let per_point = all.len().div_ceil(points_max).max(1);
    let merged = |points: &[&Point]| {
        let (first, rest) = points.split_first().expect("chunks are not empty");
        rest.iter()
            .fold((*first).clone(), |sum, point| sum.and(point))
    };
    all.chunks(per_point).map(merged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_common::record::fixture::run;

    fn curve(rows: u64, points_max: usize) -> Curve {
        let mut curve = Curve::new(points_max);
        for record in run(1, rows) {
            assert_eq!(curve.push(Point::of(&record)), []);
        }
        curve
    }

    #[test]
    fn a_curve_is_bounded_and_keeps_its_sums() {
        for rows in [1, 31, 63, 64, 65, 127, 1000, 4096, 10_007] {
            let curve = curve(rows, 64);
            let points = curve.points();
            assert!(points.len() <= 64, "{rows}: {}", points.len());
            assert!(
                points.len() as u64 >= rows.min(32),
                "{rows}: {}",
                points.len()
            );
            let exchanges: u64 = points.iter().map(|point| point.exchanges).sum();
            assert_eq!(exchanges, rows);
            let own = run(1, rows);
            let skipped = own.iter().filter(|row| row.loss.is_none()).count();
            let losses: u64 = points.iter().map(|point| point.loss.1).sum();
            assert_eq!(losses + skipped as u64, rows);
            let want: f64 = own.iter().map(|row| Times::of(row).sum()).sum();
            let seconds: f64 = points.iter().map(Point::seconds).sum();
            assert!((seconds - want).abs() < 1e-6 * want, "{seconds} {want}");
            assert!(points.is_sorted_by_key(|point| point.clock));
        }
    }

    #[test]
    fn what_is_trained_again_is_void() {
        let rows = run(1, 50);
        let mut curve = Curve::new(64);
        let mut push = |row: &StepRecord, want: usize| {
            assert_eq!(curve.push(Point::of(row)).len(), want, "{}", row.clock);
        };
        rows.iter().for_each(|row| push(row, 0));
        push(&rows[30], 20);
        push(&rows[31], 0);
        assert_eq!(curve.points().len(), 32);
        assert_eq!(curve.epoch(), 1);
    }

    #[test]
    fn all_groups_are_one_curve_in_the_order_of_time() {
        let mut curves = [Curve::new(64), Curve::new(64), Curve::new(64)];
        for record in run(3, 40) {
            curves[record.group as usize].push(Point::of(&record));
        }
        let all = joined(curves.iter(), 50);
        assert!(all.len() <= 50 && all.is_sorted_by(|a, b| a.wall <= b.wall));
        assert_eq!(all.iter().map(|point| point.exchanges).sum::<u64>(), 120);
        curves[0].shrink(32);
        assert!(curves[0].points().len() <= 32);
        assert_eq!(joined([].into_iter(), 50), []);
    }
}
