//! What the coordinator knows of its runs, as gauges: groups, their clocks and lag, copies.

use std::collections::{BTreeMap, HashMap};

use metrics::{Gauge, gauge};
use tradewind_common::spec::ConsistencySpec;
use tradewind_common::{GroupId, RunId};
use tradewind_core::coordinator::Coordinator;
use tradewind_core::run::{GroupRow, GroupState, Run};

use super::are_served;
use super::table::{BOUND, COPIES, GROUP_CLOCK, GROUP_LAG, GROUP_LIVE, GROUPS};

/// Between two publications, milliseconds.
const EVERY_MS: u64 = 1000;

/// Groups of a run with gauges of their own; of more only the numbers by state are told.
pub(super) const GROUPS_MAX: usize = 2048;

/// Gauges of all runs. What is dropped is told as none: another server's coordinator may tell of it from then on.
#[derive(Default)]
pub(crate) struct Members {
    runs: HashMap<RunId, OfRun>,
    told_ms: Option<u64>,
}

impl Members {
    /// Tells how all runs stand, once a second, where somebody listens.
    pub(crate) fn tell(&mut self, core: &Coordinator, now_ms: u64) {
        let is_early = |told_ms: u64| now_ms < told_ms + EVERY_MS;
        if !are_served() || self.told_ms.is_some_and(is_early) {
            return;
        }
        self.told_ms = Some(now_ms);
        self.runs.retain(|name, _| core.run(name).is_ok());
        for run in core.runs() {
            let of = self.runs.entry(run.name().clone());
            let of = of.or_insert_with(|| OfRun::new(run));
            of.tell(run, now_ms);
        }
    }
}

/// Those of one run.
pub(super) struct OfRun {
    run: String,
    states: BTreeMap<&'static str, Gauge>,
    groups: BTreeMap<GroupId, OfGroup>,
    bound: Option<Gauge>,
    full: Gauge,
    filling: Gauge,
    missing: Gauge,
}

struct OfGroup {
    live: Gauge,
    clock: Gauge,
    lag: Gauge,
}

impl OfRun {
    fn new(run: &Run) -> Self {
        let name = run.name().to_string();
        let bound = match run.spec().consistency {
            ConsistencySpec::Bounded { staleness_bound } => Some(staleness_bound),
            ConsistencySpec::Sync | ConsistencySpec::Async => None,
        };
        let bound = bound.map(|bound| {
            let gauge = gauge!(BOUND.name, "run" => name.clone());
            gauge.set(bound as f64);
            gauge
        });
        let copies =
            |state: &'static str| gauge!(COPIES.name, "run" => name.clone(), "state" => state);
        Self {
            states: BTreeMap::new(),
            groups: BTreeMap::new(),
            bound,
            full: copies("full"),
            filling: copies("filling"),
            missing: copies("missing"),
            run: name,
        }
    }

    fn tell(&mut self, run: &Run, now_ms: u64) {
        self.tell_groups(&run.rows(now_ms));
        let wanted = run.spec().faults.replication.saturating_sub(1) as usize;
        let (mut full, mut filling, mut missing) = (0, 0, 0);
        for holders in run.holders() {
            let there = holders.copies.iter().filter(|copy| copy.full).count();
            full += there;
            filling += holders.copies.len() - there;
            missing += wanted.saturating_sub(holders.copies.len());
        }
        self.full.set(full as f64);
        self.filling.set(filling as f64);
        self.missing.set(missing as f64);
    }

    pub(super) fn tell_groups(&mut self, rows: &[GroupRow]) {
        let mut states: BTreeMap<&'static str, usize> = BTreeMap::new();
        for row in rows {
            *states.entry(row.word()).or_default() += 1;
        }
        for (state, gauge) in &self.states {
            gauge.set(states.remove(state).unwrap_or(0) as f64);
        }
        for (state, count) in states {
            let gauge = gauge!(GROUPS.name, "run" => self.run.clone(), "state" => state);
            gauge.set(count as f64);
            self.states.insert(state, gauge);
        }
        let is_live = |row: &&GroupRow| row.state == GroupState::Live;
        let fastest = rows.iter().filter(is_live).map(|row| row.clock.0).max();
        for row in rows.iter().take(GROUPS_MAX) {
            let of = self.groups.entry(row.group);
            let of = of.or_insert_with(|| OfGroup::new(&self.run, row.group));
            let live = is_live(&row);
            of.live.set(match row.state {
                GroupState::Left => f64::NAN,
                _ => f64::from(u8::from(live)),
            });
            of.clock.set(row.clock.0 as f64);
            let behind = fastest.map_or(0, |fastest| fastest.saturating_sub(row.clock.0));
            of.lag.set(if live { behind as f64 } else { 0.0 });
        }
    }

    #[cfg(test)]
    pub(super) fn of_test(name: &str) -> Self {
        let none = Gauge::noop;
        Self {
            run: name.into(),
            states: BTreeMap::new(),
            groups: BTreeMap::new(),
            bound: None,
            full: none(),
            filling: none(),
            missing: none(),
        }
    }
}

impl OfGroup {
    fn new(run: &str, group: GroupId) -> Self {
        let labels = [("run", run.to_owned()), ("group", group.to_string())];
        Self {
            live: gauge!(GROUP_LIVE.name, &labels),
            clock: gauge!(GROUP_CLOCK.name, &labels),
            lag: gauge!(GROUP_LAG.name, &labels),
        }
    }
}

impl Drop for OfRun {
    fn drop(&mut self) {
        let copies = [&self.full, &self.filling, &self.missing];
        let lags = self.groups.values().map(|of| &of.lag);
        let all = self.states.values().chain(copies).chain(lags);
        all.for_each(|gauge| gauge.set(0.0));
        let lives = self.groups.values().map(|of| &of.live);
        lives
            .chain(&self.bound)
            .for_each(|gauge| gauge.set(f64::NAN));
    }
}
