//! The coordinator's view of one run: who is in it, which life of whom may push, and when.
//!
//! A group goes Gathering → Joined (its former life is fenced) → Admitting → Live → Left or Dead.
//! Each arrow that shards must know about is a new generation, and the next step is taken only
//! when every server has acknowledged it (rule 2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tradewind_common::data::{Chunk, Chunking, LeaseRefused, Ledger};
use tradewind_common::lease::Lease;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank, ServerId};

mod advance;
mod group;

use self::group::Member;
pub use self::group::{Caller, Group, GroupRow, GroupState, Join};
use super::ReplyTo;
use super::answer::{Answer, Refused};
use super::refusal::Refusal;
use super::view::{Acknowledge, View};

/// Who creates the initial values, or that they exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No group has gathered yet.
    Forming,
    /// This incarnation creates; shards know it since this generation.
    Creating(GroupId, Incarnation, Generation),
    /// Every shard is complete; no creation is accepted any more (rule 6).
    Ready,
    /// The run cannot go on, and why.
    Failed(String),
}

/// One run.
#[derive(Debug)]
pub struct Run {
    spec: Arc<RunSpec>,
    placement: Placement,
    acknowledged: BTreeMap<ServerId, Option<Acknowledge>>,
    generation: Generation,
    phase: Phase,
    /// Whether clock 0 has been released.
    formed: bool,
    /// The generation that made the run ready.
    ready_at: Option<Generation>,
    since_ms: u64,
    groups: BTreeMap<GroupId, Group>,
    ledger: Ledger,
    /// Answers, and whether servers must be told the view.
    pub(super) replies: VecDeque<(ReplyTo, Result<Answer, Refused>)>,
    pub(super) view_changed: bool,
}

impl Run {
    /// A run that nobody has joined, placed on `servers`.
    pub fn new(
        spec: Arc<RunSpec>,
        placement: Placement,
        servers: &[ServerId],
        now_ms: u64,
    ) -> Self {
        let chunking = Chunking {
            epoch_samples: spec.epoch_samples,
            chunk_samples: spec.chunk_samples,
        };
        Self {
            spec,
            placement,
            acknowledged: servers.iter().map(|s| (*s, None)).collect(),
            generation: Generation(0),
            phase: Phase::Forming,
            formed: false,
            ready_at: None,
            since_ms: now_ms,
            groups: BTreeMap::new(),
            ledger: Ledger::new(chunking),
            replies: VecDeque::new(),
            view_changed: false,
        }
    }

    /// The specification that the first joiner brought.
    pub fn spec(&self) -> &Arc<RunSpec> {
        &self.spec
    }

    /// Which server owns each block.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Where the run stands.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The present generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Samples of finished chunks that filled no batch.
    pub fn samples_unused(&self) -> u64 {
        self.ledger.unused()
    }

    /// A rank joins; answered when its group is complete and fenced.
    pub fn join(&mut self, join: Join, to: ReplyTo, now_ms: u64) {
        if let Err(refused) = self.try_join(join, to, now_ms) {
            self.replies.push_back((to, Err(refused)));
        }
        self.advance(now_ms);
    }

    fn try_join(&mut self, join: Join, to: ReplyTo, now_ms: u64) -> Result<(), Refused> {
        let size = self.check_rank(join.group, join.rank)?;
        let fresh = |incarnation| Group {
            incarnation,
            state: GroupState::Gathering,
            start: Clock(0),
            store_address: String::new(),
            members: BTreeMap::new(),
        };
        let group = self
            .groups
            .entry(join.group)
            .or_insert_with(|| fresh(Incarnation(0)));
        if matches!(group.state, GroupState::Left | GroupState::Dead) {
            *group = fresh(group.incarnation);
        }
        let known = group
            .members
            .get(&join.rank)
            .is_some_and(|m| m.life == join.life);
        if group.state != GroupState::Gathering && !known {
            return Err(Refused::GroupRunning(join.group));
        }
        let member = group.members.entry(join.rank).or_insert_with(|| Member {
            life: join.life,
            lease: Lease::grant(now_ms, self.spec.lease_ms),
            clock: Clock(0),
            created: false,
            joining: None,
            awaiting: None,
        });
        member.life = join.life;
        if let Some(former) = member.joining.replace(to) {
            let refused = Refused::GroupRunning(join.group);
            self.replies.push_back((former, Err(refused)));
        }
        if join.rank == Rank(0) {
            group.store_address = join.store_address;
        }
        if group.state == GroupState::Gathering && group.members.len() == size as usize {
            group.incarnation = group.incarnation.next();
            for member in group.members.values_mut() {
                member.lease = Lease::grant(now_ms, self.spec.lease_ms);
            }
            group.state = GroupState::Joined(self.generation.next());
            self.change();
        }
        Ok(())
    }

