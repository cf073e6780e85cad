//! What follows when something has happened to a run: groups form, values are created, the run is
//! ready, groups are admitted, callers answered. Each step is taken when its conditions are met,
//! whoever met them.

use tradewind_common::{Clock, Generation, GroupId, ShardId};

use super::group::{Group, GroupState};
use super::{Phase, Run};
use crate::answer::Answer;
use crate::event::{Event, EventKind};
use crate::output::Output;
use crate::view::Acknowledge;

impl Run {
    /// Takes every step whose conditions are met.
    pub(super) fn advance(&mut self, now_ms: u64) {
        if self.is_over() {
            return;
        }
        self.form(now_ms);
        self.choose_creator();
        self.advance_snapshots(now_ms);
        self.become_ready(now_ms);
        self.admit(now_ms);
        self.answer();
    }

    /// Time has passed: leases run out, graces end, snapshots are due.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.expire(now_ms);
        if self.settle_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.settle();
        }
        self.advance(now_ms);
    }

    /// Every group has had its say about the data that a former coordinator leased.
    pub(crate) fn settle(&mut self) {
        self.settle_at_ms = None;
        self.ledger.settle();
        self.leased = true;
    }

    fn choose_creator(&mut self) {
        if self.phase != Phase::Forming {
            return;
        }
        let joined = |(id, g): (&GroupId, &Group)| {
            matches!(g.state, GroupState::Joined(_)).then_some((*id, g.incarnation))
        };
        if let Some((group, life)) = self.groups.iter().find_map(joined) {
            self.change();
            self.phase = Phase::Creating(group, life, self.generation);
        }
    }

    /// Whether every holder of every shard has all its values.
    pub(super) fn created_everywhere(&self) -> bool {
        let complete = |shard, server| {
            let seen = self.acknowledged.get(&(shard, server));
            seen.is_some_and(|seen| seen.complete)
        };
        self.shards().all(|shard| {
            let mut servers = self.holders[shard.0 as usize].servers();
            self.primary(shard).is_some() && servers.all(|server| complete(shard, server))
        })
    }

    fn become_ready(&mut self, now_ms: u64) {
        let how = match self.phase {
            Phase::Creating(group, ..)
                if self.created_everywhere() && self.snapshots.first_taken() =>
            {
                format!("group {group} has created its values")
            }
            Phase::Restoring if self.restored_everywhere() => "it is resumed".into(),
            _ => return,
        };
        let text = format!("run {} is ready: {how}", self.name);
        self.tell(Event::new(EventKind::RunReady, text));
        self.phase = Phase::Ready;
        self.change();
        self.ready_at = Some(self.generation);
        self.snapshots
            .schedule(now_ms, self.spec.faults.snapshot_ms);
    }

    fn restored_everywhere(&self) -> bool {
        let complete = |shard| self.followed(shard).is_some_and(|seen| seen.complete);
        self.restoring.is_empty() && self.shards().all(complete)
    }

    /// Lets groups push whose former life every shard has fenced: all at once at the beginning,
    /// then each when it comes. They start one past the highest clock that any shard has seen.
    fn admit(&mut self, now_ms: u64) {
        if self.phase != Phase::Ready {
            return;
        }
        let joined = |group: &Group| matches!(group.state, GroupState::Joined(_));
        // Those that came on top are not waited for.
        let mut configured = (0..self.spec.group_sizes.len() as u32).map(GroupId);
        let everyone =
            configured.all(|id| self.drained.has(id) || self.groups.get(&id).is_some_and(joined));
        let grace_over = now_ms.saturating_sub(self.since_ms) >= self.spec.start_grace_ms;
        if !(self.formed || everyone || grace_over) {
            return;
        }
        let everywhere = self.followed_everywhere();
        let fenced: Vec<GroupId> = self
            .groups
            .iter()
            .filter(|(_, g)| matches!(g.state, GroupState::Joined(at) if Some(at) <= everywhere))
            .map(|(id, _)| *id)
            .collect();
        let joining = self.groups.values().filter(|group| joined(group)).count();
        if fenced.is_empty() || (!self.formed && fenced.len() < joining) {
            return;
        }
        let start = self.clock_seen.map_or(Clock(0), Clock::tick);
        self.formed = true;
        self.change();
        for id in fenced {
            let group = self.groups.get_mut(&id).expect("a known group");
            group.start = start;
            group.state = GroupState::Admitting(self.generation);
        }
    }

    fn answer(&mut self) {
        let everywhere = self.followed_everywhere();
        let followed = |at| everywhere.is_some_and(|everywhere| everywhere >= at);
        let creator = match self.phase {
            Phase::Creating(group, _, at) if followed(at) => Some(group),
            _ => None,
        };
        for (id, group) in &mut self.groups {
            if matches!(group.state, GroupState::Admitting(at) if followed(at)) {
                group.state = GroupState::Live;
                self.dirty = true;
            }
            let joined = match group.state {
                GroupState::Joined(at) => followed(at),
                state => matches!(state, GroupState::Admitting(_) | GroupState::Live),
            };
            let lowest = group.members.first_key_value();
            let store_address = lowest.map(|(_, member)| member.store_address.clone());
            let group_size = group.members.len() as u32;
            for (number, member) in group.members.values_mut().enumerate() {
                if joined && let Some(to) = member.joining.take() {
                    let answer = Answer::Joined {
                        incarnation: group.incarnation,
                        store_address: store_address.clone().unwrap_or_default(),
                        group_size,
                        group_rank: number as u32,
                        origin: self.origin,
                    };
                    self.outputs.push_back(Output::Reply(to, Ok(answer)));
                }
                let ready = if group.state == GroupState::Live {
                    Answer::Ready {
                        generation: self.generation,
                        start: group.start,
                    }
                } else if creator == Some(*id) && !member.created {
                    Answer::Create
                } else {
                    continue;
                };
                if let Some(to) = member.awaiting.take() {
                    self.outputs.push_back(Output::Reply(to, Ok(ready)));
                }
            }
        }
    }

    /// What the primary of a shard has said since it is one.
    pub(super) fn followed(&self, shard: ShardId) -> Option<&Acknowledge> {
        let primary = self.primary(shard)?;
        let seen = self.acknowledged.get(&(shard, primary.server))?;
        (seen.generation >= primary.since).then_some(seen)
    }

    /// The generation that every shard's primary follows, or a later one; `None` if one follows
    /// none, or a shard has no primary.
    fn followed_everywhere(&self) -> Option<Generation> {
        let generation = |shard| self.followed(shard).map(|seen| seen.generation);
        self.shards().map(generation).min().flatten()
    }
}
