//! What a primary has decided of a block, recomputed: whose turn it was, what it may not overtake,
//! what the values must be then (rules 1, 2 and 3).

use tradewind_common::policy::StalenessSpec;
use tradewind_common::spec::ConsistencySpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, TensorKind};
use tradewind_core::decided;
use tradewind_core::decided::Decided;
use tradewind_core::state::BlockState;

use super::apply::Brought;
use super::block::{Record, Verdict, near};
use super::history::Step;
use super::stale;
use super::terms::{PassedOn, Terms, Traffic};
use super::{Rule, Violation};
use crate::values::{self, Life};

/// Of whom, and what.
pub(super) type Decision = (GroupId, Incarnation, Decided);

/// All orders of some decisions.
fn orders(news: &[Decision]) -> Vec<Vec<Decision>> {
    if news.is_empty() {
        return vec![Vec::new()];
    }
    let begins_with = |first: usize| {
        let mut others = news.to_vec();
        let first = others.remove(first);
        orders(&others)
            .into_iter()
            .map(move |order| std::iter::once(first).chain(order).collect())
    };
    (0..news.len()).flat_map(begins_with).collect()
}

impl Record {
    /// Compares the block with what is known of it, and takes over what has been decided since.
    /// How many decisions that were. `passed_on` is how copies were told of them, if they were.
    pub(super) fn observe(
        &mut self,
        state: &BlockState,
        passed_on: &[PassedOn],
        (traffic, terms): (&Traffic, &Terms),
    ) -> Result<u64, Violation> {
        let known = self.now().expect("it is created").last.clone();
        if let Some(group) = known
            .keys()
            .find(|group| !state.decided.contains_key(group))
        {
            let text = format!(
                "block {} has forgotten what was decided of group {group}",
                self.id
            );
            return Err(Violation::new(Rule::ExactlyOnce, text));
        }
        let news = state.decided.iter();
        let news = news.filter(|(group, last)| known.get(group) != Some(last));
        let mut news: Vec<Decision> = news.map(|(g, (life, d))| (*g, *life, *d)).collect();
        let count = news.len() as u64;
        if terms.consistency == ConsistencySpec::Sync {
            let interrupted = |decision: &mut Decision| self.interrupted(*decision, traffic, terms);
            let interrupted: Vec<Decision> = news.extract_if(.., interrupted).collect();
            for decision in interrupted {
                self.update(&[decision], (traffic, None, true), terms)?;
            }
            let (from, to) = self.present_clock(traffic);
            let behind = terms.leaves_behind();
            let late = |(_, _, decided): &Decision| {
                let dropped = decided.verdict == decided::Verdict::Dropped;
                behind && decided.clock < if dropped { to } else { from }
            };
            news.sort_by_key(|(group, _, decided)| (decided.clock, *group));
            for update in news.chunk_by(|a, b| a.2.clock == b.2.clock) {
                let late = update.iter().all(late);
                if !late {
                    self.check_everybody(update, traffic, terms)?;
                }
                self.update(update, (traffic, None, late), terms)?;
            }
            self.check_state(state)?;
            self.check_lag(terms)?;
            return Ok(count);
        }
        let place = |(group, ..): &Decision| {
            let mut updates = passed_on.iter();
            updates.position(|update| update.groups.contains(group))
        };
        news.sort_by_key(place);
        let told = news.iter().all(|decision| place(decision).is_some());
        let known = (passed_on, traffic, terms);
        if told || !self.in_any_order(&news, traffic) {
            self.one_after_another(news, told, state, known)?;
            return Ok(count);
        }
        // One of the orders explains what came of it.
        let mut broken = None;
        for order in orders(&news) {
            let mut tried = self.clone();
            match tried.one_after_another(order, true, state, known) {
                Ok(()) => {
                    *self = tried;
                    return Ok(count);
                }
                Err(problem) => broken = broken.or(Some(problem)),
            }
        }
        broken.map_or(Ok(count), Err)
    }

    /// Whether nothing tells which of several decisions came first: the delay of a gradient does not,
    /// where it was computed on values of another lineage.
    fn in_any_order(&self, news: &[Decision], traffic: &Traffic) -> bool {
        let foreign = |(group, life, decided): &Decision| {
            let pushed = (self.id, (*group, *life), decided.clock);
            let pushed = traffic.pushed.get(&pushed);
            let applied = decided.verdict == decided::Verdict::Applied;
            applied && pushed.is_some_and(|pushed| pushed.lineage != self.lineage)
        };
        news.len() > 1 && news.iter().any(foreign)
    }

