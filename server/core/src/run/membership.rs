//! The groups of a run: ranks come, stay and go.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank};

use super::calls::{Beat, Caller, Join};
use super::group::{Group, GroupState, Standing};
use super::outbox::Outbox;
use super::roster::Roster;
use super::rows::GroupRow;
use crate::ReplyTo;
use crate::answer::Refused;
use crate::event::{Event, EventKind};
use crate::refusal::Refusal;
use crate::saved::SavedGroup;
use crate::view::Rights;

mod changed;
mod table;

pub(super) use self::table::Table;

/// A process of a rank that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LostRank {
    /// Its group.
    pub(super) group: GroupId,
    /// The rank, as configured.
    pub(super) rank: Rank,
    /// Names the process.
    pub(super) life: u64,
}

impl LostRank {
    /// Says so: the group forms again.
    pub(super) fn tell(self, reason: &str, out: &mut Outbox) {
        let Self { group, rank, life } = self;
        let text =
            format!("rank {rank} of group {group} is lost, and the group forms again: {reason}");
        let event = Event::new(EventKind::RankLost, text);
        out.tell(event.group(group).rank(rank).life(life));
    }
}

/// The groups that were ever joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Membership {
    groups: Table,
    /// Groups begin past this life.
    lives_before: Incarnation,
    /// The last life of any.
    last: Incarnation,
    /// The highest clock that any rank has told.
    clock: Clock,
    /// Groups in which ranks have come, and that may be together.
    coming: BTreeSet<GroupId>,
    /// Groups in which ranks gather, by when they wait for others no longer, milliseconds.
    graces: BTreeSet<(u64, GroupId)>,
    /// Groups that hold leases, by when those are to be looked at, milliseconds.
    looks: BTreeSet<(u64, GroupId)>,
    /// Groups that have joined and of which a rank waits to hear it, by the generation that is to be
    /// followed before; each is in it once at most.
    joining: BTreeSet<(Generation, GroupId)>,
    /// Groups of which a rank asks something that may be so already.
    asking: BTreeSet<GroupId>,
}

impl Membership {
    /// These groups; others begin past a life.
    pub(super) fn new(groups: BTreeMap<GroupId, Group>, lives_before: Incarnation) -> Self {
        let lives = groups.values().map(Group::incarnation);
        Self {
            last: lives.fold(lives_before, Incarnation::max),
            groups: Table::read(groups),
            lives_before,
            ..Self::default()
        }
    }

    pub(super) fn groups(&self) -> &Table {
        &self.groups
    }

    pub(super) fn groups_mut(&mut self) -> &mut Table {
        &mut self.groups
    }

    pub(super) fn lives_before(&self) -> Incarnation {
        self.lives_before
    }

    /// Goes on for a former coordinator: every rank has one lease to show up.
    pub(super) fn recover(&mut self, now_ms: u64, lease_ms: u64) {
        for id in self.groups.ids() {
            let recover = |group: &mut Group| {
                group.recover(now_ms, lease_ms);
                group.look_again(now_ms)
            };
            let look_ms = self.groups.look(id, recover);
            self.looks.extend(look_ms.map(|at_ms| (at_ms, id)));
        }
    }

    /// The last incarnation of any group.
    pub(super) fn last_incarnation(&self) -> Incarnation {
        self.last.max(self.lives_before)
    }

    /// Groups that have not begun begin past this incarnation.
    pub(super) fn begin_past(&mut self, incarnation: Incarnation) {
        self.lives_before = self.lives_before.max(incarnation);
    }

    /// Whether a group is there that makes clocks advance.
    pub(super) fn trains(&self) -> bool {
        self.groups.any_leased()
    }

    /// Whether any rank is there.
    pub(super) fn is_there(&self) -> bool {
        self.groups.any_there()
    }

    /// The highest clock of any group, by its heartbeats; `None` before the first exchange.
    pub(super) fn clock(&self) -> Option<Clock> {
        Some(self.clock).filter(|clock| *clock > Clock(0))
    }