    /// A rank asks to push; answered when it may, or when it shall create.
    pub fn await_ready(&mut self, caller: Caller, created: bool, to: ReplyTo, now_ms: u64) {
        let creates = matches!(self.phase, Phase::Creating(group, life, _)
            if (group, life) == (caller.group, caller.incarnation));
        match self.member(caller) {
            Ok(member) => {
                // Who was not told to create has created nothing: it may have to, later.
                member.created |= created && creates;
                let former = member.awaiting.replace(to);
                member.lease.renew(now_ms);
                let refused = Refused::GroupRunning(caller.group);
                let former = former.map(|former| (former, Err(refused)));
                self.replies.extend(former);
            }
            Err(refused) => self.replies.push_back((to, Err(refused))),
        }
        self.advance(now_ms);
    }

    /// Renews a rank's lease.
    pub fn heartbeat(
        &mut self,
        caller: Caller,
        clock: Clock,
        now_ms: u64,
    ) -> Result<Generation, Refused> {
        // A rank whose sibling has left first is not lost: the group is done.
        if self.has_left(caller) {
            return Ok(self.generation);
        }
        let member = self.member(caller)?;
        member.lease.renew(now_ms);
        member.clock = member.clock.max(clock);
        Ok(self.generation)
    }

    /// Leases a chunk of training data.
    pub fn lease_chunk(
        &mut self,
        (group, incarnation): (GroupId, Incarnation),
        finished: &[u64],
        holds: &[u64],
    ) -> Result<Chunk, Refused> {
        let size = self.check_rank(group, Rank(0))?;
        self.member(Caller {
            group,
            incarnation,
            rank: Rank(0),
        })?;
        self.ledger.check((group, incarnation), finished, holds)?;
        let batch = u64::from(self.spec.batch) * u64::from(size);
        self.ledger.finish((group, incarnation), finished, batch);
        self.ledger
            .lease((group, incarnation), holds)
            .map_err(|refused: LeaseRefused| refused.into())
    }

    /// A rank of a group that is done; the first one takes the group out of the view.
    pub fn leave(&mut self, caller: Caller, now_ms: u64) -> Result<(), Refused> {
        if !self.has_left(caller) {
            self.member(caller)?;
            self.remove(caller.group, GroupState::Left);
            self.advance(now_ms);
        }
        Ok(())
    }

    /// A server has followed a view, or its shard has become complete.
    pub fn acknowledge(&mut self, server: ServerId, acknowledge: Acknowledge, now_ms: u64) {
        // A shard that follows the ready run without its values has lost them (rule 6).
        let follows = self.ready_at.is_some_and(|at| acknowledge.generation >= at);
        if follows && !acknowledge.complete {
            self.fail(format!("server {server} came back without the run's state"));
        }
        if let Some(known) = self.acknowledged.get_mut(&server) {
            // Acknowledgements of one server may overtake each other; keep the most they say.
            let before = known.unwrap_or(acknowledge);
            *known = Some(Acknowledge {
                generation: acknowledge.generation.max(before.generation),
                clock_seen: acknowledge.clock_seen.max(before.clock_seen),
                complete: acknowledge.complete | before.complete,
            });
        }
        self.advance(now_ms);
    }

    /// Time has passed: leases run out, the start grace ends.
    pub fn tick(&mut self, now_ms: u64) {
        let expired = |group: &Group| group.members.values().any(|m| m.lease.expired(now_ms));
        let dead: Vec<GroupId> = self
            .groups
            .iter()
            .filter(|(_, g)| g.holds_leases() && expired(g))
            .map(|(id, _)| *id)
            .collect();
        for group in dead {
            self.remove(group, GroupState::Dead);
        }
        self.advance(now_ms);
    }

