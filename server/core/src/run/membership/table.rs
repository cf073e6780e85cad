//! The groups of a run by number, and which of them wait for what: nothing that happens to one group looks
//! at all others.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::{Generation, GroupId};

use super::changed::Changed;
use crate::run::group::{Group, GroupState};
use crate::view::Rights;

/// Groups, by when something has happened to them.
type ByGeneration = BTreeSet<(Generation, GroupId)>;

/// The groups that were ever joined. Whoever changes one does it here, so that the sets agree with the
/// groups, and what has changed is known.
#[derive(Clone, Debug, Default)]
pub(in crate::run) struct Table {
    groups: BTreeMap<GroupId, Group>,
    /// Those that have joined and may not push yet, by the generation that fences their former lives.
    joined: ByGeneration,
    /// Those that may push, by the generation that says so, until every shard knows it.
    admitting: ByGeneration,
    /// Steps a second of live ones, as bits, which order numbers that are not negative; without those of
    /// which nothing is known.
    speeds: BTreeSet<(u64, GroupId)>,
    /// How many hold leases.
    leased: usize,
    /// In how many somebody is, or waits for the others.
    there: usize,
    /// What of them is not written down.
    unwritten: BTreeSet<GroupId>,
    /// When each became what it is in the view.
    changed: Changed,
    /// How many were looked at, for who measures.
    looked_at: Cell<u64>,
}

/// What the sets are made of.
struct Facts {
    state: Option<GroupState>,
    rights: Rights,
    speed: u64,
    leased: bool,
    there: bool,
}

impl Facts {
    fn of(group: Option<&Group>) -> Self {
        let live = group.filter(|group| group.state() == GroupState::Live);
        Self {
            state: group.map(Group::state),
            rights: group.map_or(Rights::Out, Group::rights),
            speed: live.map_or(0, |group| group.speed().to_bits()),
            leased: group.is_some_and(Group::holds_leases),
            there: group.is_some_and(Group::is_there),
        }
    }

    fn joined(&self) -> Option<Generation> {
        match self.state {
            Some(GroupState::Joined(at)) => Some(at),
            _ => None,
        }
    }

    fn admitting(&self) -> Option<Generation> {
        match self.state {
            Some(GroupState::Admitting(at)) => Some(at),
            _ => None,
        }
    }
}

impl Table {
    /// These groups, as they were written down.
    pub(super) fn read(groups: BTreeMap<GroupId, Group>) -> Self {
        let mut table = Self::default();
        for (id, group) in groups {
            table.put(id, group);
        }
        table.unwritten.clear();
        // Nobody has followed anything of this value yet.
        table.changed = Changed::default();
        table
    }

    pub(super) fn get(&self, id: GroupId) -> Option<&Group> {
        self.looked_at.set(self.looked_at.get() + 1);
        self.groups.get(&id)
    }

    /// All of them, which costs as much as there are.
    pub(super) fn all(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        let looked_at = &self.looked_at;
        let look = move |_: &(GroupId, &Group)| looked_at.set(looked_at.get() + 1);
        self.groups
            .iter()
            .map(|(id, group)| (*id, group))
            .inspect(look)
    }

    /// Their numbers, of all of them.
    pub(super) fn ids(&self) -> Vec<GroupId> {
        self.all().map(|(id, _)| id).collect()
    }

    /// How many groups were looked at so far.
    pub(in crate::run) fn looked_at(&self) -> u64 {
        self.looked_at.get()
    }

    /// Changes a group that there is.
    pub(super) fn change<R>(&mut self, id: GroupId, change: impl FnOnce(&mut Group) -> R) -> R {
        self.unwritten.insert(id);
        self.look(id, change)
    }

    /// The same where what changes is not written down.
    pub(super) fn look<R>(&mut self, id: GroupId, change: impl FnOnce(&mut Group) -> R) -> R {
        self.looked_at.set(self.looked_at.get() + 1);
        let group = self.groups.get_mut(&id).expect("a known group");
        let before = Facts::of(Some(group));
        let come = change(group);
        let after = Facts::of(Some(group));
        self.replace(id, &before, &after);
        come
    }