    /// The groups as a manifest names them.
    pub(super) fn saved(&self) -> BTreeMap<GroupId, SavedGroup> {
        let saved = |(id, group): (GroupId, &Group)| (id, group.saved());
        self.groups.all().map(saved).collect()
    }

    /// Groups that may push, with their lives and first clocks.
    pub(super) fn live(&self) -> BTreeMap<GroupId, (Incarnation, Clock)> {
        let live = self.groups.all().filter(|(_, group)| group.is_admitted());
        live.map(|(id, group)| (id, (group.incarnation(), group.start())))
            .collect()
    }

    /// Groups that have joined and may not push yet, with their lives.
    pub(super) fn joined(&self) -> BTreeMap<GroupId, Incarnation> {
        let all = self.groups.all();
        let joined = all.filter(|(_, group)| group.joined_at().is_some());
        joined
            .map(|(id, group)| (id, group.incarnation()))
            .collect()
    }

    /// What those are in the view that have changed since a generation: a group that has gone, too.
    pub(super) fn changed_since(&self, base: Generation) -> BTreeMap<GroupId, Rights> {
        self.groups.changed_since(base)
    }

    /// The groups for the status page.
    pub(super) fn rows(&self, roster: &Roster, now_ms: u64) -> Vec<GroupRow> {
        let row = |(id, group): (GroupId, &Group)| {
            let size = roster.size(id).expect("a known group");
            group.row(id, size, roster.is_drained(id), now_ms)
        };
        self.groups.all().map(row).collect()
    }

    /// Whether a rank has joined and has not heard of it: then that is its answer, also of a group that
    /// was asked to leave meanwhile, where others wait for it.
    pub(super) fn asks_again(&mut self, join: &Join, to: ReplyTo, out: &mut Outbox) -> bool {
        let (id, rank) = (join.group, join.rank);
        if self.groups.get(id).is_none() {
            return false;
        }
        let wait = |group: &mut Group| {
            let at = group.joined_at();
            let member = group.asks_again(rank, join.life)?;
            Some((at, member.wait_to_join(to)))
        };
        let Some((at, previous)) = self.groups.look(id, wait) else {
            return false;
        };
        match at {
            Some(at) => self.joining.insert((at, id)),
            None => self.asking.insert(id),
        };
        replace(id, rank, previous, out);
        true
    }

    /// A rank is about to join. Whether its group is in the view without it, and has to form again.
    pub(super) fn breaks(&mut self, join: &Join, out: &mut Outbox) -> bool {
        let (id, rank) = (join.group, join.rank);
        let begins = match self.groups.get(id) {
            None => Some(Group::new(self.lives_before)),
            Some(group) if group.state() == GroupState::Left => Some(group.begun_again()),
            Some(_) => None,
        };
        if let Some(group) = begins {
            self.groups.put(id, group);
            out.touch();
        }
        let group = self.groups.get(id).expect("it is there now");
        if !group.holds_leases() {
            return false;
        }
        match group.life(rank).filter(|life| *life != join.life) {
            Some(life) => {
                let lost = LostRank {
                    group: id,
                    rank,
                    life,
                };
                lost.tell("another process has taken its place", out);
            }
            None => {
                let text = format!("group {id} forms again: rank {rank} has joined");
                let event = Event::new(EventKind::GroupReforms, text);
                out.tell(event.group(id).rank(rank).life(join.life));
            }
        }
        true
    }

    /// A rank joins a group that is out of the view. That is not written down: where it gathers it has
    /// to ask a successor again.
    pub(super) fn enter(
        &mut self,
        join: Join,
        to: ReplyTo,
        (spec, now_ms): (&RunSpec, u64),
        out: &mut Outbox,
    ) {
        let (id, rank) = (join.group, join.rank);
        let enter = |group: &mut Group| {
            let previous = group.enter(join, to, now_ms);
            (previous, group.gathers_until_ms(spec))
        };
        let (previous, until_ms) = self.groups.look(id, enter);
        self.coming.insert(id);
        self.graces.insert((until_ms, id));
        replace(id, rank, previous, out);
    }

