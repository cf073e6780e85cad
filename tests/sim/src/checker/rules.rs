//! When a block may decide: what it may not overtake, and whom it waits for.

use tradewind_common::Clock;
use tradewind_common::spec::ConsistencySpec;
use tradewind_common::staleness::{Admit, StalenessBound};
use tradewind_core::decided;
use tradewind_core::decided::Decided;

use super::block::{Place, Record};
use super::decide::Decision;
use super::terms::{Terms, Traffic};
use super::{Rule, Violation};
use crate::values::Life;

impl Record {
    /// A block waits for a number of contributions, or for all that may come, or for some time.
    pub(super) fn check_window(
        &self,
        update: &[Decision],
        traffic: &Traffic,
        terms: &Terms,
    ) -> Result<(), Violation> {
        let Some(merge) = terms.policies.merge else {
            return Ok(());
        };
        let arrived = |(group, life, decided): &Decision| {
            let pushed = traffic
                .pushed
                .get(&(self.id, (*group, *life), decided.clock));
            pushed.map(|pushed| pushed.at_us)
        };
        // When a skip came is not known.
        let arrivals_us: Option<Vec<u64>> = update.iter().map(arrived).collect();
        let Some(first_us) = arrivals_us.and_then(|all| all.into_iter().min()) else {
            return Ok(());
        };
        let waited_us = traffic.now_us - first_us;
        // Who has not been heard since values were restored may be far behind, or wait elsewhere.
        let heard = || self.live.values().filter(|place| !place.attaching);
        let min = heard().map(|place| place.next).min();
        let bound = terms.consistency.bound();
        let admits =
            |place: &&Place| bound.admit(place.next, min.unwrap_or_default()) == Admit::Now;
        let possible = heard().filter(admits).count();
        let enough = (merge.min_groups as usize).min(possible);
        if update.len() >= enough || waited_us >= merge.wait_ms_max * 1000 {
            return Ok(());
        }
        let text = format!(
            "block {} made an update of {update:?} after {waited_us} µs, where {enough} may come",
            self.id
        );
        Err(Violation::new(Rule::Window, text))
    }

    /// Rule 1, with m over the observer's own record.
    pub(super) fn check_staleness(
        &self,
        decision: Decision,
        terms: &Terms,
    ) -> Result<(), Violation> {
        let StalenessBound::Finite(bound) = terms.consistency.bound() else {
            return Ok(());
        };
        // Where a group stands that has not been heard since values were restored, nobody knows.
        let heard = self.live.values().filter(|place| !place.attaching);
        let min = heard.map(|place| place.next).min().unwrap_or_default();
        let (group, _, Decided { clock, .. }) = decision;
        if clock.0.saturating_sub(min.0) <= bound {
            return Ok(());
        }
        let text = format!(
            "block {} applied clock {clock} of group {group} while a live group stood at {min}, \
             with s = {bound}",
            self.id
        );
        Err(Violation::new(Rule::Staleness, text))
    }

    /// The clock that is made next, where clocks are made for all groups: from the first to the
    /// second. A group that was told of a later clock may wait there already, and one that has not
    /// been heard since values were restored may stand anywhere.
    pub(super) fn present_clock(&self, traffic: &Traffic) -> (Clock, Clock) {
        let last = self.now().map(|step| step.last.values());
        let highest = last.and_then(|last| last.map(|(_, decided)| decided.clock).max());
        let beyond = |min: Option<Clock>| highest.map(Clock::tick).max(min).unwrap_or_default();
        let least = self.live.values().map(|place| place.next).min();
        let heard = self.live.iter().filter(|(_, place)| !place.attaching);
        let at_most = heard.map(|(group, place)| {
            let told = traffic.next.get(&(*group, place.incarnation));
            place.next.max(told.copied().unwrap_or_default())
        });
        (beyond(least), beyond(at_most.min()))
    }

    /// With backup groups: the next clock, and no fewer gradients than of all but so many of those
    /// that have begun; or everybody, with or without, but for those that were told of a later clock
    /// and may not come any more, and those that have not been heard since values were restored.
    fn check_enough(
        &self,
        update: &[Decision],
        traffic: &Traffic,
        terms: &Terms,
    ) -> Result<(), Violation> {
        let (clock, (from, to)) = (update[0].2.clock, self.present_clock(traffic));
        let heard = self.live.iter().filter(|(_, place)| !place.attaching);
        let begun = heard.clone().filter(|(_, place)| place.start <= clock);
        let begun = begun.count();
        let due = heard.filter(|(group, place)| {
            let told = traffic.next.get(&(**group, place.incarnation));
            place.next <= clock && told.is_none_or(|told| *told <= clock)
        });
        let due = due.count();
        let backups = terms.policies.backup_groups as usize;
        let needed = begun.saturating_sub(backups).max(1);
        let applied = |(_, _, of): &&Decision| of.verdict == decided::Verdict::Applied;
        let gradients = update.iter().filter(applied).count();
        let enough = gradients >= needed || update.len() >= due.max(1);
        if (from..=to).contains(&clock) && enough {
            return Ok(());
        }
        let text = format!(
            "block {} made clock {clock} of {update:?} at {from} to {to}, where {needed} gradients or \
             {due} groups were needed",
            self.id
        );
        Err(Violation::new(Rule::Synchronous, text))
    }

    /// Rule 3: the smallest clock, and every live group that stands at it.
    pub(super) fn check_everybody(
        &self,
        update: &[Decision],
        traffic: &Traffic,
        terms: &Terms,
    ) -> Result<(), Violation> {
        if terms.leaves_behind() {
            return self.check_enough(update, traffic, terms);
        }
        let clock = update[0].2.clock;
        let due = self.live.iter().filter(|(_, place)| place.next <= clock);
        let due: Vec<_> = due.map(|(group, _)| *group).collect();
        let came: Vec<_> = update.iter().map(|(group, ..)| *group).collect();
        if came == due {
            return Ok(());
        }
        let text = format!(
            "block {} made clock {clock} of {came:?}, not of {due:?}",
            self.id
        );
        Err(Violation::new(Rule::Synchronous, text))
    }

    /// Rule 3: no clock of a group that joins has been made without it. Rule 2: it begins past what
    /// was decided for its former lives.
    pub(super) fn check_fresh(
        &self,
        life: Life,
        start: Clock,
        terms: &Terms,
    ) -> Result<(), Violation> {
        // What was left out because values were restored made no clock.
        let all = self.decided.values().map(|verdict| verdict.decided);
        let made = all.filter(|decided| decided.verdict != decided::Verdict::Dropped);
        let made = made.map(|decided| decided.clock).max();
        let own = self.decided.keys().filter(|(group, _)| *group == life.0);
        let own = own.map(|(_, clock)| *clock).max();
        let broken = |rule, what: String| {
            let text = format!("block {}: {life:?} joined at {start}; {what}", self.id);
            Err(Violation::new(rule, text))
        };
        if own >= Some(start) {
            let what = format!("{own:?} was decided for a former life");
            return broken(Rule::ExactlyOnce, what);
        }
        let everybody = terms.consistency == ConsistencySpec::Sync && !terms.leaves_behind();
        if everybody && made >= Some(start) {
            return broken(Rule::Synchronous, format!("{made:?} had been made"));
        }
        Ok(())
    }
}