    /// The run cannot go on: every call is told why.
    pub fn fail(&mut self, reason: String) {
        let refused = Refused::Failed(reason.clone());
        for group in self.groups.values_mut() {
            for member in group.members.values_mut() {
                let waiting = member
                    .joining
                    .take()
                    .into_iter()
                    .chain(member.awaiting.take());
                self.replies
                    .extend(waiting.map(|to| (to, Err(refused.clone()))));
            }
        }
        self.phase = Phase::Failed(reason);
    }

    /// The present view.
    pub fn view(&self) -> View {
        let groups = || self.groups.iter();
        let live = groups()
            .filter(|(_, g)| matches!(g.state, GroupState::Live | GroupState::Admitting(_)));
        let joined = groups().filter(|(_, g)| matches!(g.state, GroupState::Joined(_)));
        View {
            generation: self.generation,
            live: live
                .map(|(id, g)| (*id, (g.incarnation, g.start)))
                .collect(),
            joined: joined.map(|(id, g)| (*id, g.incarnation)).collect(),
            creator: match &self.phase {
                Phase::Creating(group, life, _) => Some((*group, *life)),
                // Nobody: group 0 has no life 0.
                Phase::Forming | Phase::Failed(_) => Some((GroupId(0), Incarnation(0))),
                Phase::Ready => None,
            },
        }
    }

    /// The groups for the status page.
    pub fn rows(&self, now_ms: u64) -> Vec<GroupRow> {
        let row = |(id, group): (&GroupId, &Group)| GroupRow {
            group: *id,
            size: self.spec.group_sizes[id.0 as usize],
            incarnation: group.incarnation,
            state: group.state,
            clock: group
                .members
                .values()
                .map(|m| m.clock)
                .max()
                .unwrap_or_default(),
            lease_left_ms: if group.holds_leases() {
                let left = |m: &Member| m.lease.until_ms().saturating_sub(now_ms);
                group.members.values().map(left).min().unwrap_or(0)
            } else {
                0
            },
        };
        self.groups.iter().map(row).collect()
    }

    fn has_left(&self, caller: Caller) -> bool {
        self.groups.get(&caller.group).is_some_and(|group| {
            group.state == GroupState::Left && group.incarnation == caller.incarnation
        })
    }

    fn check_rank(&self, group: GroupId, rank: Rank) -> Result<u32, Refused> {
        if let Phase::Failed(reason) = &self.phase {
            return Err(Refused::Failed(reason.clone()));
        }
        let sizes = &self.spec.group_sizes;
        let last = GroupId(sizes.len() as u32 - 1);
        let size = *sizes
            .get(group.0 as usize)
            .ok_or(Refusal::UnknownGroup { group, last })?;
        if rank.0 >= size {
            return Err(Refusal::UnknownRank {
                group,
                rank,
                last: Rank(size - 1),
            }
            .into());
        }
        Ok(size)
    }

    fn member(&mut self, caller: Caller) -> Result<&mut Member, Refused> {
        self.check_rank(caller.group, caller.rank)?;
        let group = self.groups.get_mut(&caller.group);
        let group = group.ok_or(Refusal::NotLive(caller.group))?;
        if group.incarnation != caller.incarnation || group.state == GroupState::Gathering {
            let (given, current) = (caller.incarnation, group.incarnation);
            return Err(Refusal::StaleIncarnation {
                group: caller.group,
                given,
                current,
            }
            .into());
        }
        if !group.holds_leases() {
            return Err(Refusal::NotLive(caller.group).into());
        }
        let member = group.members.get_mut(&caller.rank);
        member.ok_or_else(|| Refusal::NotLive(caller.group).into())
    }

    fn change(&mut self) {
        self.generation = self.generation.next();
        self.view_changed = true;
    }

    fn remove(&mut self, id: GroupId, state: GroupState) {
        let group = self.groups.get_mut(&id).expect("a known group");
        group.state = state;
        for member in std::mem::take(&mut group.members).into_values() {
            let waiting = member.joining.into_iter().chain(member.awaiting);
            self.replies
                .extend(waiting.map(|to| (to, Err(Refusal::NotLive(id).into()))));
        }
        self.ledger.give_back(id);
        if matches!(self.phase, Phase::Creating(creator, ..) if creator == id) {
            self.phase = Phase::Forming;
        }
        self.change();
    }
}