    /// Forms the groups whose ranks are all there, or have waited long enough.
    pub(super) fn form(&mut self, roster: &Roster, spec: &RunSpec, now_ms: u64, out: &mut Outbox) {
        let mut coming = std::mem::take(&mut self.coming);
        while let Some((_, id)) = pop_due(&mut self.graces, now_ms) {
            coming.insert(id);
        }
        for id in coming {
            if !self.groups.get(id).is_some_and(Group::gathers) {
                continue;
            }
            let size = roster.size(id).expect("a known group") as usize;
            let at = out.next_generation();
            let ready = |group: &Group| group.is_together(size, spec, now_ms);
            if !self.groups.get(id).is_some_and(ready) {
                continue;
            }
            let form = |group: &mut Group| {
                let until_ms = group.gathers_until_ms(spec);
                group.form(at, spec, now_ms);
                let look_ms = match group.look_ms() {
                    Some(_) => None,
                    None => group.look_again(now_ms),
                };
                (until_ms, look_ms)
            };
            let (until_ms, look_ms) = self.groups.change(id, form);
            self.graces.remove(&(until_ms, id));
            self.looks.extend(look_ms.map(|at_ms| (at_ms, id)));
            self.joining.insert((at, id));
            let group = self.groups.get(id).expect("it was changed");
            let (there, life) = (group.ranks(), group.incarnation());
            self.last = self.last.max(life);
            let text = if there == size {
                format!("group {id} is together: {there} ranks, incarnation {life}")
            } else {
                format!("group {id} goes on with {there} of {size} ranks, incarnation {life}")
            };
            let event = Event::new(EventKind::GroupFormed, text);
            out.tell(event.group(id).life(life.0));
            out.change();
        }
    }

    /// The group that has joined first of those that may not push yet, and its life.
    pub(super) fn first_joined(&self) -> Option<(GroupId, Incarnation)> {
        let id = self.groups.joined_first()?;
        Some((id, self.groups.get(id)?.incarnation()))
    }

    /// Whether a group has joined and may not push yet.
    pub(super) fn has_joined(&self, id: GroupId) -> bool {
        let group = self.groups.get(id);
        group.is_some_and(|group| group.joined_at().is_some())
    }

    /// Whether every shard has fenced the former lives of all that have joined: all primaries follow a
    /// generation.
    pub(super) fn all_fenced(&self, followed: Option<Generation>) -> bool {
        self.groups.joined_last() <= followed
    }

    /// Those that have joined and may not push yet, whose former life every shard has fenced.
    pub(super) fn fenced(&self, followed: Option<Generation>) -> Vec<GroupId> {
        let fenced = followed.map(|at| self.groups.joined_by(at));
        let mut fenced: Vec<GroupId> = fenced.into_iter().flatten().collect();
        fenced.sort_unstable();
        fenced
    }

    /// A generation lets groups push, from this clock on.
    pub(super) fn admit(&mut self, groups: &[GroupId], start: Clock, at: Generation) {
        for id in groups {
            self.groups.change(*id, |group| group.admit(start, at));
        }
    }

    /// Answers those who wait for what is so by now.
    pub(super) fn answer(&mut self, standing: Standing, out: &mut Outbox) {
        let mut asking = std::mem::take(&mut self.asking);
        if let Some(followed) = standing.followed {
            let known: Vec<GroupId> = self.groups.admitting_by(followed).collect();
            for id in known {
                // Servers say it again to a successor: it is not worth a write of its own.
                self.groups.change(id, Group::is_known);
                asking.insert(id);
            }
            while let Some((_, id)) = pop_due(&mut self.joining, followed) {
                asking.insert(id);
            }
        }
        asking.extend(standing.creator);
        for id in asking {
            let answer = |group: &mut Group| {
                group.answer(id, standing, out);
                group.joined_at().filter(|_| group.has_joining())
            };
            // One that waits for a later life of its group than this.
            let waits = self.groups.look(id, answer);
            self.joining.extend(waits.map(|at| (at, id)));
        }
    }

