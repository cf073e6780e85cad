//! What an observer can know of one block.

use std::collections::BTreeMap;

use tradewind_common::spec::ConsistencySpec;
use tradewind_common::staleness::StalenessBound;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, TensorKind};
use tradewind_server::core::ReplyTo;
use tradewind_server::core::block::{Decided, Verdict};
use tradewind_server::core::shard::{Push, Reply};
use tradewind_server::core::view::View;

use super::held::Held;
use super::{Rule, Terms, Violation};
use crate::sim::values::{self, Life};

/// How far f32 arithmetic may be from f64 in one update. What is applied are whole numbers over at
/// most a dozen, so anything missing makes a larger difference.
pub(super) const TOLERANCE: f64 = 1e-3;

/// A live group as the observer places it.
#[derive(Clone, Copy, Debug)]
struct Place {
    incarnation: Incarnation,
    start: Clock,
    next: Clock,
}

/// What an observer can know of one block.
#[derive(Debug)]
pub(super) struct Record {
    id: BlockId,
    kind: TensorKind,
    length: usize,
    values: Option<Vec<f64>>,
    version: u64,
    samples: u64,
    live: BTreeMap<GroupId, Place>,
    decided: BTreeMap<(GroupId, Clock), (Incarnation, Decided)>,
    pulled: BTreeMap<(Life, Clock), u64>,
    /// Lives that ended before their first clock was decided here. Each may have spent a clock
    /// that nobody computes again.
    spent: u64,
    lag_max: u64,
    held: Held,
}

impl Record {
    pub(super) fn new(id: BlockId, kind: TensorKind, length: usize) -> Self {
        Self {
            id,
            kind,
            length,
            values: None,
            version: 0,
            samples: 0,
            live: BTreeMap::new(),
            decided: BTreeMap::new(),
            pulled: BTreeMap::new(),
            spent: 0,
            lag_max: 0,
            held: Held::default(),
        }
    }

    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    pub(super) fn differences(&self) -> u64 {
        self.held.differences()
    }

    pub(super) fn has(&self, life: Life, version: u64, values: &[f32]) -> bool {
        self.held.has(life, version, values)
    }

