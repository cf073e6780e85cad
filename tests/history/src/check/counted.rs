//! Whether the counts of a group are what it brought: each contribution once, from when it was made.

use super::brought::{Applied, Item};
use super::index::{Answered, Index};
use super::states::State;
use super::violation::{Rule, Told, Violation};
use super::{near, not};
use crate::record::{Policy, Verdict};

/// Lowest and highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Between {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A group's counts in one lineage.
#[derive(Debug)]
pub(super) struct Counted<'i, 'h> {
    group: usize,
    items: &'i [Item<'h>],
    /// What the lineage began with.
    pub(super) base: Between,
    /// After all that it brought.
    pub(super) end: Between,
    /// After the last that was answered, at most.
    settled: f64,
    /// After each of its contributions at most.
    highs: Vec<f64>,
    /// When each, or one behind it, was sent: a former life that hangs may send when the next one has
    /// begun.
    since_us: Vec<u64>,
    /// How many of them the present state has: by versions, by counts, by time.
    made: usize,
    contained: usize,
    sent: usize,
    /// The last one that the present state has by its version.
    last: Option<Applied<'h>>,
}

impl<'i, 'h> Counted<'i, 'h> {
    /// The counts of `group`, which has brought `items`; when the lineage began, there were `base`
    /// at most, or exactly if it is the first one.
    pub(super) fn new(
        index: &Index<'h>,
        group: usize,
        items: &'i [Item<'h>],
        states: &[State<'h>],
        (first, ceiling): (bool, f64),
    ) -> Result<Self, Violation> {
        let mut counted = Self {
            group,
            items,
            base: Between {
                low: 0.0,
                high: ceiling,
            },
            end: Between {
                low: 0.0,
                high: ceiling,
            },
            settled: ceiling,
            highs: Vec::with_capacity(items.len()),
            since_us: since(index, items),
            made: 0,
            contained: 0,
            sent: 0,
            last: None,
        };
        if !first {
            counted.begin(index, states)?;
        }
        counted.walk(index, first)?;
        Ok(counted)
    }

