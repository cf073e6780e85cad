//! The groups at a block: who is live, where each stands, what each brings, and what was decided of it
//! (rule 2).

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation};

use super::{Contribution, Decided, Gradient};
use crate::ReplyTo;
use crate::askers::{Asker, Askers};
use crate::refusal::Refusal;
use crate::standings::{Standings, reserve};
use crate::view::{Rights, ViewChange};

/// A contribution that is not decided yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    contribution: Contribution,
    /// Whether its delay can be measured: the version it was computed on is of this lineage.
    measured: bool,
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
}

/// What was decided last of each group's latest incarnation.
pub(super) type DecidedOf = BTreeMap<GroupId, (Incarnation, Decided)>;

/// The groups at one block: where they stand, and what they have brought that is not decided.
#[derive(Debug, Default)]
pub(super) struct Groups {
    arrivals: Arrivals,
    /// Of each group by its number, live or not: at most one entry for each that the run is configured with.
    /// Where a group stands that becomes live follows from it.
    decided: Vec<Option<(Incarnation, Decided)>>,
    /// The highest clock that was decided of any.
    highest: Option<Clock>,
    standings: Standings,
    /// Of those whose contributions have come: what they bring, unless it is gathered, and who asks.
    waiting: BTreeMap<GroupId, Waiting>,
    /// Those among them whose exchange had begun before values were restored.
    interrupted: BTreeSet<GroupId>,
}

impl Groups {
    /// What was decided last of each group.
    pub(super) fn decided(&self) -> DecidedOf {
        let all = (0..).map(GroupId).zip(&self.decided);
        let known = all.filter_map(|(group, last)| Some((group, (*last)?)));
        known.collect()
    }

    /// The highest clock that was decided of any group.
    pub(super) fn clock_decided(&self) -> Option<Clock> {
        self.highest
    }

    /// Where the groups stand.
    pub(super) fn standings(&self) -> &Standings {
        &self.standings
    }

    /// Bytes that are kept of the groups while nothing waits.
    pub(super) fn bytes(&self) -> usize {
        let decided = self.decided.capacity() * size_of::<Option<(Incarnation, Decided)>>();
        decided + self.standings.bytes()
    }

    /// Takes over what was decided elsewhere.
    pub(super) fn take_over(&mut self, decided: DecidedOf) {
        (self.decided, self.highest) = (Vec::new(), None);
        for (group, (incarnation, last)) in decided {
            self.note(&[(group, incarnation, last)]);
        }
    }

    /// Contributions are decided, whether here or by the primary of this copy.
    pub(super) fn note(&mut self, decided: &[(GroupId, Incarnation, Decided)]) {
        for (group, incarnation, last) in decided {
            let at = group.0 as usize;
            if at >= self.decided.len() {
                self.decided.resize(at + 1, None);
            }
            self.decided[at] = Some((*incarnation, *last));
            self.highest = self.highest.max(Some(last.clock));
        }
    }

    /// Mean gap between contributions of whomever, microseconds; `None` before the second one.
    pub(super) fn gap_us(&self) -> Option<u64> {
        self.arrivals.gap_us
    }

    /// Groups whose first contribution since values were restored waits and was not computed on what
    /// was restored. Their exchange had begun before: a group that is answered at one block, and will
    /// not come there again, may wait at another for one that waits here.
    pub(super) fn interrupted(&self) -> &BTreeSet<GroupId> {
        &self.interrupted
    }

    /// Takes over what has changed of groups; those that have joined will not start before `earliest`.
    /// Groups that are new here go on after what was decided of them; if `attaching`, their first
    /// contribution may leave a gap. Answers who waited in vain: the groups that are no longer
    /// live, whose undecided contributions are forgotten.
    pub(super) fn follow(
        &mut self,
        change: &ViewChange,
        earliest: Clock,
        attaching: bool,
    ) -> Vec<(GroupId, Askers)> {
        let mut in_vain = Vec::new();
        let mut rows = 0;
        for (group, rights) in &change.changed {
            let life = self.standings.life(*group);
            let stays = matches!(rights, Rights::Live(now, _) if Some(*now) == life);
            if life.is_some() && !stays {
                self.standings.leave(*group);
                let waited = self.forget(*group);
                in_vain.extend(waited.map(|waiting| (*group, waiting.askers)));
            }
            if matches!(rights, Rights::Live(..)) {
                rows = group.0 as usize + 1;
            }
        }
        self.standings.reserve(rows);
        reserve(&mut self.decided, rows);
        for (group, rights) in &change.changed {
            match *rights {
                Rights::Live(life, start) => {
                    self.standings.expect_no_more(*group);
                    if !self.standings.is_live(*group) {
                        let last = self.last(*group, life);
                        let next = last.map_or(start, |last| last.clock.tick());
                        self.standings.enter(*group, (life, start), next, attaching);
                    }
                }
                Rights::Joined(life) => self.standings.expect(*group, life, earliest),
                Rights::Out => self.standings.expect_no_more(*group),
            }
        }
        in_vain
    }

    /// Decides nothing more: forgets the groups, but not what was decided of them, and answers who
    /// waited in vain.
    pub(super) fn retire(&mut self) -> Vec<Askers> {
        self.arrivals = Arrivals::default();
        self.standings = Standings::default();
        self.interrupted.clear();
        let waiting = std::mem::take(&mut self.waiting);
        waiting
            .into_values()
            .map(|waiting| waiting.askers)
            .collect()
    }

    /// What was decided last of this incarnation of a group.
    fn last(&self, group: GroupId, incarnation: Incarnation) -> Option<Decided> {
        let (of, last) = (*self.decided.get(group.0 as usize)?)?;
        (of == incarnation).then_some(last)
    }

