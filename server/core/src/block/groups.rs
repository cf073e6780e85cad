//! The groups at a block: who is live, where each stands, what each brings, and what was decided of it
//! (rule 2).

use std::collections::BTreeMap;

use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, clock};

use super::{Contribution, Decided, Gradient};
use crate::ReplyTo;
use crate::askers::{Asker, Askers};
use crate::consistency::Standing;
use crate::refusal::Refusal;
use crate::view::View;

/// A contribution that is not decided yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    contribution: Contribution,
    /// Whether its delay can be measured: the version it was computed on is of this lineage.
    measured: bool,
    /// Whether its group had not been heard before since values were restored.
    first: bool,
    askers: Askers,
}

/// When contributions arrive at the block, of whomever; the primary's alone.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    last_us: Option<u64>,
    gap_us: Option<u64>,
}

impl Arrivals {
    /// Of the mean gap an eighth is the last one.
    fn note(&mut self, now_us: u64) {
        if let Some(last_us) = self.last_us.replace(now_us) {
            let gap_us = now_us.saturating_sub(last_us);
            let mean_us = self.gap_us.unwrap_or(gap_us);
            self.gap_us = Some(mean_us - mean_us / 8 + gap_us / 8);
        }
    }
}

/// The place of one live group at the block.
#[derive(Clone, Debug)]
struct Cursor {
    incarnation: Incarnation,
    /// The first clock of this incarnation.
    start: Clock,
    next: Clock,
    /// Values were restored since the group was last heard: its first contribution may be past
    /// `next`.
    attaching: bool,
    waiting: Option<Waiting>,
}

/// What pushing a contribution came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits to be decided.
    Waits {
        /// A stream that asked for it long ago waits no more.
        superseded: Option<ReplyTo>,
        /// Contributions of its group before it that it has left out, because the others had gone
        /// on elsewhere.
        left_out: u64,
    },
    /// It had been decided before.
    Repeat(Decided),
}

/// A contribution on its way into a block.
#[derive(Debug)]
pub struct Arriving {
    /// Whose.
    pub group: GroupId,
    /// At which clock of the group.
    pub clock: Clock,
    /// What it brings.
    pub contribution: Contribution,
    /// Of which lineage the block's values are.
    pub lineage: Generation,
    /// Whether groups may be left behind: then they may also leave a gap.
    pub gap: bool,
    /// Who waits for its verdict.
    pub asker: Asker,
    /// When it has come, microseconds.
    pub now_us: u64,
}

/// A contribution that is about to be decided.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) contribution: Contribution,
    /// Whether its delay can be measured.
    pub(super) measured: bool,
    pub(super) clock: Clock,
    /// The incarnation of its group.
    pub(super) incarnation: Incarnation,
    pub(super) askers: Askers,
}

/// What was decided last of each group's latest incarnation.
pub(super) type DecidedOf = BTreeMap<GroupId, (Incarnation, Decided)>;

/// The groups at one block.
#[derive(Debug, Default)]
pub(super) struct Groups {
    arrivals: Arrivals,
    /// Of each group, live or not: at most one entry for each that the run is configured with. Cursors
    /// are made from it.
    decided: DecidedOf,
    /// Of the live groups; empty where the shard is not its primary's.
    cursors: BTreeMap<GroupId, Cursor>,
    /// Incarnations that have joined, with the earliest clock that they may start at. The others
    /// wait for them as for live ones, or a joiner would find itself behind by more than the
    /// staleness bound, and clocks of its own already made without it.
    joined: BTreeMap<GroupId, (Incarnation, Clock)>,
}

impl Groups {
    /// What was decided last of each group.
    pub(super) fn decided(&self) -> &DecidedOf {
        &self.decided
    }

    /// The highest clock that was decided of any group.
    pub(super) fn clock_decided(&self) -> Option<Clock> {
        self.decided.values().map(|(_, last)| last.clock).max()
    }

    /// Takes over what was decided elsewhere.
    pub(super) fn take_over(&mut self, decided: DecidedOf) {
        self.decided = decided;
    }