    /// With how many the lineage can have begun, by the first count that is known.
    fn begin(&mut self, index: &Index<'h>, states: &[State<'h>]) -> Result<(), Violation> {
        let state = states.iter().find(|state| state.counts.is_some());
        let Some(state) = state else { return Ok(()) };
        let known = |item: &Item<'h>| item.applied.filter(|applied| applied.counted.is_some());
        let before = self.items.iter().take_while(|item| known(item).is_none());
        let sent = |item: &&Item<'_>| item.since_us <= state.told.answer.end_us;
        let (all, sent) = (before.clone().count() as f64, before.filter(sent).count());
        let of_state = state.counts.unwrap_or_default()[self.group];
        let (low, high, told) = match self.items.iter().find_map(known) {
            Some(applied) => {
                let counted = applied.counted.unwrap_or_default();
                let own = if applied.fresh && !index.run.merged {
                    1.0
                } else {
                    0.0
                };
                (counted - 1.0 - all, counted - own, applied.by)
            }
            None => (of_state - sent as f64, of_state, state.told),
        };
        self.base.low = low.max(0.0);
        self.base.high = self.base.high.min(high).min(of_state).max(0.0);
        let lacks = self.base.low > self.base.high && !near(index, self.base.low, self.base.high);
        let group = self.group;
        not(lacks, || {
            let text = format!(
                "{}: it has {} contributions of group {group} that were there when the lineage began, \
                 where {} can have been at most",
                Told(told.operation),
                self.base.low,
                self.base.high
            );
            Violation::new(Rule::Doubled, &[told.operation], text)
        })?;
        self.base.low = self.base.low.min(self.base.high);
        Ok(())
    }

    /// Each contribution is in the values of its own answer, and what is there besides was there
    /// before, or may have been.
    fn walk(&mut self, index: &Index<'h>, first: bool) -> Result<(), Violation> {
        let mut now = self.base;
        self.settled = now.high;
        let mut former: Option<Answered<'h>> = None;
        for item in self.items {
            index.work.add(1);
            let Some(applied) = item.applied else {
                now.high += 1.0;
                self.highs.push(now.high);
                continue;
            };
            let new = applied.fresh || first || former.is_some();
            let least = match (new, index.run.merged) {
                (false, _) | (_, true) => now.low,
                (true, false) => now.low + 1.0,
            };
            let most = now.high + 1.0;
            let Some(counted) = applied.counted else {
                now = Between {
                    low: least,
                    high: most,
                };
                self.settled = now.high;
                self.highs.push(now.high);
                continue;
            };
            let group = self.group;
            let wrong = |rule, words: &str, bound: f64| {
                let mut both: Vec<_> = former.iter().map(|former| former.operation).collect();
                both.push(applied.by.operation);
                let since = former.map_or("the beginning".into(), |former| {
                    Told(former.operation).to_string()
                });
                let text = format!(
                    "{} counts group {group} {counted} times, {words} {bound} by all that was answered \
                     and sent since {since}",
                    Told(applied.by.operation)
                );
                Violation::new(rule, &both, text)
            };
            let near = |bound| near(index, counted, bound);
            not(counted < least && !near(least), || {
                wrong(Rule::Applied, "at least", least)
            })?;
            not(counted > most && !near(most), || {
                wrong(Rule::Doubled, "at most", most)
            })?;
            now = Between {
                low: counted,
                high: counted,
            };
            self.settled = counted;
            self.highs.push(counted);
            former = Some(applied.by);
        }
        self.end = now;
        Ok(())
    }

    /// Whether a state has what was made by then, and nothing that was made later. States come in
    /// the order of their versions.
    pub(super) fn state(&mut self, index: &Index<'h>, state: &State<'h>) -> Result<(), Violation> {
        let Some(counts) = state.counts else {
            return Ok(());
        };
        let count = counts[self.group];
        while let Some(item) = self.items.get(self.made) {
            let there = item.applied.is_none_or(|applied| {
                applied.made.unwrap_or(applied.by.answer.of.version) <= state.version
            });
            if !there {
                break;
            }
            index.work.add(1);
            self.last = item.applied.or(self.last);
            self.made += 1;
        }
        let group = self.group;
        let told = state.told.operation;
        if let Some(applied) = self.last
            && let Some(counted) = applied.counted
        {
            let by = applied.by.operation;
            not(count < counted && !near(index, count, counted), || {
                let text = format!(
                    "{} counts group {group} {count} times and lacks {}, which is the one of number \
                     {counted}",
                    Told(told),
                    Told(by)
                );
                Violation::new(Rule::Applied, &[by, told], text)
            })?;
        }
        let next = self.items.get(self.made);
        if let Some(applied) = next.and_then(|item| item.applied)
            && let (Some(counted), Some(made)) = (applied.counted, applied.made)
        {
            let by = applied.by.operation;
            not(count > counted - 1.0, || {
                let text = format!(
                    "{} counts group {group} {count} times and has {} already, which made version {made}",
                    Told(told),
                    Told(by)
                );
                Violation::new(Rule::Future, &[told, by], text)
            })?;
        }
        not(
            count > self.end.high && !near(index, count, self.end.high),
            || {
                let text = format!(
                    "{} counts group {group} {count} times, where it can have brought {} at most",
                    Told(told),
                    self.end.high
                );
                Violation::new(Rule::Doubled, &[told], text)
            },
        )
    }

    /// The first contribution that a state surely lacks, if it was answered. States come in the order
    /// of their versions.
    pub(super) fn lacks(&mut self, index: &Index<'h>, count: f64) -> Option<Item<'h>> {
        while let Some(item) = self.items.get(self.contained) {
            match item.applied.map(|applied| applied.counted) {
                Some(Some(counted)) if counted > count => return Some(*item),
                Some(None) => return None,
                _ => self.contained += 1,
            }
            index.work.add(1);
        }
        None
    }

    /// Whether what an answer tells had been sent when it was there. Answers come in the order of
    /// their ends.
    pub(super) fn told(
        &mut self,
        index: &Index<'h>,
        answered: Answered<'h>,
    ) -> Result<(), Violation> {
        let Some(counts) = &answered.answer.counts else {
            return Ok(());
        };
        while let Some(since_us) = self.since_us.get(self.sent)
            && *since_us <= answered.answer.end_us
        {
            index.work.add(1);
            self.sent += 1;
        }
        let most = match self.sent {
            0 => self.base.high,
            sent => self.highs[sent - 1],
        };
        let (group, count) = (self.group, counts[self.group]);
        not(count > most && !near(index, count, most), || {
            let text = format!(
                "{} counts group {group} {count} times, which had sent {most} by then at most",
                Told(answered.operation)
            );
            Violation::new(Rule::Future, &[answered.operation], text)
        })
    }

    /// How many of its last contributions may be in the lineage though nobody was answered: those
    /// sent before the time.
    pub(super) fn unseen(&self, seen: Option<f64>, before_us: u64) -> u64 {
        let open = self.items.iter().rev();
        let open = open.take_while(|item| item.applied.is_none());
        let open = open.filter(|item| item.since_us <= before_us).count() as f64;
        let seen = seen.map_or(0.0, |seen| (seen - self.settled).max(0.0));
        (open - seen).max(0.0).ceil() as u64
    }

    /// How many it had sent by a time, in this lineage.
    pub(super) fn sent_by(&self, end_us: u64) -> u64 {
        let sent = self.since_us.iter().take_while(|since| **since <= end_us);
        sent.count() as u64
    }
}