    pub(super) fn lag_max(&self) -> u64 {
        self.lag_max
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn place(&self, group: GroupId) -> Option<(Incarnation, Clock)> {
        self.live.get(&group).map(|p| (p.incarnation, p.next))
    }

    pub(super) fn decided(&self, group: GroupId, clock: Clock) -> bool {
        self.decided.contains_key(&(group, clock))
    }

    pub(super) fn has_decided(&self, life: Life) -> bool {
        self.decided
            .iter()
            .any(|((group, _), (incarnation, _))| (*group, *incarnation) == life)
    }

    pub(super) fn asked(&mut self, to: ReplyTo, push: &Push) {
        self.held.pushed(to, push);
    }

    pub(super) fn pushed(&mut self, life: Life, clock: Clock, pulled_version: u64) {
        self.pulled.entry((life, clock)).or_insert(pulled_version);
    }

    /// The first values win.
    pub(super) fn created(&mut self, life: Life) {
        let first = || values::initial(life, self.id, self.length);
        let values = || first().into_iter().map(f64::from).collect();
        self.values.get_or_insert_with(values);
    }

    pub(super) fn follow(&mut self, view: &View, terms: &Terms) -> Result<(), Violation> {
        let stays = |group: &GroupId, place: &Place| {
            let live = view.live.get(group);
            live.is_some_and(|(life, _)| *life == place.incarnation)
        };
        let gone = self.live.extract_if(.., |g, p| !stays(g, p));
        self.spent += gone.filter(|(_, p)| p.next == p.start).count() as u64;
        for (group, (incarnation, start)) in &view.live {
            self.check_not_passed((*group, *incarnation), *start, terms)?;
            self.live.entry(*group).or_insert(Place {
                incarnation: *incarnation,
                start: *start,
                next: *start,
            });
        }
        self.check_lag(terms)
    }

    /// Rule 3: no clock of a group that joins has been made without it.
    fn check_not_passed(&self, life: Life, start: Clock, terms: &Terms) -> Result<(), Violation> {
        let known = self
            .live
            .get(&life.0)
            .is_some_and(|p| p.incarnation == life.1);
        let made = self.decided.keys().map(|(_, clock)| *clock).max();
        if known || terms.consistency != ConsistencySpec::Sync || made < Some(start) {
            return Ok(());
        }
        let text = format!(
            "block {} had made clock {made:?} when {life:?} joined at {start}",
            self.id
        );
        Err(Violation::new(Rule::Synchronous, text))
    }

    /// One update was made of these contributions, in this order.
    pub(super) fn update(
        &mut self,
        update: &[(GroupId, Decided)],
        terms: &Terms,
    ) -> Result<(), Violation> {
        for (group, decided) in update {
            self.check_turn(*group, decided.clock)?;
        }
        match terms.consistency {
            ConsistencySpec::Sync => self.check_everybody(update)?,
            ConsistencySpec::Bounded { .. } | ConsistencySpec::Async => {
                self.check_staleness(update, terms)?;
            }
        }
        self.apply(update, terms)?;
        for (group, decided) in update {
            let place = self.live.get_mut(group).expect("its turn was checked");
            place.next = decided.clock.tick();
            let life = place.incarnation;
            self.decided
                .insert((*group, decided.clock), (life, *decided));
        }
        self.check_lag(terms)
    }

    /// Rule 2: of a live group, at its turn, for the first time.
    fn check_turn(&self, group: GroupId, clock: Clock) -> Result<(), Violation> {
        let broken = |what: &str| {
            let text = format!("clock {clock} of group {group} on block {} {what}", self.id);
            Err(Violation::new(Rule::ExactlyOnce, text))
        };
        match self.live.get(&group) {
            None => broken("was decided for a group that is not live"),
            Some(_) if self.decided(group, clock) => broken("was decided twice"),
            Some(place) if place.next != clock => broken(&format!("came before {}", place.next)),
            Some(_) => Ok(()),
        }
    }

    /// Rule 1, with m over the observer's own record.
    fn check_staleness(
        &self,
        update: &[(GroupId, Decided)],
        terms: &Terms,
    ) -> Result<(), Violation> {
        let StalenessBound::Finite(bound) = terms.consistency.bound() else {
            return Ok(());
        };
        let min = self.live.values().map(|p| p.next).min().unwrap_or_default();
        for (group, decided) in update {
            let clock = decided.clock;
            if clock.0.saturating_sub(min.0) > bound {
                let text = format!(
                    "block {} applied clock {clock} of group {group} while a live group stood at \
                     {min}, with s = {bound}",
                    self.id
                );
                return Err(Violation::new(Rule::Staleness, text));
            }
        }
        Ok(())
    }

    /// Rule 3: the smallest clock, and every live group that stands at it.
    fn check_everybody(&self, update: &[(GroupId, Decided)]) -> Result<(), Violation> {
        let clock = update[0].1.clock;
        let due = |place: &Place| place.next <= clock;
        let due: Vec<_> = self
            .live
            .iter()
            .filter(|(_, p)| due(p))
            .map(|(g, _)| *g)
            .collect();
        let mut came: Vec<_> = update.iter().map(|(group, _)| *group).collect();
        came.sort();
        if came == due {
            return Ok(());
        }
        let text = format!(
            "block {} made clock {clock} of {came:?}, not of {due:?}",
            self.id
        );
        Err(Violation::new(Rule::Synchronous, text))
    }

    /// Lag is at most s + 1. A group that has joined and is undecided stands one past the highest
    /// clock seen, so it may lead by s + 2. Its first clock is seen when it is pushed, even while
    /// it waits; so each further join before the slowest moves, and each life that ended before
    /// its first clock was decided, may add one.
    fn check_lag(&mut self, terms: &Terms) -> Result<(), Violation> {
        let Some(min) = self.live.values().map(|p| p.next).min() else {
            return Ok(());
        };
        let undecided = |place: &&Place| place.next == place.start && place.start > Clock(0);
        let joins = self.live.values().filter(undecided).count() as u64 + self.spent;
        for (group, place) in &self.live {
            let lag = place.next.0 - min.0;
            self.lag_max = self.lag_max.max(lag);
            let StalenessBound::Finite(bound) = terms.consistency.bound() else {
                continue;
            };
            let allowed = bound + 1 + if undecided(&place) { joins } else { 0 };
            if lag > allowed {
                let text = format!(
                    "on block {} group {group} leads the slowest by {lag}, with s = {bound}",
                    self.id
                );
                return Err(Violation::new(Rule::Staleness, text));
            }
        }
        Ok(())
    }

    /// Recomputes the update from what the live lives bring, and checks the verdicts.
    fn apply(&mut self, update: &[(GroupId, Decided)], terms: &Terms) -> Result<(), Violation> {
        let mut brought = Vec::new();
        for (group, decided) in update {
            let life = (*group, self.live[group].incarnation);
            let gradient =
                values::gradient(life, decided.clock, self.id, self.length, terms.skip_one_in);
            let pulled = self.pulled.get(&(life, decided.clock)).copied();
            let (verdict, delay) = match &gradient {
                Some(_) => (Verdict::Applied, self.version - pulled.unwrap_or_default()),
                None => (Verdict::Skipped, 0),
            };
            if (decided.verdict, decided.delay) != (verdict, delay) {
                let text = format!(
                    "block {}, {life:?}: {decided:?}, not {verdict:?} with delay {delay}",
                    self.id
                );
                return Err(Violation::new(Rule::ExactlyOnce, text));
            }
            let samples = terms.group_samples[group.0 as usize];
            brought.extend(gradient.map(|values| (values, f64::from(samples))));
        }
        if brought.is_empty() {
            return Ok(());
        }
        let total: f64 = brought.iter().map(|(_, samples)| samples).sum();
        let share = match (self.kind, terms.consistency) {
            (TensorKind::Parameter, _) => -1.0,
            (TensorKind::Buffer, ConsistencySpec::Sync) => 1.0,
            (TensorKind::Buffer, _) => 1.0 / self.live.len() as f64,
        };
        let Some(values) = &mut self.values else {
            let text = format!("block {} was updated before it was created", self.id);
            return Err(Violation::new(Rule::NoFreshStart, text));
        };
        for (gradient, samples) in &brought {
            for (x, g) in values.iter_mut().zip(gradient) {
                *x += share * samples / total * f64::from(*g);
            }
        }
        self.version += 1;
        self.samples += total as u64;
        Ok(())
    }

    /// Rule 2: a repeat gets the same verdict.
    pub(super) fn check_repeat(&self, group: GroupId, decided: Decided) -> Result<(), Violation> {
        let first = self
            .decided
            .get(&(group, decided.clock))
            .map(|(_, first)| *first);
        if first == Some(decided) {
            return Ok(());
        }
        let text = format!(
            "block {}, group {group}: first {first:?}, then {decided:?}",
            self.id
        );
        Err(Violation::new(Rule::ExactlyOnce, text))
    }

    /// Every answer shows the updates so far, each of them once.
    pub(super) fn check_values(
        &mut self,
        (to, life): (ReplyTo, Life),
        reply: &Reply,
        terms: &Terms,
    ) -> Result<(), Violation> {
        let seen = (reply.version, reply.samples_applied, reply.stop);
        let want = (self.version, self.samples, self.samples >= terms.samples);
        let Some(values) = &mut self.values else {
            let text = format!("block {} was answered before it was created", self.id);
            return Err(Violation::new(Rule::NoFreshStart, text));
        };
        if self.kind == TensorKind::Parameter && terms.down.lossy() && seen == want {
            let exact = (terms.down, &values[..]);
            let taken = self.held.answered((to, life), reply, exact);
            return taken.map_err(|problem| {
                let text = format!("block {}, {life:?}: {problem}", self.id);
                Violation::new(Rule::ExactlyOnce, text)
            });
        }
        let fresh = reply.fresh.values();
        let near = |(x, y): (&f64, &f32)| (x - f64::from(*y)).abs() < TOLERANCE;
        let equal = values.len() == fresh.len() && values.iter().zip(fresh).all(near);
        if seen != want || !equal {
            let text = format!(
                "block {}: (version, samples, stop) are {seen:?}, not {want:?}; values {:?}, not \
                 {values:?}",
                self.id, fresh
            );
            return Err(Violation::new(Rule::ExactlyOnce, text));
        }
        // Take over the shard's rounding, so that it does not add up.
        *values = fresh.iter().map(|x| f64::from(*x)).collect();
        Ok(())
    }
}
