//! The groups of a run: ranks come, stay and go.

use std::collections::BTreeMap;

use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank};

use super::calls::{Caller, Join};
use super::group::{Group, GroupState, Standing};
use super::member::Member;
use super::outbox::Outbox;
use super::roster::Roster;
use super::rows::GroupRow;
use crate::ReplyTo;
use crate::answer::Refused;
use crate::event::{Event, EventKind};
use crate::refusal::Refusal;
use crate::saved::SavedGroup;

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
    groups: BTreeMap<GroupId, Group>,
    /// Groups begin past this life.
    lives_before: Incarnation,
}

impl Membership {
    /// These groups; others begin past a life.
    pub(super) fn new(groups: BTreeMap<GroupId, Group>, lives_before: Incarnation) -> Self {
        Self {
            groups,
            lives_before,
        }
    }

    pub(super) fn groups(&self) -> &BTreeMap<GroupId, Group> {
        &self.groups
    }

    pub(super) fn lives_before(&self) -> Incarnation {
        self.lives_before
    }

    /// Goes on for a former coordinator: every rank has one lease to show up.
    pub(super) fn recover(&mut self, now_ms: u64, lease_ms: u64) {
        for group in self.groups.values_mut() {
            group.recover(now_ms, lease_ms);
        }
    }

    /// The last incarnation of any group.
    pub(super) fn last_incarnation(&self) -> Incarnation {
        let lives = self.groups.values().map(Group::incarnation);
        lives.fold(self.lives_before, Incarnation::max)
    }

    /// Groups that have not begun begin past this incarnation.
    pub(super) fn begin_past(&mut self, incarnation: Incarnation) {
        self.lives_before = self.lives_before.max(incarnation);
    }

    /// Whether a group is there that makes clocks advance.
    pub(super) fn trains(&self) -> bool {
        self.groups.values().any(Group::holds_leases)
    }

    /// Whether any rank is there.
    pub(super) fn is_there(&self) -> bool {
        self.groups.values().any(Group::is_there)
    }

    /// The highest clock of any group, by its heartbeats; `None` before the first exchange.
    pub(super) fn clock(&self) -> Option<Clock> {
        let beats = self.groups.values().map(Group::clock).max();
        beats.filter(|clock| *clock > Clock(0))
    }

    /// The groups as a manifest names them.
    pub(super) fn saved(&self) -> BTreeMap<GroupId, SavedGroup> {
        let saved = |(id, group): (&GroupId, &Group)| (*id, group.saved());
        self.groups.iter().map(saved).collect()
    }

    /// Groups that may push, with their lives and first clocks.
    pub(super) fn live(&self) -> BTreeMap<GroupId, (Incarnation, Clock)> {
        let live = self.groups.iter().filter(|(_, group)| group.is_admitted());
        live.map(|(id, group)| (*id, (group.incarnation(), group.start())))
            .collect()
    }

    /// Groups that have joined and may not push yet, with their lives.
    pub(super) fn joined(&self) -> BTreeMap<GroupId, Incarnation> {
        let all = self.groups.iter();
        let joined = all.filter(|(_, group)| group.joined_at().is_some());
        joined
            .map(|(id, group)| (*id, group.incarnation()))
            .collect()
    }

    /// The groups for the status page.
    pub(super) fn rows(&self, roster: &Roster, now_ms: u64) -> Vec<GroupRow> {
        let row = |(id, group): (&GroupId, &Group)| {
            let size = roster.size(*id).expect("a known group");
            group.row(*id, size, roster.is_drained(*id), now_ms)
        };
        self.groups.iter().map(row).collect()
    }

    /// Whether a rank has joined and has not heard of it: then that is its answer, also of a group that
    /// was asked to leave meanwhile, where others wait for it.
    pub(super) fn asks_again(&mut self, join: &Join, to: ReplyTo, out: &mut Outbox) -> bool {
        let group = self.groups.get_mut(&join.group);
        let Some(member) = group.and_then(|group| group.asks_again(join.rank, join.life)) else {
            return false;
        };
        let previous = member.wait_to_join(to);
        replace(join.group, join.rank, previous, out);
        true
    }

