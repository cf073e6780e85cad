//! One group as the coordinator knows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank};

use super::calls::{Beat, Join};
use super::member::Member;
use super::outbox::Outbox;
use super::rows::GroupRow;
use crate::ReplyTo;
use crate::answer::Answer;
use crate::refusal::Refusal;
use crate::saved::SavedGroup;
use crate::view::Rights;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupState {
    /// Its ranks come together; it is out of the view.
    Gathering,
    /// They have; this generation fences the former life.
    Joined(Generation),
    /// This generation lets it push.
    Admitting(Generation),
    /// It may push.
    Live,
    /// It is done.
    Left,
}

/// What a group is told of its run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The generation that every shard's primary follows; `None` if one follows none.
    pub(super) followed: Option<Generation>,
    /// The group that shards let create.
    pub(super) creator: Option<GroupId>,
    /// Where the data of `sync` begin.
    pub(super) origin: (Clock, u64),
}

impl Standing {
    fn is_followed(&self, at: Generation) -> bool {
        self.followed.is_some_and(|followed| followed >= at)
    }
}

/// One group as the coordinator knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    incarnation: Incarnation,
    state: GroupState,
    start: Clock,
    /// Whether it has been together: ranks that are missing since then are not waited for as at the beginning.
    formed: bool,
    /// By rank as configured: those that are in it. Boxed, because a map has room for eleven at once, and many groups are of one.
    members: BTreeMap<Rank, Box<Member>>,
    /// When the first of those that gather came.
    #[serde(skip)]
    gathering_ms: u64,
    /// Steps a second of the fastest of its ranks, by its heartbeats; 0 while that is not known.
    #[serde(skip)]
    speed: f64,
    /// When its leases are to be looked at next, if it has any.
    #[serde(skip)]
    look_ms: Option<u64>,
}

