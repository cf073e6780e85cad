//! The clocks that groups have finished, and when: at each of them everything was acknowledged.

use std::collections::BTreeMap;

use tradewind_common::record::StepRecord;
use tradewind_proto::v1::DecidedClock;

#[derive(Clone, Copy, Debug)]
struct Finished {
    /// When, seconds since the Unix epoch.
    wall: f64,
    /// Samples that it has brought to every block; 0 if a policy left some out.
    samples: u64,
}

/// By group.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<u32, BTreeMap<u64, Finished>>);

/// What a finished clock is to those before.
pub(super) enum ClockPlace {
    /// Later than all of its group.
    Next,
    /// Written down after a later one.
    Late,
    /// It was finished before, at this time.
    Again(f64),
}

impl Clocks {
    pub(super) fn insert(&mut self, record: &StepRecord) -> ClockPlace {
        let whole = !record.skipped && record.buckets_skipped == 0 && record.dropped == 0;
        let finished = Finished {
            wall: record.wall,
            samples: if whole { record.samples } else { 0 },
        };
        let clocks = self.0.entry(record.group).or_default();
        let late = clocks
            .last_key_value()
            .is_some_and(|(last, _)| *last > record.clock);
        match clocks.insert(record.clock, finished) {
            Some(previous) => ClockPlace::Again(previous.wall),
            None if late => ClockPlace::Late,
            None => ClockPlace::Next,
        }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// The last clock of a group whose exchange lies between two times: its previous clock was finished
    /// after the first one.
    pub(super) fn last(&self, group: u32, after: f64, until: f64) -> Option<u64> {
        let clocks = self.0.get(&group)?;
        let mut later = clocks.iter().rev();
        let last = later.find(|(_, f)| f.wall > after && f.wall <= until);
        last.map(|(clock, _)| *clock)
            .filter(|clock| self.begins_after(group, *clock, after))
    }

    /// Whether the exchange of a clock began after a time, because the one before ended after it.
    pub(super) fn begins_after(&self, group: u32, clock: u64, time: f64) -> bool {
        let clocks = self.0.get(&group);
        let previous = clocks.and_then(|clocks| clocks.range(..clock).next_back());
        time == 0.0 || previous.is_some_and(|(_, previous)| previous.wall > time)
    }

    /// Whether all clocks that were finished in a time are among those that are decided.
    pub(super) fn covered(&self, decided: &[DecidedClock], after: f64, until: f64) -> bool {
        self.groups().all(|group| {
            let Some(finished) = self.last(group, after, until) else {
                return true;
            };
            let of = decided.iter().find(|decided| decided.group == group);
            of.is_some_and(|decided| decided.clock >= finished)
        })
    }

    /// Clocks of a group that are later than one and were finished until a time, each with its samples.
    pub(super) fn between(
        &self,
        group: u32,
        after: Option<u64>,
        until: f64,
    ) -> impl Iterator<Item = (u64, u64)> {
        let from = after.map_or(0, |clock| clock + 1);
        let clocks = self.0.get(&group).into_iter();
        let clocks = clocks.flat_map(move |clocks| clocks.range(from..));
        clocks
            .filter(move |(_, finished)| finished.wall <= until)
            .map(|(clock, finished)| (*clock, finished.samples))
    }
}