    /// All ranks of a group are out of it.
    pub(super) fn take_out(&mut self, id: GroupId, out: &mut Outbox) {
        let (at, waiting) = self
            .groups
            .change(id, |group| (group.joined_at(), group.take_out()));
        if let Some(at) = at {
            self.joining.remove(&(at, id));
        }
        out.reply_all(waiting, Err(Refusal::NotLive(id).into()));
    }

    /// A group is out of the view until its ranks have joined anew.
    pub(super) fn gather(&mut self, id: GroupId) {
        self.groups.change(id, Group::gather);
    }

    /// The present life of a group is over: ranks that are left of it may wait for one that is lost.
    pub(super) fn end_life(&mut self, id: GroupId) {
        self.groups.change(id, Group::end_life);
        let life = self.groups.get(id).expect("it was changed").incarnation();
        self.last = self.last.max(life);
    }

    /// A group that is out of the view does not come back; whether it was `asked` to leave.
    pub(super) fn leave(&mut self, id: GroupId, asked: bool, out: &mut Outbox) {
        self.groups.change(id, Group::leave);
        let life = self.groups.get(id).expect("it was changed").incarnation();
        let text = match asked {
            true => format!("group {id} has left, as it was asked to"),
            false => format!("group {id} is done and has left"),
        };
        let event = Event::new(EventKind::GroupLeft, text);
        out.tell(event.group(id).life(life.0));
        out.touch();
    }

    /// Those that gather, or would, and were asked to leave: they have nothing to finish.
    pub(super) fn drained_early(&self, roster: &Roster) -> Vec<GroupId> {
        let gathering = |id: GroupId, group: &Group| {
            group.state() == GroupState::Gathering && roster.is_drained(id)
        };
        let all = self.groups.all().filter(|(id, g)| gathering(*id, g));
        all.map(|(id, _)| id).collect()
    }

    /// Sends away who gathers in a group that was asked to leave.
    pub(super) fn dismiss(&mut self, id: GroupId, out: &mut Outbox) {
        let waiting = self.groups.change(id, Group::take_out);
        out.reply_all(waiting, Err(Refused::Drained(id)));
    }

    /// Who waits in any group is refused.
    pub(super) fn refuse_all(&mut self, refused: &Refused, out: &mut Outbox) {
        for id in self.groups.ids() {
            let take = |group: &mut Group| group.take_waiting().collect::<Vec<_>>();
            let waiting = self.groups.look(id, take);
            out.reply_all(waiting, Err(refused.clone()));
            out.is_over(id);
        }
    }

    /// Leases are looked at when they were to be; then they are found to be longer.
    pub(super) fn forgive(&mut self, gap_ms: u64) {
        for id in self.groups.ids() {
            let forgive = |group: &mut Group| group.forgive(gap_ms);
            self.groups.look(id, forgive);
        }
    }

    /// Ranks whose leases have run out.
    pub(super) fn expired(&mut self, now_ms: u64) -> Vec<LostRank> {
        let mut expired = Vec::new();
        while let Some((at_ms, id)) = pop_due(&mut self.looks, now_ms) {
            let look = |group: &mut Group| {
                // It is another group of this number that was to be looked at.
                if group.look_ms() != Some(at_ms) {
                    return (Vec::new(), None);
                }
                let lost: Vec<_> = group.expired(now_ms).collect();
                // One that is lost is out before it is looked at again.
                (lost, group.look_again(now_ms))
            };
            let (lost, again_ms) = self.groups.look(id, look);
            self.looks.extend(again_ms.map(|at_ms| (at_ms, id)));
            let lost = lost.into_iter().map(|(rank, life)| LostRank {
                group: id,
                rank,
                life,
            });
            expired.extend(lost);
        }
        expired.sort_unstable_by_key(|lost| (lost.group, lost.rank));
        expired
    }

    /// A rank is alive.
    pub(super) fn beat(&mut self, caller: Caller, beat: Beat, now_ms: u64) {
        self.clock = self.clock.max(beat.clock);
        let renew = |group: &mut Group| group.beat(caller.rank, beat, now_ms);
        self.call(caller, false, renew);
    }

