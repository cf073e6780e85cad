//! What a run's records tell, as they come: a curve for each group, and where the time went.

use std::collections::{BTreeMap, VecDeque};

use tradewind_common::record::{Gpu, StepRecord};
use tradewind_launch::progress::rate::Rate;

use crate::curve::{Curve, POINTS_MIN, Point, Times, joined};

/// Points of all curves of a run, about.
const POINTS_MAX: usize = 1 << 16;

/// Points of a curve.
const CURVE_POINTS_MAX: usize = 2048;

/// Points of the curve of all groups.
const JOINED_POINTS_MAX: usize = 1024;

/// Groups that have a curve; more than this many are counted.
const GROUPS_MAX: usize = 2048;

/// Last exchanges of a group that say how it fares now.
const RECENT: usize = 16;

/// Last losses, of whatever groups, that say how the run fares now.
const LOSSES: usize = 32;

/// Delays from this one on are counted together, as shards do.
pub(crate) const DELAYS: usize = 256;

/// A group as its records have it.
#[derive(Clone, Debug)]
pub(crate) struct GroupHistory {
    pub(crate) curve: Curve,
    /// When its first step began, seconds since the Unix epoch.
    pub(crate) begun: f64,
    /// The last exchanges, oldest first.
    recent: VecDeque<StepRecord>,
    /// Seconds of exchanges that were trained again.
    void_seconds: f64,
}

impl GroupHistory {
    /// Its last exchange.
    pub(crate) fn last(&self) -> &StepRecord {
        self.recent.back().expect("it has one at least")
    }

    /// Mean seconds from one exchange to the next, lately; `None` of a single one.
    pub(crate) fn step_seconds(&self) -> Option<f64> {
        let first = self.recent.front()?;
        let exchanges: u64 = self.recent.iter().skip(1).map(|row| row.exchanges).sum();
        let seconds = self.last().wall - first.wall;
        (exchanges > 0 && seconds > 0.0).then(|| seconds / exchanges as f64)
    }

    /// Samples a second that it trains lately.
    pub(crate) fn samples_per_second(&self) -> Option<f64> {
        let first = self.recent.front()?;
        let samples: u64 = self.recent.iter().skip(1).map(|row| row.samples).sum();
        let seconds = self.last().wall - first.wall;
        (samples > 0 && seconds > 0.0).then(|| samples as f64 / seconds)
    }

    /// What it did lately.
    pub(crate) fn recent_times(&self) -> Times {
        let times = self.recent.iter().map(Times::of);
        times.fold(Times::default(), |sum, times| sum.plus(&times, 1.0))
    }

    /// Its mean loss lately.
    pub(crate) fn loss(&self) -> Option<f64> {
        let known: Vec<f64> = self.recent.iter().filter_map(|row| row.loss).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    pub(crate) fn gpu(&self) -> Option<Gpu> {
        self.last().gpu
    }
}

/// Where the seconds of all ranks went, from the first step of each group on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ledger {
    /// Of exchanges whose gradients were applied.
    pub(crate) applied: Times,
    /// Of exchanges that were skipped, left out everywhere, or trained again after a resume.
    pub(crate) for_nothing: f64,
    /// In which there was no step: processes that started, died, or formed their group.
    pub(crate) away: f64,
}

impl Ledger {
    /// Rank-seconds in all.
    pub(crate) fn all(&self) -> f64 {
        self.applied.sum() + self.for_nothing + self.away
    }

    /// The part of all rank-seconds in which gradients were computed that were applied.
    pub(crate) fn goodput(&self) -> Option<f64> {
        (self.all() > 0.0).then(|| self.applied.computing / self.all())
    }
}

