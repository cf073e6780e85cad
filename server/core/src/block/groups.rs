//! The groups at a block: who is live, where each stands, and what each brings.

use tradewind_common::{Clock, Generation, GroupId, Incarnation};

use super::{Arrival, Block, Contribution, Cursor, Decided, Waiting};
use crate::askers::{Asker, Askers};
use crate::backups::Backups;
use crate::consistency::{Scene, Standing, present};
use crate::held::Holdings;
use crate::refusal::Refusal;
use crate::trace::Trace;
use crate::view::View;

impl Block {
    /// The live groups and those that have joined as a consistency policy sees them, in GroupId
    /// order.
    pub fn standing(&self) -> Vec<Standing> {
        let live = |(group, cursor): (&GroupId, &Cursor)| Standing {
            group: *group,
            start: cursor.start,
            next: cursor.next,
            arrived: cursor.waiting.is_some(),
            gradient: cursor
                .waiting
                .as_ref()
                .is_some_and(|w| w.contribution.is_some()),
            since_us: cursor.waiting.as_ref().map_or(0, |w| w.askers.since_us),
        };
        let joined = |(group, (_, earliest)): (&GroupId, &(Incarnation, Clock))| Standing {
            group: *group,
            start: *earliest,
            next: *earliest,
            arrived: false,
            gradient: false,
            since_us: 0,
        };
        let mut standing: Vec<_> = self.cursors.iter().map(live).collect();
        if !self.joined.is_empty() {
            standing.extend(self.joined.iter().map(joined));
            standing.sort_unstable_by_key(|s| s.group);
        }
        standing
    }