    /// Contributions are decided, whether here or by the primary of this copy.
    pub(super) fn note(&mut self, decided: &[(GroupId, Incarnation, Decided)]) {
        for (group, incarnation, last) in decided {
            self.decided.insert(*group, (*incarnation, *last));
        }
    }

    /// How many groups are live.
    pub(super) fn live(&self) -> usize {
        self.cursors.len()
    }

    pub(super) fn is_live(&self, group: GroupId) -> bool {
        self.cursors.contains_key(&group)
    }

    /// The incarnation of a group that is live, or has joined.
    pub(super) fn incarnation(&self, group: GroupId) -> Option<Incarnation> {
        let live = self.cursors.get(&group).map(|cursor| cursor.incarnation);
        live.or_else(|| self.joined.get(&group).map(|(incarnation, _)| *incarnation))
    }

    /// Mean gap between contributions of whomever, microseconds; `None` before the second one.
    pub(super) fn gap_us(&self) -> Option<u64> {
        self.arrivals.gap_us
    }

    /// How far `group` is behind the fastest live group, in exchanges.
    pub(super) fn lag(&self, group: GroupId) -> u64 {
        let all = self.cursors.values().map(|cursor| cursor.next);
        let own = self.cursors.get(&group);
        own.map_or(0, |own| clock::lag(own.next, all))
    }