    /// A rank is about to join. Whether its group is in the view without it, and has to form again.
    pub(super) fn breaks(&mut self, join: &Join, out: &mut Outbox) -> bool {
        let (id, rank, before) = (join.group, join.rank, self.lives_before);
        let group = self.groups.entry(id).or_insert_with(|| Group::new(before));
        if group.state() == GroupState::Left {
            group.begin_again();
        }
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

    /// A rank joins a group that is out of the view.
    pub(super) fn enter(&mut self, join: Join, to: ReplyTo, now_ms: u64, out: &mut Outbox) {
        let (id, rank) = (join.group, join.rank);
        let previous = self.group_mut(id).enter(join, to, now_ms);
        replace(id, rank, previous, out);
        out.touch();
    }

    /// Forms the groups whose ranks are all there, or have waited long enough.
    pub(super) fn form(&mut self, roster: &Roster, spec: &RunSpec, now_ms: u64, out: &mut Outbox) {
        for (id, group) in self.groups.iter_mut().filter(|(_, group)| group.gathers()) {
            let size = roster.size(*id).expect("a known group") as usize;
            if !group.form(size, out.next_generation(), spec, now_ms) {
                continue;
            }
            let (there, life) = (group.ranks(), group.incarnation());
            let text = if there == size {
                format!("group {id} is together: {there} ranks, incarnation {life}")
            } else {
                format!("group {id} goes on with {there} of {size} ranks, incarnation {life}")
            };
            let event = Event::new(EventKind::GroupFormed, text);
            out.tell(event.group(*id).life(life.0));
            out.change();
        }
    }

    /// The first group that has joined and may not push yet, and its life.
    pub(super) fn first_joined(&self) -> Option<(GroupId, Incarnation)> {
        let mut joined = self.groups.iter().filter(|(_, g)| g.joined_at().is_some());
        joined.next().map(|(id, group)| (*id, group.incarnation()))
    }

    /// Whether a group has joined and may not push yet.
    pub(super) fn has_joined(&self, id: GroupId) -> bool {
        self.joined_at(id).is_some()
    }

    fn joined_at(&self, id: GroupId) -> Option<Generation> {
        self.groups.get(&id)?.joined_at()
    }

    /// How many groups have joined and may not push yet.
    pub(super) fn joining(&self) -> usize {
        let groups = self.groups.values();
        groups.filter(|group| group.joined_at().is_some()).count()
    }

    /// Those among them whose former life every shard has fenced: all primaries follow a generation.
    pub(super) fn fenced(&self, followed: Option<Generation>) -> Vec<GroupId> {
        let fenced = |group: &Group| group.joined_at().is_some_and(|at| Some(at) <= followed);
        let all = self.groups.iter().filter(|(_, group)| fenced(group));
        all.map(|(id, _)| *id).collect()
    }

    /// A generation lets groups push, from this clock on.
    pub(super) fn admit(&mut self, groups: &[GroupId], start: Clock, at: Generation) {
        for id in groups {
            self.group_mut(*id).admit(start, at);
        }
    }

    /// Answers those who wait for what is so by now.
    pub(super) fn answer(&mut self, standing: Standing, out: &mut Outbox) {
        for (id, group) in &mut self.groups {
            group.answer(*id, standing, out);
        }
    }

    /// All ranks of a group are out of it.
    pub(super) fn take_out(&mut self, id: GroupId, out: &mut Outbox) {
        let waiting = self.group_mut(id).take_out();
        out.reply_all(waiting, Err(Refusal::NotLive(id).into()));
    }

    /// A group is out of the view until its ranks have joined anew.
    pub(super) fn gather(&mut self, id: GroupId) {
        self.group_mut(id).gather();
    }

    /// The present life of a group is over: ranks that are left of it may wait for one that is lost.
    pub(super) fn end_life(&mut self, id: GroupId) {
        self.group_mut(id).end_life();
    }

    /// A group that is out of the view does not come back; whether it was `asked` to leave.
    pub(super) fn leave(&mut self, id: GroupId, asked: bool, out: &mut Outbox) {
        let group = self.group_mut(id);
        group.leave();
        let life = group.incarnation();
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
        let gathering = |id: &GroupId, group: &Group| {
            group.state() == GroupState::Gathering && roster.is_drained(*id)
        };
        let all = self.groups.iter().filter(|(id, g)| gathering(id, g));
        all.map(|(id, _)| *id).collect()
    }

    /// Sends away who gathers in a group that was asked to leave.
    pub(super) fn dismiss(&mut self, id: GroupId, out: &mut Outbox) {
        let waiting = self.group_mut(id).take_out();
        out.reply_all(waiting, Err(Refused::Drained(id)));
    }

    /// Who waits in any group is refused.
    pub(super) fn refuse_all(&mut self, refused: &Refused, out: &mut Outbox) {
        let groups = self.groups.values_mut();
        let waiting = groups.flat_map(Group::take_waiting);
        out.reply_all(waiting, Err(refused.clone()));
    }

    pub(super) fn forgive(&mut self, gap_ms: u64) {
        let groups = self.groups.values_mut();
        groups.for_each(|group| group.forgive(gap_ms));
    }

    /// Ranks whose leases have run out.
    pub(super) fn expired(&self, now_ms: u64) -> Vec<LostRank> {
        let of_group = |(id, group): (&GroupId, &Group)| {
            let group_id = *id;
            let expired = group.expired(now_ms).map(move |(rank, life)| LostRank {
                group: group_id,
                rank,
                life,
            });
            expired.collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(of_group).collect()
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
        let member = self.member(caller)?;
        let previous = member.wait_to_push(created, to, now_ms);
        replace(caller.group, caller.rank, previous, out);
        Ok(())
    }

    /// Steps a second of the fastest live group beside one, which knows its own speed better; 0 if none
    /// is known.
    pub(super) fn fastest_beside(&self, group: GroupId) -> f64 {
        let others = self.groups.iter().filter(|(id, _)| **id != group);
        let live = others.filter(|(_, group)| group.state() == GroupState::Live);
        let speeds = live.map(|(_, group)| group.speed());
        speeds.fold(0.0, f64::max)
    }

    /// Whether a rank's group is done, in its life.
    pub(super) fn has_left(&self, caller: Caller) -> bool {
        let group = self.groups.get(&caller.group);
        group.is_some_and(|group| group.has_left(caller.incarnation))
    }

    /// How many ranks a group has in this life, if it holds leases.
    pub(super) fn ranks(&self, id: GroupId, given: Incarnation) -> Result<usize, Refusal> {
        let group = self.groups.get(&id).ok_or(Refusal::NotLive(id))?;
        group.check(id, given)?;
        Ok(group.ranks())
    }

    /// A rank whose group holds leases in its life.
    pub(super) fn member(&mut self, caller: Caller) -> Result<&mut Member, Refusal> {
        let id = caller.group;
        let group = self.groups.get_mut(&id).ok_or(Refusal::NotLive(id))?;
        group.check(id, caller.incarnation)?;
        group.member(caller.rank).ok_or(Refusal::NotLive(id))
    }

    fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups.get_mut(&id).expect("a known group")
    }
}

/// Whoever waited before is told that the answer goes elsewhere.
fn replace(group: GroupId, rank: Rank, previous: Option<ReplyTo>, out: &mut Outbox) {
    out.reply_all(previous, Err(Refused::Replaced { group, rank }));
}