    /// A rank asks to push, and says whether it has created what it was told to.
    pub(super) fn await_ready(
        &mut self,
        caller: Caller,
        created: bool,
        to: ReplyTo,
        now_ms: u64,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.check(caller)?;
        let wait = |group: &mut Group| {
            let member = group.member(caller.rank).expect("it was checked");
            member.wait_to_push(created, to, now_ms)
        };
        let previous = self.call(caller, created, wait);
        self.asking.insert(caller.group);
        replace(caller.group, caller.rank, previous, out);
        Ok(())
    }

    /// A rank of a group calls; whether that changes what is written down. That it has entered is written with
    /// whatever is written next.
    fn call<R>(&mut self, caller: Caller, changes: bool, call: impl FnOnce(&mut Group) -> R) -> R {
        let id = caller.group;
        let group = self.groups.get(id);
        let entered = group.is_some_and(|group| group.has_entered(caller.rank));
        match changes || !entered {
            true => self.groups.change(id, call),
            false => self.groups.look(id, call),
        }
    }

    /// Steps a second of the fastest live group beside one, which knows its own speed better; 0 if none
    /// is known.
    pub(super) fn fastest_beside(&self, group: GroupId) -> f64 {
        self.groups.fastest_beside(group)
    }

    /// Whether a rank's group is done, in its life.
    pub(super) fn has_left(&self, caller: Caller) -> bool {
        let group = self.groups.get(caller.group);
        group.is_some_and(|group| group.has_left(caller.incarnation))
    }

    /// How many ranks a group has in this life, if it holds leases.
    pub(super) fn ranks(&self, id: GroupId, given: Incarnation) -> Result<usize, Refusal> {
        let group = self.groups.get(id).ok_or(Refusal::NotLive(id))?;
        group.check(id, given)?;
        Ok(group.ranks())
    }

    /// Refuses a rank whose group holds no leases in its life, or that is not in it; its process.
    pub(super) fn check(&self, caller: Caller) -> Result<u64, Refusal> {
        let id = caller.group;
        let group = self.groups.get(id).ok_or(Refusal::NotLive(id))?;
        group.check(id, caller.incarnation)?;
        group.life(caller.rank).ok_or(Refusal::NotLive(id))
    }
}

/// Takes the first of those that are due by now out of a set.
fn pop_due<T: Ord + Copy>(set: &mut BTreeSet<(T, GroupId)>, now: T) -> Option<(T, GroupId)> {
    set.first().filter(|(at, _)| *at <= now)?;
    set.pop_first()
}

/// Whoever waited before is told that the answer goes elsewhere.
fn replace(group: GroupId, rank: Rank, previous: Option<ReplyTo>, out: &mut Outbox) {
    out.reply_all(previous, Err(Refused::Replaced { group, rank }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tradewind_common::RunId;
    use tradewind_common::spec::ConsistencySpec;

    use super::super::roster::Drained;
    use super::*;
    use crate::tests::spec;

    /// As when no shard has a primary: nobody hears that it has joined.
    #[test]
    fn a_group_that_forms_again_and_again_is_remembered_once() {
        let spec = Arc::new(spec(&[1], ConsistencySpec::Async));
        let roster = Roster::new(spec.clone(), Vec::new(), Drained::default());
        let mut out = Outbox::new(RunId::new("r").unwrap(), Generation(1));
        let mut membership = Membership::default();
        let id = GroupId(0);
        for life in 1..10 {
            let join = Join {
                group: id,
                rank: Rank(0),
                life,
                store_address: "node0:29500".into(),
            };
            membership.breaks(&join, &mut out);
            membership.enter(join, ReplyTo(life), (&spec, life), &mut out);
            membership.form(&roster, &spec, life, &mut out);
            assert!(membership.has_joined(id));
            assert_eq!(membership.joining.len(), 1, "life {life}");
            assert!(membership.looks.len() <= 1 && membership.graces.len() <= 1);
            membership.take_out(id, &mut out);
            membership.gather(id);
        }
    }
}
