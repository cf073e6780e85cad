//! What follows when something has happened to a run: creation, readiness, admission, answers. Each
//! step is taken when its conditions are met, whoever met them.

use tradewind_common::{Clock, Generation, GroupId};

use super::group::{Group, GroupState};
use super::{Phase, Run};
use crate::core::answer::Answer;
use crate::core::view::Acknowledge;

impl Run {
    /// Takes every step whose conditions are met.
    pub(super) fn advance(&mut self, now_ms: u64) {
        self.choose_creator();
        self.finish_creation();
        self.admit(now_ms);
        self.answer();
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

    fn finish_creation(&mut self) {
        let complete = self
            .acknowledged
            .values()
            .all(|a| a.is_some_and(|a| a.complete));
        if complete && matches!(self.phase, Phase::Creating(..)) {
            self.phase = Phase::Ready;
            self.change();
            self.ready_at = Some(self.generation);
        }
    }

    /// Lets groups push whose former life every shard has fenced: all at once at the beginning,
    /// then each when it comes. They start one past the highest clock that any shard has seen.
    fn admit(&mut self, now_ms: u64) {
        if self.phase != Phase::Ready {
            return;
        }
        let everyone = self.groups.len() == self.spec.group_sizes.len()
            && self
                .groups
                .values()
                .all(|g| matches!(g.state, GroupState::Joined(_)));
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
        let joining = self
            .groups
            .values()
            .filter(|g| matches!(g.state, GroupState::Joined(_)));
        if fenced.is_empty() || (!self.formed && fenced.len() < joining.count()) {
            return;
        }
        let seen = self
            .acknowledged
            .values()
            .filter_map(|a| a.and_then(|a| a.clock_seen))
            .max();
        self.formed = true;
        self.change();
        for id in fenced {
            let group = self.groups.get_mut(&id).expect("a known group");
            group.start = seen.map_or(Clock(0), Clock::tick);
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
            }
            let joined = match group.state {
                GroupState::Joined(at) => followed(at),
                state => matches!(state, GroupState::Admitting(_) | GroupState::Live),
            };
            for member in group.members.values_mut() {
                if joined && let Some(to) = member.joining.take() {
                    let answer = Answer::Joined {
                        incarnation: group.incarnation,
                        store_address: group.store_address.clone(),
                    };
                    self.replies.push_back((to, Ok(answer)));
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
                self.replies
                    .extend(member.awaiting.take().map(|to| (to, Ok(ready))));
            }
        }
    }

    /// The generation that every server follows, or a later one; `None` if one follows none.
    fn followed_everywhere(&self) -> Option<Generation> {
        let generation = |a: &Option<Acknowledge>| a.map(|a| a.generation);
        self.acknowledged.values().map(generation).min().flatten()
    }
}