    fn forget(&mut self, group: GroupId) -> Option<Waiting> {
        self.interrupted.remove(&group);
        self.waiting.remove(&group)
    }

    /// What a group brings, to be gathered for the next update; who asks for it goes on waiting.
    pub(super) fn gather(&mut self, group: GroupId) -> Due {
        let waiting = self.waiting.get_mut(&group);
        let waiting = waiting.expect("a policy names groups that wait");
        let standings = &self.standings;
        let place = standings.next(group).zip(standings.life(group));
        let (clock, incarnation) = place.expect("a policy names live groups");
        self.standings.gather(group);
        Due {
            contribution: waiting.contribution.take(),
            measured: waiting.measured,
            clock,
            incarnation,
        }
    }

    /// Whether something was gathered of this life of a group.
    pub(super) fn is_gathered(&self, group: GroupId, life: Incarnation) -> bool {
        let standings = &self.standings;
        standings.is_gathered(group) && standings.life(group) == Some(life)
    }

    /// What was gathered of a group is decided, and the group goes on to the next clock. Who asks for it.
    pub(super) fn pass(&mut self, group: GroupId) -> Askers {
        self.standings.decide(group);
        let waiting = self.forget(group);
        waiting.expect("it has come").askers
    }

    /// Sends the contribution that is furthest ahead away, as if it had not come. Who asked for it; `None` if
    /// nothing waits.
    pub(super) fn withdraw_furthest(&mut self) -> Option<Askers> {
        let group = self.standings.furthest()?;
        self.standings.withdraw(group);
        let waiting = self.forget(group);
        waiting.map(|waiting| waiting.askers)
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
        let standings = &self.standings;
        let expected = standings.next(group).ok_or(Refusal::NotLive(group))?;
        let attaching = standings.is_silent(group);
        // After the last clock there is none, so that no group may come to stand there by a gap.
        // And who waits has one exchange under way.
        let may_skip = (attaching || gap) && !standings.has_come(group);
        if clock > expected && !(may_skip && clock < Clock(u64::MAX)) {
            return Err(Refusal::ClockAhead {
                block,
                group,
                given: clock,
                expected,
            });
        }
        if clock < expected {
            let life = standings.life(group);
            let repeat = life
                .and_then(|life| self.last(group, life))
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
        let superseded = match self.waiting.get_mut(&group) {
            Some(waiting) => waiting.askers.join(asker),
            None => {
                self.arrivals.note(now_us);
                let gradient = contribution.is_some();
                self.standings.arrive(group, clock, gradient, now_us);
                if attaching && !(gradient && measured) {
                    self.interrupted.insert(group);
                }
                let waiting = Waiting {
                    contribution,
                    measured,
                    askers: Askers::new(asker, now_us),
                };
                self.waiting.insert(group, waiting);
                None
            }
        };
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
        let mut change = ViewChange::default();
        let live = Rights::Live(Incarnation(1), Clock(0));
        change.changed.insert(GROUP, live);
        groups.follow(&change, Clock(0), attaching);
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
        let due = groups.gather(GROUP);
        groups.pass(GROUP);
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

    /// Bytes a group of ten thousand that become live, so many at once.
    fn bytes_a_group(at_once: u32) -> f64 {
        let mut groups = Groups::default();
        let all: Vec<GroupId> = (0..10_000).map(GroupId).collect();
        for some in all.chunks(at_once as usize) {
            let live = |group: &GroupId| (*group, Rights::Live(Incarnation(1), Clock(0)));
            let change = ViewChange {
                changed: some.iter().map(live).collect(),
                ..ViewChange::default()
            };
            groups.follow(&change, Clock(0), false);
        }
        for group in all {
            let decided = Decided {
                clock: Clock(0),
                verdict: Verdict::Applied,
                delay: 3,
            };
            groups.note(&[(group, Incarnation(1), decided)]);
        }
        groups.bytes() as f64 / 1e4
    }

    #[test]
    fn a_group_takes_few_bytes() {
        for (at_once, most) in [(10_000, 73.0), (1, 82.0)] {
            let each = bytes_a_group(at_once);
            assert!(
                each <= most,
                "{at_once} at once: {each} bytes a group and block"
            );
        }
    }

    #[test]
    fn who_attaches_after_a_restore_may_leave_a_gap_that_is_not_left_out() {
        let mut groups = groups(true);
        assert!(groups.standings().is_silent(GROUP), "it was not heard yet");
        let waits = Arrival::Waits {
            superseded: None,
            left_out: 0,
        };
        assert_eq!(push(&mut groups, 7, 1), Ok(waits));
        assert!(
            groups.interrupted().contains(&GROUP),
            "it began before the restore"
        );
        assert_eq!(decide(&mut groups).clock, Clock(7));
        assert_eq!(groups.clock_decided(), Some(Clock(7)));
    }

    #[test]
    fn a_life_that_ends_leaves_who_waited_and_what_was_decided() {
        let mut groups = groups(false);
        push(&mut groups, 0, 1).unwrap();
        decide(&mut groups);
        push(&mut groups, 1, 2).unwrap();
        let mut change = ViewChange::default();
        change.changed.insert(GROUP, Rights::Out);
        let gone = groups.follow(&change, Clock(0), false);
        let waited: Vec<ReplyTo> = gone[0].1.to.iter().map(|asker| asker.to).collect();
        assert_eq!((gone[0].0, waited), (GROUP, vec![ReplyTo(2)]));
        let live = groups.standings().live();
        assert_eq!((live, groups.clock_decided()), (0, Some(Clock(0))));
    }
}
