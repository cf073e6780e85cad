//! Ranks come, stay and go.

use tradewind_common::data::{Chunk, LeaseRefused};
use tradewind_common::lease::Lease;
use tradewind_common::{Generation, GroupId, Incarnation, Rank};

use super::group::{Beat, Beaten, Group, Member};
use super::{Caller, GroupState, Join, Phase, Run};
use crate::ReplyTo;
use crate::answer::Refused;
use crate::event::{Event, EventKind, LEASE_RAN_OUT};
use crate::refusal::Refusal;

impl Run {
    /// A rank joins; answered when its group is together and its former life fenced.
    pub(crate) fn join(&mut self, join: Join, to: ReplyTo, now_ms: u64) {
        if let Err(refused) = self.try_join(join, to, now_ms) {
            self.reply(to, Err(refused));
        }
        self.advance(now_ms);
    }

    fn try_join(&mut self, join: Join, to: ReplyTo, now_ms: u64) -> Result<(), Refused> {
        let (id, rank) = (join.group, join.rank);
        self.check_rank(id, rank)?;
        if self.asks_again(&join, to) {
            return Ok(());
        }
        if self.drained.has(id) {
            return Err(Refused::Drained(id));
        }
        let before = self.lives_before;
        let group = self.groups.entry(id).or_insert_with(|| Group::new(before));
        if group.state == GroupState::Left {
            *group = Group::new(group.incarnation);
        }
        if group.holds_leases() {
            let known = group.members.get(&rank).map(|member| member.life);
            match known.filter(|life| *life != join.life) {
                Some(life) => {
                    self.tell_lost(id, rank, life, "another process has taken its place");
                }
                None => {
                    let text = format!("group {id} forms again: rank {rank} has joined");
                    let event = Event::new(EventKind::GroupReforms, text);
                    self.tell(event.group(id).rank(rank).life(join.life));
                }
            }
            self.gather(id);
        }
        let group = self.groups.get_mut(&id).expect("a known group");
        if group.members.is_empty() {
            group.gathering_ms = now_ms;
        }
        let fresh = || Member::new(join.life);
        let member = group.members.entry(rank).or_insert_with(fresh);
        member.life = join.life;
        member.store_address = join.store_address;
        let former = member.joining.replace(to);
        self.replace(id, rank, former);
        self.dirty = true;
        Ok(())
    }

    /// Whether it has joined and has not heard of it: then that is its answer, also of a group that was
    /// asked to leave meanwhile, where others wait for it.
    fn asks_again(&mut self, join: &Join, to: ReplyTo) -> bool {
        let group = self.groups.get_mut(&join.group);
        let group = group.filter(|group| group.holds_leases());
        let member = group.and_then(|group| group.members.get_mut(&join.rank));
        match member.filter(|member| member.life == join.life && !member.entered) {
            Some(member) => {
                let former = member.joining.replace(to);
                self.replace(join.group, join.rank, former);
                true
            }
            None => false,
        }
    }

    fn replace(&mut self, group: GroupId, rank: Rank, former: Option<ReplyTo>) {
        self.reply_all(former, Err(Refused::Replaced { group, rank }));
    }

    /// Forms the groups whose ranks are all there, or have waited long enough.
    pub(super) fn form(&mut self, now_ms: u64) {
        let gathering = |g: &&GroupId| {
            let group = &self.groups[*g];
            group.state == GroupState::Gathering && !group.members.is_empty()
        };
        let gathering: Vec<GroupId> = self.groups.keys().filter(gathering).copied().collect();
        for id in gathering {
            let size = self.size(id).expect("a known group") as usize;
            let group = self.groups.get_mut(&id).expect("a known group");
            let grace_ms = if group.formed {
                self.spec.faults.reform_grace_ms
            } else {
                self.spec.start_grace_ms
            };
            let waited_ms = now_ms.saturating_sub(group.gathering_ms);
            let there = group.members.len();
            if there < size && waited_ms < grace_ms {
                continue;
            }
            group.incarnation = group.incarnation.next();
            group.formed = true;
            group.state = GroupState::Joined(self.generation.next());
            for member in group.members.values_mut() {
                member.lease = Lease::grant(now_ms, self.spec.lease_ms);
            }
            let life = group.incarnation;
            let text = if there == size {
                format!("group {id} is together: {there} ranks, incarnation {life}")
            } else {
                format!("group {id} goes on with {there} of {size} ranks, incarnation {life}")
            };
            let event = Event::new(EventKind::GroupFormed, text);
            self.tell(event.group(id).life(life.0));
            self.change();
        }
    }