    /// Updates of what was decided at one instant: in this order, or in the likeliest.
    fn one_after_another(
        &mut self,
        mut news: Vec<Decision>,
        ordered: bool,
        state: &BlockState,
        (passed_on, traffic, terms): (&[PassedOn], &Traffic, &Terms),
    ) -> Result<(), Violation> {
        let place = |(group, ..): &Decision| {
            let mut updates = passed_on.iter();
            updates.position(|update| update.groups.contains(group))
        };
        while !news.is_empty() {
            let next = match ordered {
                true => 0,
                false => self.likely_next(&news, traffic, terms),
            };
            let update = self.take_update(&mut news, next, (traffic, terms), &place);
            for decision in &update {
                self.check_staleness(*decision, terms)?;
            }
            self.check_window(&update, traffic, terms)?;
            let momentum = place(&update[0]).and_then(|at| passed_on[at].momentum);
            self.update(&update, (traffic, momentum, false), terms)?;
        }
        self.check_state(state)?;
        self.check_lag(terms)
    }

    /// Whether a clock that is made with everybody, or not, left out what was under way when values
    /// were restored: it is not computed on them, or was skipped.
    fn interrupted(&self, of: Decision, traffic: &Traffic, terms: &Terms) -> bool {
        let (group, life, decided) = of;
        let pushed = traffic.pushed.get(&(self.id, (group, life), decided.clock));
        self.lineage > Generation(0)
            && !terms.leaves_behind()
            && decided.verdict == decided::Verdict::Dropped
            && pushed.is_none_or(|pushed| pushed.lineage != self.lineage)
    }

    /// Which of several decisions of one instant can have come first: the delay tells. Admitting
    /// one never keeps another from being admitted, and one that applies nothing never changes the
    /// delay of another.
    fn likely_next(&self, news: &[Decision], traffic: &Traffic, terms: &Terms) -> usize {
        let version = self.now().expect("it is created").version;
        let fits = |(group, life, decided): &Decision| {
            let skipped = decided.verdict == decided::Verdict::Skipped;
            let delay = self.delay((*group, *life), decided.clock, version, traffic);
            let admitted = self
                .check_staleness((*group, *life, *decided), terms)
                .is_ok();
            admitted && (skipped || delay == Some(decided.delay))
        };
        let changes = |news: &&Decision| news.2.verdict == decided::Verdict::Applied;
        let all = || news.iter().filter(|news| fits(news));
        let first = all().find(|news| !changes(news)).or_else(|| all().next());
        let at = |first: &Decision| news.iter().position(|other| other.0 == first.0);
        first.and_then(at).unwrap_or(0)
    }

    /// Takes the decisions that made one update with the one at `first` from those of an instant:
    /// as copies were told, or all that were applied to the same version.
    fn take_update(
        &self,
        news: &mut Vec<Decision>,
        first: usize,
        (traffic, terms): (&Traffic, &Terms),
        place: &dyn Fn(&Decision) -> Option<usize>,
    ) -> Vec<Decision> {
        let first = news[first];
        let version = self.now().expect("it is created").version;
        let same = |other: &mut Decision| {
            let other = *other;
            let (group, life, decided) = other;
            let fits = || {
                let delay = self.delay((group, life), decided.clock, version, traffic);
                let changes = decided.verdict == decided::Verdict::Applied;
                let admitted = self.check_staleness(other, terms).is_ok();
                admitted && (!changes || delay == Some(decided.delay))
            };
            let together = match (place(&first), place(&other)) {
                (Some(first), Some(other)) => first == other,
                _ => fits(),
            };
            group == first.0 || (terms.policies.merge.is_some() && together)
        };
        let mut update: Vec<Decision> = news.extract_if(.., same).collect();
        update.sort_by_key(|(group, ..)| *group);
        update
    }

    /// Updates since the values that a gradient was computed on; 0 if those were of another
    /// lineage; `None` if there was no such gradient, or one of the future.
    fn delay(&self, life: Life, clock: Clock, version: u64, traffic: &Traffic) -> Option<u64> {
        let pushed = traffic.pushed.get(&(self.id, life, clock))?;
        if pushed.lineage == self.lineage {
            version.checked_sub(pushed.version)
        } else {
            Some(0)
        }
    }

    /// One update was made of these contributions, in this order.
    fn update(
        &mut self,
        update: &[Decision],
        known: (&Traffic, Option<f64>, bool),
        terms: &Terms,
    ) -> Result<(), Violation> {
        for (group, life, decided) in update {
            self.check_turn((*group, *life), decided.clock, known.0)?;
        }
        let mut step = self.now().expect("it is created").clone();
        step.state = None;
        self.apply(&mut step, update, known, terms)?;
        let number = self.history.len();
        for (group, incarnation, decided) in update {
            let place = self.live.get_mut(group).expect("its turn was checked");
            place.next = decided.clock.tick();
            place.attaching = false;
            step.last.insert(*group, (*incarnation, *decided));
            let verdict = Verdict {
                step: number,
                decided: *decided,
            };
            self.decided.insert((*group, decided.clock), verdict);
        }
        self.history.push(step);
        Ok(())
    }