    /// The live groups and those that have joined as a consistency policy sees them, in GroupId
    /// order.
    pub(super) fn standing(&self) -> Vec<Standing> {
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

    /// The same without those that have not been heard since values were restored. Where they stand
    /// is not known, and they may wait elsewhere for just those that would wait for them here.
    pub(super) fn heard(&self) -> Vec<Standing> {
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
    pub(super) fn interrupted(&self) -> Vec<GroupId> {
        let interrupted = |cursor: &Cursor| {
            let waiting = cursor.waiting.as_ref().filter(|waiting| waiting.first);
            waiting.is_some_and(|w| w.contribution.is_none() || !w.measured)
        };
        let all = self.cursors.iter().filter(|(_, c)| interrupted(c));
        all.map(|(group, _)| *group).collect()
    }

    /// Takes over the groups of a view; those that have joined will not start before `earliest`.
    /// Groups that are new here go on after what was decided of them; if `attaching`, their first
    /// contribution may leave a gap. Answers who waited in vain: the groups that are no longer
    /// live, whose undecided contributions are forgotten.
    pub(super) fn follow(
        &mut self,
        view: &View,
        earliest: Clock,
        attaching: bool,
    ) -> Vec<(GroupId, Askers)> {
        let stays = |group: &GroupId, cursor: &Cursor| {
            view.live
                .get(group)
                .is_some_and(|(now, _)| *now == cursor.incarnation)
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
        let stays = |(group, now): (&GroupId, &Incarnation)| {
            let known = self.joined.get(group).filter(|(known, _)| known == now);
            (*group, known.copied().unwrap_or((*now, earliest)))
        };
        self.joined = view.joined.iter().map(stays).collect();
        gone.into_iter()
            .filter_map(|(group, c)| Some((group, c.waiting?.askers)))
            .collect()
    }

    /// Decides nothing more: forgets the groups, but not what was decided of them, and answers who
    /// waited in vain.
    pub(super) fn retire(&mut self) -> Vec<Askers> {
        self.arrivals = Arrivals::default();
        self.joined.clear();
        let cursors = std::mem::take(&mut self.cursors);
        cursors
            .into_values()
            .filter_map(|c| Some(c.waiting?.askers))
            .collect()
    }

    /// What was decided last of this incarnation of a group.
    fn last(&self, group: GroupId, incarnation: Incarnation) -> Option<Decided> {
        let (of, last) = self.decided.get(&group)?;
        (*of == incarnation).then_some(*last)
    }

    /// The contribution of a group that waits, which is decided now: its group goes on to the next clock.
    pub(super) fn take(&mut self, group: GroupId) -> Due {
        let cursor = self.cursors.get_mut(&group);
        let cursor = cursor.expect("a policy names live groups");
        let waiting = cursor.waiting.take();
        let waiting = waiting.expect("a policy names groups that wait");
        let clock = cursor.next;
        cursor.next = clock.tick();
        Due {
            contribution: waiting.contribution,
            measured: waiting.measured,
            clock,
            incarnation: cursor.incarnation,
            askers: waiting.askers,
        }
    }

    /// Takes a contribution in, or finds that it was decided before (rule 2). `check` says what is wrong
    /// with a gradient, whose delay can be measured or not.
    pub(super) fn push(
        &mut self,
        block: BlockId,
        arriving: Arriving,
        check: impl Fn(&Gradient, bool) -> Result<(), Refusal>,
    ) -> Result<Arrival, Refusal> {
        let Arriving {
            group,
            clock,
            contribution,
            lineage,
            gap,
            asker,
            now_us,
        } = arriving;
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
            check(gradient, measured)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::askers::Wants;
    use crate::decided::Verdict;

    const GROUP: GroupId = GroupId(0);

    fn groups(attaching: bool) -> Groups {
        let mut groups = Groups::default();
        let mut view = View::default();
        view.live.insert(GROUP, (Incarnation(1), Clock(0)));
        groups.follow(&view, Clock(0), attaching);
        groups
    }

    fn push(groups: &mut Groups, clock: u64, to: u64) -> Result<Arrival, Refusal> {
        let arriving = Arriving {
            group: GROUP,
            clock: Clock(clock),
            contribution: None,
            lineage: Generation(0),
            gap: false,
            asker: Asker {
                to: ReplyTo(to),
                wants: Wants::Nothing,
            },
            now_us: 0,
        };
        groups.push(BlockId(0), arriving, |_, _| Ok(()))
    }

    fn decide(groups: &mut Groups) -> Decided {
        let due = groups.take(GROUP);
        let decided = Decided {
            clock: due.clock,
            verdict: Verdict::Skipped,
            delay: 0,
        };
        groups.note(&[(GROUP, due.incarnation, decided)]);
        decided
    }

    #[test]
    fn a_repeat_of_what_was_decided_gets_the_same_verdict() {
        let mut groups = groups(false);
        let waits = Arrival::Waits {
            superseded: None,
            left_out: 0,
        };
        assert_eq!(push(&mut groups, 0, 1), Ok(waits));
        let decided = decide(&mut groups);
        assert_eq!(push(&mut groups, 0, 2), Ok(Arrival::Repeat(decided)));
        assert_eq!(push(&mut groups, 1, 3), Ok(waits));
        decide(&mut groups);
        let passed = push(&mut groups, 0, 4);
        assert!(
            matches!(passed, Err(Refusal::ClockPassed { .. })),
            "{passed:?}"
        );
        let ahead = push(&mut groups, 3, 5);
        assert!(
            matches!(ahead, Err(Refusal::ClockAhead { .. })),
            "{ahead:?}"
        );
    }

    #[test]
    fn who_attaches_after_a_restore_may_leave_a_gap_that_is_not_left_out() {
        let mut groups = groups(true);
        assert!(groups.heard().is_empty(), "it was not heard yet");
        let waits = Arrival::Waits {
            superseded: None,
            left_out: 0,
        };
        assert_eq!(push(&mut groups, 7, 1), Ok(waits));
        assert_eq!(groups.interrupted(), [GROUP], "it began before the restore");
        assert_eq!(decide(&mut groups).clock, Clock(7));
        assert_eq!(groups.clock_decided(), Some(Clock(7)));
    }

    #[test]
    fn a_life_that_ends_leaves_who_waited_and_what_was_decided() {
        let mut groups = groups(false);
        push(&mut groups, 0, 1).unwrap();
        decide(&mut groups);
        push(&mut groups, 1, 2).unwrap();
        let gone = groups.follow(&View::default(), Clock(0), false);
        let waited: Vec<ReplyTo> = gone[0].1.to.iter().map(|asker| asker.to).collect();
        assert_eq!((gone[0].0, waited), (GROUP, vec![ReplyTo(2)]));
        assert_eq!((groups.live(), groups.clock_decided()), (0, Some(Clock(0))));
    }
}