/// What the records of a run tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    groups: BTreeMap<u32, GroupHistory>,
    /// Exchanges by delay, as far as there was one; the last entry has all longer ones.
    delays: Vec<u64>,
    rate: Rate,
    /// The last ones, oldest first.
    losses: VecDeque<f64>,
    pub(crate) rows: u64,
    pub(crate) samples_applied: u64,
    pub(crate) updates: u64,
    /// End of the last exchange of any group, seconds since the Unix epoch.
    pub(crate) latest: Option<f64>,
    /// Exchanges whose gradient was not finite, that a policy left out everywhere, and that were made again.
    pub(crate) skipped: u64,
    pub(crate) left_out: u64,
    pub(crate) again: u64,
    /// Rows of groups beyond those that have a curve.
    pub(crate) rows_beyond: u64,
}

impl History {
    /// Takes in a row of `metrics.jsonl`; those of one group come in the order in which they were written.
    pub(crate) fn take_in(&mut self, record: StepRecord) {
        self.rows += 1;
        let latest = self
            .latest
            .map_or(record.wall, |wall| wall.max(record.wall));
        self.latest = Some(latest);
        self.samples_applied = self.samples_applied.max(record.samples_applied);
        self.updates = self.updates.max(record.updates);
        self.rate.push(record.wall, self.samples_applied);
        if let Some(loss) = record.loss.filter(|loss| loss.is_finite()) {
            self.losses.push_back(loss);
            if self.losses.len() > LOSSES {
                self.losses.pop_front();
            }
        }
        match record.delay {
            None if record.skipped => self.skipped += record.exchanges,
            None => self.left_out += record.exchanges,
            Some(_) => {}
        }
        if let Some(delay) = record.delay {
            let place = (delay as usize).min(DELAYS - 1);
            self.delays.resize(self.delays.len().max(place + 1), 0);
            self.delays[place] += record.exchanges;
        }
        if !self.groups.contains_key(&record.group) {
            if self.groups.len() >= GROUPS_MAX {
                self.rows_beyond += 1;
                return;
            }
            self.add(&record);
        }
        let group = self.groups.get_mut(&record.group).expect("it was added");
        group.begun = group.begun.min(record.begun());
        let void = group.curve.push(Point::of(&record));
        if !void.is_empty() {
            group.void_seconds += void.iter().map(Point::seconds).sum::<f64>();
            self.again += void.iter().map(|point| point.exchanges).sum::<u64>();
            group.recent.clear();
            // What was applied before the snapshot and after it counts again.
            self.samples_applied = record.samples_applied;
            self.updates = record.updates;
            self.rate = Rate::default();
            self.rate.push(record.wall, record.samples_applied);
        }
        group.recent.push_back(record);
        if group.recent.len() > RECENT {
            group.recent.pop_front();
        }
    }

    fn add(&mut self, record: &StepRecord) {
        let points = (POINTS_MAX / (self.groups.len() + 1)).clamp(POINTS_MIN, CURVE_POINTS_MAX);
        // As groups become more, each has fewer.
        if points < CURVE_POINTS_MAX {
            for group in self.groups.values_mut() {
                group.curve.shrink(points);
            }
        }
        let group = GroupHistory {
            curve: Curve::new(points),
            begun: record.begun(),
            recent: VecDeque::new(),
            void_seconds: 0.0,
        };
        self.groups.insert(record.group, group);
    }

    pub(crate) fn groups(&self) -> &BTreeMap<u32, GroupHistory> {
        &self.groups
    }

    /// Contributions by their delay, without the empty end.
    pub(crate) fn delays(&self) -> &[u64] {
        &self.delays
    }

    /// Samples applied a second, lately.
    pub(crate) fn samples_per_second(&self) -> Option<f64> {
        self.rate.per_second()
    }

    /// Mean of the run's last losses.
    pub(crate) fn loss(&self) -> Option<f64> {
        let count = self.losses.len();
        (count > 0).then(|| self.losses.iter().sum::<f64>() / count as f64)
    }

    /// The curve of all groups.
    pub(crate) fn joined(&self) -> Vec<Point> {
        joined(
            self.groups.values().map(|group| &group.curve),
            JOINED_POINTS_MAX,
        )
    }