/// The earliest time of each item and those behind it.
fn since(index: &Index<'_>, items: &[Item<'_>]) -> Vec<u64> {
    let mut since: Vec<u64> = items.iter().map(|item| item.since_us).collect();
    let mut earliest = u64::MAX;
    for at in since.iter_mut().rev() {
        index.work.add(1);
        earliest = earliest.min(*at);
        *at = earliest;
    }
    since
}

/// What each group surely had not been decided of at a state bounds the clocks that were.
pub(super) fn staleness<'h>(
    index: &Index<'h>,
    counted: &mut [Counted<'_, 'h>],
    state: &State<'h>,
    answered: &[Answered<'h>],
) -> Result<(), Violation> {
    let (Policy::Bounded(bound), Some(counts)) = (index.run.policy, state.counts) else {
        return Ok(());
    };
    let all = counted.iter_mut().zip(counts);
    let lacking: Vec<_> = all
        .map(|(counted, count)| counted.lacks(index, *count))
        .collect();
    for this in &answered[state.answers.clone()] {
        let applied = this.answer.verdict == Verdict::Applied;
        // Behind values that were restored a group counts only once it is heard again.
        if !applied || this.answer.repeated || this.answer.of.lineage > 0 {
            continue;
        }
        let operation = this.operation;
        for (group, lacking) in lacking.iter().enumerate() {
            index.work.add(1);
            let (Some(item), false) = (lacking, group == operation.group as usize) else {
                continue;
            };
            let live = index.live(group, operation.start_us, this.answer.end_us);
            if live.is_none_or(|life| life.incarnation != item.key.0) {
                continue;
            }
            let Some(applied) = item.applied else {
                continue;
            };
            let stands = item.key.1;
            not(operation.clock > stands.saturating_add(bound), || {
                let other = applied.by.operation;
                let text = format!(
                    "{} lacks {}, so group {group} stood at clock {stands} at most, under a bound of \
                     {bound}",
                    Told(operation),
                    Told(other)
                );
                Violation::new(Rule::Staleness, &[operation, other], text)
            })?;
        }
    }
    Ok(())
}
