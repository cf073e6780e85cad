//! What an observer can know of one block at one primary.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::staleness::{Admit, StalenessBound};
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, TensorKind};
use tradewind_core::decided::Decided;
use tradewind_core::state::BlockState;
use tradewind_core::view::View;

use super::history::Step;
use super::optimizer;
use super::terms::{Terms, Traffic};
use super::{Rule, Violation};
use crate::values::{self, Life};

/// How far f32 arithmetic may be from f64 in one update. What is applied are whole numbers over at
/// most a few dozen, so anything missing makes a larger difference.
pub(super) const TOLERANCE: f64 = 1e-3;

/// Whether a value is what was recomputed. That is no number where nobody but the primary can know:
/// where the momentum was measured and nobody was told of it, for want of a copy, and where rounding
/// decides whether a tensor's merged gradient is 0.
pub(super) fn near(recomputed: f64, value: f32) -> bool {
    recomputed.is_nan() || (recomputed - f64::from(value)).abs() < TOLERANCE
}

/// A live group as the observer places it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) incarnation: Incarnation,
    pub(super) start: Clock,
    pub(super) next: Clock,
    /// Values were restored, and it has not been heard since.
    pub(super) attaching: bool,
}

/// What was decided of a clock, and by which step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub(super) step: usize,
    pub(super) decided: Decided,
}

/// What an observer can know of one block at one primary.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) id: BlockId,
    pub(super) kind: TensorKind,
    pub(super) length: usize,
    /// Empty before it is created.
    pub(super) history: Vec<Step>,
    pub(super) live: BTreeMap<GroupId, Place>,
    pub(super) decided: BTreeMap<(GroupId, Clock), Verdict>,
    /// Lives that were live here, or have ended without being.
    pub(super) known: BTreeSet<Life>,
    /// Lives that ended before their first clock was decided here. Each may have spent a clock
    /// that nobody computes again.
    spent: u64,
    /// Versions whose values this primary has answered each life with.
    pub(super) sent: BTreeSet<(Life, u64)>,
    /// Of its values.
    pub(super) lineage: Generation,
    /// The version with which this primary began.
    pub(super) began: u64,
    pub(super) lag_max: u64,
    /// Values were restored, and groups may be further apart than they shall.
    settling: bool,
    /// Where the furthest group stood that went on after values were restored, further than they knew
    /// of it: nobody else need have known of that clock either.
    believed: Clock,
}

impl Record {
    pub(super) fn new(id: BlockId, kind: TensorKind, length: usize) -> Self {
        Self {
            id,
            kind,
            length,
            history: Vec::new(),
            live: BTreeMap::new(),
            decided: BTreeMap::new(),
            known: BTreeSet::new(),
            spent: 0,
            sent: BTreeSet::new(),
            lineage: Generation(0),
            began: 0,
            lag_max: 0,
            settling: false,
            believed: Clock(0),
        }
    }

    /// As it was after a step: what came later never was.
    pub(super) fn at(&self, step: usize) -> Self {
        let mut record = self.clone();
        record.history.truncate(step + 1);
        record.decided.retain(|_, verdict| verdict.step <= step);
        let last = &record.history[step].last;
        for (group, place) in &mut record.live {
            let of = last
                .get(group)
                .filter(|(life, _)| *life == place.incarnation);
            place.next = of.map_or(place.start, |(_, decided)| decided.clock.tick());
        }
        record
    }

    /// Somebody else is its primary, who has what copies and snapshots have and no more.
    pub(super) fn taken_over(&mut self) {
        self.sent.clear();
        if let Some(now) = self.history.last_mut() {
            now.mean_square.clear();
            self.began = now.version;
        }
    }

    /// The present step.
    pub(super) fn now(&self) -> Option<&Step> {
        self.history.last()
    }

    pub(super) fn samples(&self) -> u64 {
        self.now().map_or(0, |step| step.samples)
    }

    /// The first values win.
    pub(super) fn created(
        &mut self,
        state: &BlockState,
        life: Life,
        terms: &Terms,
    ) -> Result<(), Violation> {
        let step = Step::of(state);
        let first = values::initial(life, self.id, self.length, terms.brought);
        let slots = match self.kind {
            TensorKind::Parameter => optimizer::keeps(terms.optimizer),
            TensorKind::Buffer => 0,
        };
        let kept = step.slots == vec![vec![0.0; self.length]; slots];
        if *state.values != first || state.version != 0 || !state.decided.is_empty() || !kept {
            let text = format!("{life:?} created {first:?}, but it is {state:?}");
            return Err(Violation::new(Rule::NoFreshStart, text));
        }
        self.history = vec![step];
        Ok(())
    }