    /// When the first step began, seconds since the Unix epoch.
    pub(crate) fn begun(&self) -> Option<f64> {
        self.groups
            .values()
            .map(|group| group.begun)
            .reduce(f64::min)
    }

    /// Where the time of the ranks went; `ranks` says how many a group has.
    pub(crate) fn ledger(&self, ranks: impl Fn(u32) -> u32) -> Ledger {
        let mut ledger = Ledger::default();
        let Some(latest) = self.latest else {
            return ledger;
        };
        for (id, group) in &self.groups {
            let ranks = f64::from(ranks(*id));
            let points = group.curve.points().iter();
            let applied = points
                .clone()
                .fold(Times::default(), |sum, point| sum.plus(&point.applied, 1.0));
            let for_nothing =
                group.void_seconds + points.map(|point| point.for_nothing).sum::<f64>();
            let away = (latest - group.begun - applied.sum() - for_nothing).max(0.0);
            ledger.applied = ledger.applied.plus(&applied, ranks);
            ledger.for_nothing += ranks * for_nothing;
            ledger.away += ranks * away;
        }
        ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_common::record::fixture::run;

    fn history(records: impl IntoIterator<Item = StepRecord>) -> History {
        let mut history = History::default();
        records
            .into_iter()
            .for_each(|record| history.take_in(record));
        history
    }

    #[test]
    fn points_are_bounded_whatever_the_number_of_groups() {
        for groups in [1, 8, 300, 3000] {
            let history = history(run(groups, 40));
            let points = history
                .groups
                .values()
                .map(|group| group.curve.points().len());
            assert!(points.sum::<usize>() <= POINTS_MAX, "{groups} groups");
            assert!(history.joined().len() <= JOINED_POINTS_MAX);
            let beyond = u64::from(groups).saturating_sub(GROUPS_MAX as u64);
            assert_eq!(history.rows_beyond, 40 * beyond);
            assert_eq!(history.rows, 40 * u64::from(groups));
        }
    }

    #[test]
    fn every_rank_second_is_somewhere() {
        // Steps of 0.13 s at a pace of 0.2 s: of each 0.07 s nobody knows.
        let rows = run(1, 11);
        let elapsed = rows[10].wall - rows[0].begun();
        let ledger = history(rows).ledger(|_| 4);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-5, "{a} {b}");
        close(ledger.all(), 4.0 * elapsed);
        // Of eleven steps the sixth was skipped; the fixture says it had a delay.
        close(ledger.applied.computing, 4.0 * 1.1);
        close(ledger.away, 4.0 * 10.0 * 0.07);
        close(ledger.goodput().unwrap(), 1.1 / elapsed);
        assert_eq!(Ledger::default().goodput(), None);
    }

    #[test]
    fn what_was_for_nothing_is_told_apart() {
        let mut rows = run(1, 10);
        rows[3].delay = None;
        let again: Vec<StepRecord> = rows[8..]
            .iter()
            .map(|row| StepRecord {
                wall: row.wall + 5.0,
                ..row.clone()
            })
            .collect();
        rows.extend(again);
        let history = history(rows);
        let ledger = history.ledger(|_| 1);
        assert!((ledger.for_nothing - 3.0 * 0.13).abs() < 1e-6, "{ledger:?}");
        assert_eq!(history.groups[&0].curve.points().len(), 10);
        assert_eq!(history.samples_applied, 320);
    }

    #[test]
    fn delays_are_counted_to_a_bound() {
        let mut rows = run(1, 4);
        rows[0].delay = Some(0);
        rows[1].delay = Some(10_000);
        rows[2].delay = None;
        rows[3].delay = Some(2);
        let history = history(rows);
        assert_eq!(history.delays().len(), DELAYS);
        assert_eq!(history.delays()[..3], [1, 0, 1]);
        assert_eq!(history.delays()[DELAYS - 1], 1);
    }
}