    /// Takes a group out of the view until its ranks have joined anew.
    pub(super) fn gather(&mut self, id: GroupId) {
        self.take_out(id);
        let group = self.groups.get_mut(&id).expect("a known group");
        group.state = GroupState::Gathering;
        if self.drained.has(id) {
            // Ranks that are left of this life may wait for one that is lost: it is over for them.
            group.incarnation = group.incarnation.next();
            self.gone(id);
        }
    }

    fn take_out(&mut self, id: GroupId) {
        let group = self.groups.get_mut(&id).expect("a known group");
        let mut members = std::mem::take(&mut group.members);
        let waiting: Vec<ReplyTo> = members
            .values_mut()
            .flat_map(Member::take_waiting)
            .collect();
        self.reply_all(waiting, Err(Refusal::NotLive(id).into()));
        self.ledger.give_back(id);
        if matches!(self.phase, Phase::Creating(creator, ..) if creator == id) {
            self.phase = Phase::Forming;
        }
        self.change();
    }

    fn tell_lost(&mut self, group: GroupId, rank: Rank, life: u64, reason: &str) {
        let text =
            format!("rank {rank} of group {group} is lost, and the group forms again: {reason}");
        let event = Event::new(EventKind::RankLost, text);
        self.tell(event.group(group).rank(rank).life(life));
    }

    /// The connection that held a rank's lease has broken.
    pub(crate) fn rank_lost(&mut self, caller: Caller, now_ms: u64) {
        if let Ok(member) = self.member(caller) {
            let life = member.life;
            let reason = "its heartbeat connection broke";
            self.tell_lost(caller.group, caller.rank, life, reason);
            self.gather(caller.group);
            self.advance(now_ms);
        }
    }

    pub(crate) fn forgive(&mut self, gap_ms: u64) {
        let members = self
            .groups
            .values_mut()
            .flat_map(|g| g.members.values_mut());
        for member in members {
            member.lease.forgive(gap_ms);
        }
    }