    /// Puts a group in place of the one there was, if any.
    pub(super) fn put(&mut self, id: GroupId, group: Group) {
        let after = Facts::of(Some(&group));
        let before = Facts::of(self.groups.get(&id));
        self.groups.insert(id, group);
        self.unwritten.insert(id);
        self.replace(id, &before, &after);
    }

    fn replace(&mut self, id: GroupId, before: &Facts, after: &Facts) {
        fn moved<T: Ord>(set: &mut BTreeSet<T>, before: Option<T>, after: Option<T>) {
            if before != after {
                before.map(|before| set.remove(&before));
                set.extend(after);
            }
        }
        if before.rights != after.rights {
            self.changed.note(id);
        }
        let by = |at: Generation| (at, id);
        moved(
            &mut self.joined,
            before.joined().map(by),
            after.joined().map(by),
        );
        let admitting = |facts: &Facts| facts.admitting().map(by);
        moved(&mut self.admitting, admitting(before), admitting(after));
        let speed = |facts: &Facts| (facts.speed > 0).then_some((facts.speed, id));
        moved(&mut self.speeds, speed(before), speed(after));
        self.leased = self.leased + usize::from(after.leased) - usize::from(before.leased);
        self.there = self.there + usize::from(after.there) - usize::from(before.there);
    }

    // What the sets say.

    /// Those that have joined and may not push yet, and whose former lives a generation fences up to this
    /// one.
    pub(super) fn joined_by(&self, at: Generation) -> impl Iterator<Item = GroupId> + '_ {
        by(&self.joined, at)
    }

    /// The last generation that fences one of them.
    pub(super) fn joined_last(&self) -> Option<Generation> {
        self.joined.last().map(|(at, _)| *at)
    }

    /// The one that has joined first, and may not push yet.
    pub(super) fn joined_first(&self) -> Option<GroupId> {
        self.joined.first().map(|(_, id)| *id)
    }

    /// Those that may push and of which not every shard was known to know it, up to a generation.
    pub(super) fn admitting_by(&self, at: Generation) -> impl Iterator<Item = GroupId> + '_ {
        by(&self.admitting, at)
    }

    /// Steps a second of the fastest live group beside one; 0 if none is known.
    pub(super) fn fastest_beside(&self, group: GroupId) -> f64 {
        let mut fastest = self.speeds.iter().rev().filter(|(_, id)| *id != group);
        fastest
            .next()
            .map_or(0.0, |(bits, _)| f64::from_bits(*bits))
    }

    /// Whether one holds leases.
    pub(super) fn any_leased(&self) -> bool {
        self.leased > 0
    }

    /// Whether somebody is in one, or waits there for the others.
    pub(super) fn any_there(&self) -> bool {
        self.there > 0
    }

    /// What has changed of groups until now is so from this generation on.
    pub(in crate::run) fn note_changes(&mut self, generation: Generation) {
        self.changed.begin(generation);
    }

    /// What those are in the view that have changed since a generation.
    pub(super) fn changed_since(&self, base: Generation) -> BTreeMap<GroupId, Rights> {
        let changed = self.changed.since(base);
        let rights = |id| (id, self.get(id).map_or(Rights::Out, Group::rights));
        changed.map(rights).collect()
    }

    /// As they are written down.
    pub(in crate::run) fn to_write(&self) -> BTreeMap<GroupId, Group> {
        let write = |(id, group): (GroupId, &Group)| (id, group.to_write());
        self.all().map(write).collect()
    }

    /// Whether something of any is not written down.
    pub(in crate::run) fn any_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Those of which something is not written down; from now on it is.
    pub(in crate::run) fn take_unwritten(&mut self) -> BTreeMap<GroupId, Group> {
        let unwritten = std::mem::take(&mut self.unwritten);
        let write = |id: GroupId| (id, self.groups[&id].to_write());
        unwritten.into_iter().map(write).collect()
    }
}

fn by(set: &ByGeneration, at: Generation) -> impl Iterator<Item = GroupId> + '_ {
    let upto = set.range(..=(at, GroupId(u32::MAX)));
    upto.map(|(_, id)| *id)
}