    /// Recomputes the update from what the live lives bring, and checks the verdicts.
    fn apply(
        &self,
        step: &mut Step,
        update: &[Decision],
        (traffic, told, late): (&Traffic, Option<f64>, bool),
        terms: &Terms,
    ) -> Result<(), Violation> {
        let mut brought = Vec::new();
        for (group, incarnation, decided) in update {
            let life = (*group, *incarnation);
            let clock = decided.clock;
            let gradient = values::gradient(life, clock, self.id, self.length, terms.brought);
            let delay = self.delay(life, clock, step.version, traffic);
            let staleness = match self.kind {
                TensorKind::Parameter => terms.policies.staleness,
                TensorKind::Buffer => match terms.policies.staleness {
                    drop @ StalenessSpec::Drop(_) => drop,
                    _ => StalenessSpec::default(),
                },
            };
            let pushed = traffic.pushed.get(&(self.id, life, clock));
            let measured = pushed.is_some_and(|pushed| pushed.lineage == self.lineage);
            let (verdict, delay) = match (&gradient, delay) {
                (None, _) if late => (decided::Verdict::Dropped, Some(0)),
                (Some(_), _) if late => (decided::Verdict::Dropped, delay),
                (None, _) => (decided::Verdict::Skipped, Some(0)),
                (Some(_), Some(tau)) if stale::drops(staleness, tau, measured) => {
                    (decided::Verdict::Dropped, delay)
                }
                (Some(_), _) => (decided::Verdict::Applied, delay),
            };
            if (decided.verdict, Some(decided.delay)) != (verdict, delay) {
                let text = format!(
                    "block {}, {life:?}: {decided:?}, not {verdict:?} with delay {delay:?}",
                    self.id
                );
                return Err(Violation::new(Rule::ExactlyOnce, text));
            }
            let applied = gradient.filter(|_| verdict == decided::Verdict::Applied);
            let (Some(gradient), Some(pushed)) = (applied, pushed) else {
                continue;
            };
            let exchange = traffic.seen.get(&(life, clock));
            if exchange != Some(&pushed.seen) {
                let text = format!(
                    "block {}, {life:?}: {pushed:?} at {clock}, but elsewhere {exchange:?}",
                    self.id
                );
                return Err(Violation::new(Rule::ExactlyOnce, text));
            }
            let mut gradient: Vec<f64> = gradient.iter().map(|g| f64::from(*g)).collect();
            let mut then = self
                .history
                .iter()
                .filter(|old| old.version == pushed.version);
            // Nobody else knows what a group was sent.
            let sent = measured && self.sent.contains(&(life, pushed.version));
            if let Some(then) = then.next().filter(|_| sent) {
                let moved = step.values.iter().zip(&then.values);
                let moved: Vec<f64> = moved.map(|(now, then)| now - then).collect();
                stale::compensate(staleness, &mut gradient, &moved, &mut step.mean_square);
            }
            brought.push(Brought {
                gradient,
                weight: terms.policies.weights.of(pushed.samples),
                scale: stale::scale(staleness, delay.unwrap_or(0)),
                norms: terms.norms(self.id, life, clock),
                samples: u64::from(pushed.samples),
                seen: pushed.seen,
            });
        }
        self.merge(step, &brought, told, terms);
        Ok(())
    }

    /// The block is what follows from its decisions, each of them once. Takes over its rounding, so
    /// that it does not add up.
    fn check_state(&mut self, state: &BlockState) -> Result<(), Violation> {
        let id = self.id;
        let step = self.history.last_mut().expect("it is created");
        let near = |(x, y): (&f64, &f32)| near(*x, *y);
        let all_near =
            |own: &[f64], of: &[f32]| own.len() == of.len() && own.iter().zip(of).all(near);
        let mut slots = step.slots.iter().zip(&state.slots);
        let equal = all_near(&step.values, &state.values)
            && step.slots.len() == state.slots.len()
            && slots.all(|(own, of)| all_near(own, of));
        let seen = (state.version, state.samples_applied);
        let want = (step.version, step.samples);
        if seen != want || !equal {
            let text = format!(
                "block {id}: (version, samples) are {seen:?}, not {want:?}; values {:?} and {:?}, \
                 not {:?} and {:?}",
                state.values, state.slots, step.values, step.slots
            );
            return Err(Violation::new(Rule::ExactlyOnce, text));
        }
        if step.state.is_none() {
            *step = Step {
                rate: step.rate,
                mean_square: std::mem::take(&mut step.mean_square),
                ..Step::of(state)
            };
        }
        Ok(())
    }
}