    /// Finds ranks whose leases have run out.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let holding = self.groups.iter().filter(|(_, group)| group.holds_leases());
        let expired = holding.flat_map(|(id, group)| {
            let members = group.members.iter();
            let expired = members.filter(|(_, member)| member.lease.expired(now_ms));
            expired.map(|(rank, member)| (*id, *rank, member.life))
        });
        let expired: Vec<(GroupId, Rank, u64)> = expired.collect();
        for &(group, rank, life) in &expired {
            self.tell_lost(group, rank, life, LEASE_RAN_OUT);
        }
        let mut broken: Vec<GroupId> = expired.into_iter().map(|(group, ..)| group).collect();
        broken.dedup();
        for group in broken {
            self.gather(group);
        }
    }

    /// A rank asks to push; answered when it may, or when it shall create.
    pub(crate) fn await_ready(&mut self, caller: Caller, created: bool, to: ReplyTo, now_ms: u64) {
        let creates = matches!(self.phase, Phase::Creating(group, life, _)
            if (group, life) == (caller.group, caller.incarnation));
        match self.member(caller) {
            Ok(member) => {
                // Who was not told to create has created nothing: it may have to, later.
                member.created |= created && creates;
                member.entered = true;
                let former = member.awaiting.replace(to);
                member.lease.renew(now_ms);
                self.dirty |= created;
                self.replace(caller.group, caller.rank, former);
            }
            Err(refused) => self.reply(to, Err(refused)),
        }
        self.advance(now_ms);
    }

    /// Renews a rank's lease.
    pub(crate) fn heartbeat(
        &mut self,
        caller: Caller,
        beat: Beat,
        now_ms: u64,
    ) -> Result<Beaten, Refused> {
        // A rank whose sibling has left first is not lost: the group is done.
        if !self.has_left(caller) {
            let member = self.member(caller)?;
            // Not worth a write of its own: after a recovery the next beat says it again.
            member.entered = true;
            member.lease.renew(now_ms);
            member.clock = member.clock.max(beat.clock);
            member.steps_per_second = beat.steps_per_second;
        }
        // The caller knows its own speed better.
        let others = self.groups.iter().filter(|(id, _)| **id != caller.group);
        let live = others.filter(|(_, group)| group.state == GroupState::Live);
        let speeds = live.map(|(_, group)| group.speed());
        Ok(Beaten {
            generation: self.generation,
            steps_per_second_max: speeds.fold(0.0, f64::max),
            leave: self.drained.has(caller.group),
        })
    }

    /// Whether a rank's life of its group is still the one; nothing is renewed.
    pub(crate) fn check(&mut self, caller: Caller) -> Result<Generation, Refused> {
        if !self.has_left(caller) {
            self.member(caller)?;
        }
        Ok(self.generation)
    }

    /// Leases a chunk of training data to a group; any of its ranks may ask for it.
    pub(crate) fn lease_chunk(
        &mut self,
        owner: (GroupId, Incarnation),
        finished: &[u64],
        holds: &[u64],
    ) -> Result<Chunk, Refused> {
        self.living(owner.0, owner.1)?;
        self.ledger.believe(owner, holds);
        self.ledger.check(owner, finished, holds)?;
        self.finish(owner, finished)?;
        let leased = self.ledger.lease(owner, holds);
        leased.map_err(|refused: LeaseRefused| refused.into())
    }

    /// The samples of these chunks have all been used.
    fn finish(&mut self, owner: (GroupId, Incarnation), finished: &[u64]) -> Result<(), Refused> {
        let ranks = self.living(owner.0, owner.1)?.members.len() as u64;
        let batches = self.spec.batches();
        let batch = |begins| u64::from(batches.at(begins)) * ranks;
        self.ledger.finish(owner, finished, batch);
        self.leased = true;
        Ok(())
    }

    /// A rank of a group that is done; the first one takes the group out of the view.
    pub(crate) fn leave(
        &mut self,
        caller: Caller,
        finished: &[u64],
        now_ms: u64,
    ) -> Result<(), Refused> {
        if !self.has_left(caller) {
            self.member(caller)?;
            self.finish((caller.group, caller.incarnation), finished)?;
            self.take_out(caller.group);
            self.gone(caller.group);
            self.advance(now_ms);
        }
        Ok(())
    }

    fn has_left(&self, caller: Caller) -> bool {
        self.groups.get(&caller.group).is_some_and(|group| {
            group.state == GroupState::Left && group.incarnation == caller.incarnation
        })
    }

    /// The group in this life, if it holds leases.
    fn living(&mut self, id: GroupId, given: Incarnation) -> Result<&mut Group, Refused> {
        self.check_rank(id, Rank(0))?;
        let group = self.groups.get_mut(&id).ok_or(Refusal::NotLive(id))?;
        let current = group.incarnation;
        if current != given {
            return Err(Refusal::StaleIncarnation {
                group: id,
                given,
                current,
            }
            .into());
        }
        if !group.holds_leases() {
            return Err(Refusal::NotLive(id).into());
        }
        Ok(group)
    }

    fn member(&mut self, caller: Caller) -> Result<&mut Member, Refused> {
        self.check_rank(caller.group, caller.rank)?;
        let group = self.living(caller.group, caller.incarnation)?;
        let member = group.members.get_mut(&caller.rank);
        member.ok_or_else(|| Refusal::NotLive(caller.group).into())
    }
}