    /// Takes the groups of a view over, before which these lives have ended; those that are new to a restored
    /// block may leave gaps if `attaching`.
    pub(super) fn follow(
        &mut self,
        (view, ended): (&View, &[Life]),
        attaching: bool,
        terms: &Terms,
    ) -> Result<(), Violation> {
        let stays = |group: &GroupId, place: &Place| {
            let live = view.live.get(group);
            live.is_some_and(|(life, _)| *life == place.incarnation)
        };
        let gone = self.live.extract_if(.., |g, p| !stays(g, p));
        self.spent += gone.filter(|(_, p)| p.next == p.start).count() as u64;
        for life in ended {
            self.spent += u64::from(self.known.insert(*life));
        }
        for (group, (incarnation, start)) in &view.live {
            let life = (*group, *incarnation);
            self.known.insert(life);
            if self.live.contains_key(group) {
                continue;
            }
            let last = self.now().and_then(|step| step.last.get(group));
            let known = last.filter(|(of, _)| of == incarnation);
            if known.is_none() {
                self.check_fresh(life, *start, terms)?;
            }
            let place = Place {
                incarnation: *incarnation,
                start: *start,
                next: known.map_or(*start, |(_, decided)| decided.clock.tick()),
                attaching,
            };
            self.settling |= *start < self.believed;
            self.live.insert(*group, place);
        }
        if attaching {
            for place in self.live.values_mut() {
                place.attaching = true;
            }
        }
        self.check_lag(terms)
    }

    /// A group that has been heard for the first time since values were restored says where it
    /// stands.
    pub(super) fn attach(
        &mut self,
        life: Life,
        clock: Clock,
        traffic: &Traffic,
    ) -> Result<(), Violation> {
        let place = self.live.get_mut(&life.0).expect("it was heard");
        place.attaching = false;
        let gap = clock.0 - place.next.0;
        place.next = clock;
        if gap > 0 {
            self.believed = self.believed.max(clock);
        }
        // What it leaves out was decided, and it was told so.
        let told = traffic.told.get(&(self.id, life));
        let goes_on = traffic.next.get(&life).is_some_and(|next| clock <= *next);
        if gap > 0 && !goes_on && told.is_none_or(|told| told.tick() < clock) {
            let text = format!(
                "block {}: {life:?} goes on at {clock}, {gap} clocks further, but was told {told:?}",
                self.id
            );
            return Err(Violation::new(Rule::ExactlyOnce, text));
        }
        Ok(())
    }

    /// Rule 2: of a live group, at its turn, for the first time.
    pub(super) fn check_turn(
        &self,
        life: Life,
        clock: Clock,
        traffic: &Traffic,
    ) -> Result<(), Violation> {
        let (group, incarnation) = life;
        // The others were there, at some block, and it was told.
        let goes_on = traffic.next.get(&life).is_some_and(|next| clock <= *next);
        let broken = |what: &str| {
            let text = format!("clock {clock} of {life:?} on block {} {what}", self.id);
            Err(Violation::new(Rule::ExactlyOnce, text))
        };
        match self.live.get(&group) {
            None => broken("was decided for a group that is not live"),
            Some(place) if place.incarnation != incarnation => {
                broken("was decided for a life that is not live")
            }
            Some(_) if self.decided.contains_key(&(group, clock)) => broken("was decided twice"),
            Some(place) if clock > place.next && goes_on => Ok(()),
            Some(place) if place.next != clock => broken(&format!("came before {}", place.next)),
            Some(_) => Ok(()),
        }
    }

    /// Lag is at most s + 1. A group that has joined and is undecided stands one past the highest
    /// clock seen, so it may lead by s + 2. Its first clock is seen when it is pushed, even while
    /// it waits; so each further join before the slowest moves, and each life that ended before
    /// its first clock was decided, may add one. After values were restored nothing can be said
    /// until all groups have said where they stand, and those that went on before have waited.
    pub(super) fn check_lag(&mut self, terms: &Terms) -> Result<(), Violation> {
        if terms.leaves_behind() {
            return Ok(());
        }
        let Some(min) = self.live.values().map(|p| p.next).min() else {
            return Ok(());
        };
        let max = self.live.values().map(|place| place.next).max();
        let lag_max = max.map_or(0, |max| max.0 - min.0);
        let bound = terms.consistency.bound();
        self.settling &= bound.admit(Clock(lag_max), Clock(0)) != Admit::Now;
        self.settling |= self.live.values().any(|place| place.attaching);
        if self.settling {
            return Ok(());
        }
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
}