impl Group {
    /// A group that nobody has joined after the life `incarnation`.
    pub(super) fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            state: GroupState::Gathering,
            start: Clock(0),
            formed: false,
            members: BTreeMap::new(),
            gathering_ms: 0,
            speed: 0.0,
            look_ms: None,
        }
    }

    /// As it is written down: joins that wait are made again at a successor.
    pub(super) fn to_write(&self) -> Self {
        match self.state {
            GroupState::Gathering => Self {
                members: BTreeMap::new(),
                ..self.clone()
            },
            GroupState::Joined(_)
            | GroupState::Admitting(_)
            | GroupState::Live
            | GroupState::Left => self.clone(),
        }
    }

    /// Goes on for a former coordinator: every rank has one lease to show up.
    pub(super) fn recover(&mut self, now_ms: u64, lease_ms: u64) {
        if self.state == GroupState::Gathering {
            // Their joins were lost with the coordinator that they waited for.
            self.members.clear();
        }
        for member in self.members.values_mut() {
            member.grant(now_ms, lease_ms);
        }
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(super) fn state(&self) -> GroupState {
        self.state
    }

    /// Its first clock in this life, once it is admitted.
    pub(super) fn start(&self) -> Clock {
        self.start
    }

    /// How many ranks are in it.
    pub(super) fn ranks(&self) -> usize {
        self.members.len()
    }

    /// Whether it is in the view.
    pub(super) fn holds_leases(&self) -> bool {
        match self.state {
            GroupState::Joined(_) | GroupState::Admitting(_) | GroupState::Live => true,
            GroupState::Gathering | GroupState::Left => false,
        }
    }

    /// Whether it may push, or is about to be told so.
    pub(super) fn is_admitted(&self) -> bool {
        matches!(self.state, GroupState::Admitting(_) | GroupState::Live)
    }

    /// What it is in the view.
    pub(super) fn rights(&self) -> Rights {
        match self.state {
            GroupState::Joined(_) => Rights::Joined(self.incarnation),
            GroupState::Admitting(_) | GroupState::Live => {
                Rights::Live(self.incarnation, self.start)
            }
            GroupState::Gathering | GroupState::Left => Rights::Out,
        }
    }

    /// The generation that fences its former life, while it may not push yet.
    pub(super) fn joined_at(&self) -> Option<Generation> {
        match self.state {
            GroupState::Joined(at) => Some(at),
            GroupState::Gathering
            | GroupState::Admitting(_)
            | GroupState::Live
            | GroupState::Left => None,
        }
    }

    /// Whether somebody is in it, or waits there for the others.
    pub(super) fn is_there(&self) -> bool {
        self.state != GroupState::Left && !self.members.is_empty()
    }

    /// Whether ranks wait there for others.
    pub(super) fn gathers(&self) -> bool {
        self.state == GroupState::Gathering && !self.members.is_empty()
    }

    /// Its clock, by its heartbeats.
    pub(super) fn clock(&self) -> Clock {
        let clocks = self.members.values().map(|member| member.clock());
        clocks.max().unwrap_or_default()
    }

    /// Steps a second, by its heartbeats; 0 while that is not known.
    pub(super) fn speed(&self) -> f64 {
        self.speed
    }

    /// A rank of it is alive.
    pub(super) fn beat(&mut self, rank: Rank, beat: Beat, now_ms: u64) {
        let Some(member) = self.members.get_mut(&rank) else {
            return;
        };
        let before = member.steps_per_second();
        member.beat(beat, now_ms);
        if beat.steps_per_second >= self.speed {
            self.speed = beat.steps_per_second;
        } else if before >= self.speed {
            // It was the fastest.
            let speeds = self
                .members
                .values()
                .map(|member| member.steps_per_second());
            self.speed = speeds.fold(0.0, f64::max);
        }
    }

    /// When its leases are to be looked at next, if it has any.
    pub(super) fn look_ms(&self) -> Option<u64> {
        self.look_ms
    }

    /// Sets that to when the first of them runs out, by what is known now, but after now; `None` if it has
    /// none.
    pub(super) fn look_again(&mut self, now_ms: u64) -> Option<u64> {
        let until = self
            .members
            .values()
            .map(|member| member.lease_until_ms())
            .min();
        let until = until.filter(|_| self.holds_leases());
        self.look_ms = until.map(|at_ms| at_ms.max(now_ms + 1));
        self.look_ms
    }

    pub(super) fn saved(&self) -> SavedGroup {
        SavedGroup {
            incarnation: self.incarnation,
            clock: self.clock(),
        }
    }

    /// The process of a rank that is in it.
    pub(super) fn life(&self, rank: Rank) -> Option<u64> {
        self.members.get(&rank).map(|member| member.life())
    }

    /// Whether a rank knows that it has joined.
    pub(super) fn has_entered(&self, rank: Rank) -> bool {
        self.members
            .get(&rank)
            .is_some_and(|member| member.has_entered())
    }

    /// The rank, if it has joined as this process and has not heard of it.
    pub(super) fn asks_again(&mut self, rank: Rank, life: u64) -> Option<&mut Member> {
        let member = self.holds_leases().then(|| self.member(rank)).flatten();
        member.filter(|member| member.asks_again(life))
    }

    /// Until when those that gather wait for others.
    pub(super) fn gathers_until_ms(&self, spec: &RunSpec) -> u64 {
        let grace_ms = match self.formed {
            true => spec.faults.reform_grace_ms,
            false => spec.start_grace_ms,
        };
        self.gathering_ms.saturating_add(grace_ms)
    }

    /// A rank waits for the others; answers who waited for it before.
    pub(super) fn enter(&mut self, join: Join, to: ReplyTo, now_ms: u64) -> Option<ReplyTo> {
        if self.members.is_empty() {
            self.gathering_ms = now_ms;
        }
        let fresh = || Box::new(Member::new(join.life));
        let member = self.members.entry(join.rank).or_insert_with(fresh);
        member.is_process(join.life, join.store_address);
        member.wait_to_join(to)
    }

    /// Whether all `size` ranks are there, or have waited long enough.
    pub(super) fn is_together(&self, size: usize, spec: &RunSpec, now_ms: u64) -> bool {
        self.members.len() >= size || now_ms >= self.gathers_until_ms(spec)
    }

    /// Begins its next life, which `at` fences.
    pub(super) fn form(&mut self, at: Generation, spec: &RunSpec, now_ms: u64) {
        self.incarnation = self.incarnation.next();
        self.formed = true;
        self.state = GroupState::Joined(at);
        for member in self.members.values_mut() {
            member.grant(now_ms, spec.lease_ms);
        }
    }

    /// The generation `at` lets it push, from this clock on.
    pub(super) fn admit(&mut self, start: Clock, at: Generation) {
        self.start = start;
        self.state = GroupState::Admitting(at);
    }

    /// All ranks are out; answers who waited.
    pub(super) fn take_out(&mut self) -> Vec<ReplyTo> {
        self.speed = 0.0;
        let mut members = std::mem::take(&mut self.members);
        let members = members.values_mut();
        members.flat_map(|member| member.take_waiting()).collect()
    }

    /// Who waits for an answer.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = ReplyTo> + '_ {
        self.members
            .values_mut()
            .flat_map(|member| member.take_waiting())
    }

    /// It is out of the view until its ranks have joined anew.
    pub(super) fn gather(&mut self) {
        self.state = GroupState::Gathering;
    }

    /// Its present life is over for whoever is left of it.
    pub(super) fn end_life(&mut self) {
        self.incarnation = self.incarnation.next();
    }

    /// It is done.
    pub(super) fn leave(&mut self) {
        self.state = GroupState::Left;
    }

    /// What it is when somebody comes to it after it has left.
    pub(super) fn begun_again(&self) -> Self {
        Self {
            formed: self.formed,
            ..Self::new(self.incarnation)
        }
    }

    /// Whether it is done in this life.
    pub(super) fn has_left(&self, incarnation: Incarnation) -> bool {
        self.state == GroupState::Left && self.incarnation == incarnation
    }

    /// Refuses another life than its present one, and any while it holds no leases.
    pub(super) fn check(&self, id: GroupId, given: Incarnation) -> Result<(), Refusal> {
        let current = self.incarnation;
        if current != given {
            return Err(Refusal::StaleIncarnation {
                group: id,
                given,
                current,
            });
        }
        match self.holds_leases() {
            true => Ok(()),
            false => Err(Refusal::NotLive(id)),
        }
    }

    pub(super) fn member(&mut self, rank: Rank) -> Option<&mut Member> {
        self.members.get_mut(&rank).map(|member| &mut **member)
    }

    pub(super) fn forgive(&mut self, gap_ms: u64) {
        let members = self.members.values_mut();
        members.for_each(|member| member.forgive(gap_ms));
    }

    /// Ranks whose leases have run out, and their processes.
    pub(super) fn expired(&self, now_ms: u64) -> impl Iterator<Item = (Rank, u64)> + '_ {
        let holding = self.holds_leases();
        let members = self.members.iter().filter(move |_| holding);
        let expired = members.filter(move |(_, member)| member.is_expired(now_ms));
        expired.map(|(rank, member)| (*rank, member.life()))
    }

    /// Every shard knows that it may push.
    pub(super) fn is_known(&mut self) {
        self.state = GroupState::Live;
    }

    /// Whether ranks wait there to hear that they have joined.
    pub(super) fn has_joining(&self) -> bool {
        self.members.values().any(|member| member.is_joining())
    }

    /// Answers those who wait for what is so by now.
    pub(super) fn answer(&mut self, id: GroupId, standing: Standing, out: &mut Outbox) {
        let joined = match self.state {
            GroupState::Joined(at) => standing.is_followed(at),
            GroupState::Admitting(_) | GroupState::Live => true,
            GroupState::Gathering | GroupState::Left => false,
        };
        let lowest = self.members.first_key_value();
        let store_address = lowest.map(|(_, member)| member.store_address().to_owned());
        let group_size = self.members.len() as u32;
        for (number, member) in self.members.values_mut().enumerate() {
            if joined && let Some(to) = member.take_joining() {
                let answer = Answer::Joined {
                    incarnation: self.incarnation,
                    store_address: store_address.clone().unwrap_or_default(),
                    group_size,
                    group_rank: number as u32,
                    origin: standing.origin,
                };
                out.reply(to, Ok(answer));
            }
            let ready = if self.state == GroupState::Live {
                Answer::Ready {
                    generation: out.generation(),
                    start: self.start,
                }
            } else if standing.creator == Some(id) && !member.has_created() {
                Answer::Create
            } else {
                continue;
            };
            if let Some(to) = member.take_awaiting() {
                out.reply(to, Ok(ready));
            }
        }
    }

    /// For the status page: group `group`, of `size` ranks as configured.
    pub(super) fn row(&self, group: GroupId, size: u32, draining: bool, now_ms: u64) -> GroupRow {
        let left = |member: &Member| match self.holds_leases() {
            true => member.lease_left_ms(now_ms),
            false => 0,
        };
        GroupRow {
            group,
            size,
            incarnation: self.incarnation,
            state: self.state,
            clock: self.clock(),
            lease_left_ms: self
                .members
                .values()
                .map(|member| left(member))
                .min()
                .unwrap_or(0),
            ranks: (self.members.iter())
                .map(|(rank, member)| member.row(*rank, left(member)))
                .collect(),
            draining,
        }
    }
}