    /// The block with these standings as a consistency policy sees it.
    pub fn scene<'a>(&self, standing: &'a [Standing], now_us: u64) -> Scene<'a> {
        Scene {
            standing,
            highest: self.clock_decided(),
            now_us,
            gap_us: self.arrivals.gap_us,
        }
    }

    /// The clock that is made next, where clocks are made for all groups; 0 while nobody is live.
    pub fn present_clock(&self) -> Clock {
        present(&self.scene(&self.standing(), 0)).unwrap_or_default()
    }

    /// The same without those that have not been heard since values were restored. Where they stand
    /// is not known, and they may wait elsewhere for just those that would wait for them here.
    pub fn heard(&self) -> Vec<Standing> {
        let silent = |standing: &Standing| {
            let cursor = self.cursors.get(&standing.group);
            cursor.is_some_and(|cursor| cursor.attaching)
        };
        let mut standing = self.standing();
        standing.retain(|standing| !silent(standing));
        standing
    }

    /// Groups whose first contribution since values were restored waits and was not computed on what
    /// was restored. Their exchange had begun before: a group that is answered at one block, and will
    /// not come there again, may wait at another for one that waits here.
    pub fn interrupted(&self) -> Vec<GroupId> {
        let interrupted = |cursor: &Cursor| {
            let waiting = cursor.waiting.as_ref().filter(|waiting| waiting.first);
            waiting.is_some_and(|w| w.contribution.is_none() || !w.measured)
        };
        let all = self.cursors.iter().filter(|(_, c)| interrupted(c));
        all.map(|(group, _)| *group).collect()
    }

    /// A new primary goes on with the values that there are. What the one before has made of them in
    /// its answers is not known.
    pub fn begin_answers(&mut self) {
        if self.created() {
            self.held = Holdings::begun_at(self.version);
        }
    }

    /// Takes over the groups of a view; those that have joined will not start before `earliest`.
    /// Groups that are new here go on after what was decided of them; if `attaching`, their first
    /// contribution may leave a gap. Answers who waited in vain: the groups that are no longer
    /// live, whose undecided contributions are forgotten.
    pub fn follow(
        &mut self,
        view: &View,
        earliest: Clock,
        attaching: bool,
    ) -> Vec<(GroupId, Askers)> {
        self.forget_holdings(view);
        let stays = |group: &GroupId, cursor: &Cursor| {
            view.live
                .get(group)
                .is_some_and(|(life, _)| *life == cursor.incarnation)
        };
        let gone: Vec<_> = self.cursors.extract_if(.., |g, c| !stays(g, c)).collect();
        for (group, (incarnation, start)) in &view.live {
            let last = self.last(*group, *incarnation);
            self.cursors.entry(*group).or_insert(Cursor {
                incarnation: *incarnation,
                start: *start,
                next: last.map_or(*start, |last| last.clock.tick()),
                attaching,
                waiting: None,
            });
        }
        let stays = |(group, life): (&GroupId, &Incarnation)| {
            let known = self.joined.get(group).filter(|(known, _)| known == life);
            (*group, known.copied().unwrap_or((*life, earliest)))
        };
        self.joined = view.joined.iter().map(stays).collect();
        gone.into_iter()
            .filter_map(|(group, c)| Some((group, c.waiting?.askers)))
            .collect()
    }

    /// Decides nothing more: forgets the groups, but not what was decided of them, and answers who
    /// waited in vain.
    pub fn retire(&mut self) -> Vec<Askers> {
        self.held = Holdings::default();
        self.backups = Backups::default();
        self.trace = Trace::default();
        self.arrivals = super::Arrivals::default();
        self.joined.clear();
        let cursors = std::mem::take(&mut self.cursors);
        cursors
            .into_values()
            .filter_map(|c| Some(c.waiting?.askers))
            .collect()
    }

    /// What was decided last of this life of a group.
    fn last(&self, group: GroupId, life: Incarnation) -> Option<Decided> {
        let (of, last) = self.decided.get(&group)?;
        (*of == life).then_some(*last)
    }

    /// Keeps only what lives hold that go on: a new one begins with values as they are.
    fn forget_holdings(&mut self, view: &View) {
        let (cursors, joined) = (&self.cursors, &self.joined);
        let stays = |group: &GroupId| {
            let live = cursors.get(group).map(|cursor| cursor.incarnation);
            let life = live.or_else(|| joined.get(group).map(|(life, _)| *life));
            life.is_some() && life == view.incarnation(*group)
        };
        self.held.retain(stays);
        self.backups.retain(stays);
    }

    /// Takes a contribution in, or finds that it was decided before (rule 2). The block's values
    /// are of `lineage`; where groups may be left behind, they may also leave a `gap`.
    pub fn push(
        &mut self,
        (group, clock): (GroupId, Clock),
        contribution: Contribution,
        (lineage, gap): (Generation, bool),
        (asker, now_us): (Asker, u64),
    ) -> Result<Arrival, Refusal> {
        let block = self.id;
        let cursor = self.cursors.get(&group).ok_or(Refusal::NotLive(group))?;
        let expected = cursor.next;
        // After the last clock there is none, so that no group may come to stand there by a gap.
        let may_skip = cursor.attaching || gap;
        if clock > expected && !(may_skip && clock < Clock(u64::MAX)) {
            return Err(Refusal::ClockAhead {
                block,
                group,
                given: clock,
                expected,
            });
        }
        if clock < expected {
            let repeat = self
                .last(group, cursor.incarnation)
                .filter(|last| last.clock == clock)
                .map(Arrival::Repeat);
            return repeat.ok_or(Refusal::ClockPassed {
                block,
                group,
                given: clock,
                expected,
            });
        }
        let mut measured = true;
        if let Some(gradient) = &contribution {
            measured = gradient.lineage == lineage;
            self.check_gradient(gradient, measured)?;
        }
        let cursor = self.cursors.get_mut(&group).expect("looked up above");
        let superseded = match &mut cursor.waiting {
            Some(waiting) => waiting.askers.join(asker),
            None => {
                self.arrivals.note(now_us);
                cursor.waiting = Some(Waiting {
                    contribution,
                    measured,
                    first: cursor.attaching,
                    askers: Askers::new(asker, now_us),
                });
                None
            }
        };
        cursor.next = clock;
        let attaching = std::mem::take(&mut cursor.attaching);
        // What a group did before values were restored is not left out: it is in what was lost.
        let left_out = if attaching { 0 } else { clock.0 - expected.0 };
        Ok(Arrival::Waits {
            superseded,
            left_out,
        })
    }
}
