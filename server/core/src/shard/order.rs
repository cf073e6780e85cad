//! What the coordinator tells a holder: membership, and what it is to the shard.

use tradewind_common::holders::{Holders, Role};
use tradewind_common::{Clock, Generation};

use super::{Output, Shard};
use crate::order::NotCaptured;
use crate::refusal::Refusal;
use crate::replica::{Outboxes, Position};
use crate::state::BlockState;
use crate::view::{Acknowledge, View};

impl Shard {
    /// Takes blocks over from a snapshot, in place of what is here, before the order is handled that
    /// makes this the heir in `lineage`. A block that is not among `states`, or is another there, has
    /// no value then.
    pub fn restore(&mut self, states: Vec<BlockState>, lineage: Generation) {
        self.close();
        self.momentum.begin_anew();
        self.explicit = None;
        self.blocks.values_mut().for_each(|block| block.forget());
        for state in states {
            if let Some(block) = self.blocks.get_mut(&state.id)
                && block.put(state, &*self.optimizer).is_ok()
            {
                let clock = block.clock_decided();
                self.clock_seen = self.clock_seen.max(clock);
            }
        }
        let blocks = self.blocks.values();
        self.uncreated = blocks.filter(|block| !block.created()).count();
        self.lineage = lineage;
    }

    /// Follows an order, unless it is older than the present one, and re-evaluates what waits.
    pub fn handle_order(&mut self, view: View, holders: &Holders, now_us: u64) -> Acknowledge {
        let role = holders.role(self.me);
        if view.generation > self.view.generation {
            let new = role != self.role;
            if new && matches!(self.role, Some(Role::Primary(_))) {
                self.close();
            }
            self.role = role;
            match role {
                Some(Role::Primary(since)) => {
                    self.lineage = holders.lineage;
                    if new {
                        self.log = Outboxes::new(since);
                        self.position = Position::start(since);
                    }
                    self.lead(&view, holders, new, now_us);
                }
                Some(Role::Copy(since)) => {
                    self.lineage = holders.lineage;
                    if let Some(primary) = holders.primary {
                        self.reach(primary.since, since);
                    }
                }
                // Records of former logs are refused from now on. What is here stays, of its lineage.
                Some(Role::Heir(since)) => self.position = Position::start(since),
                Some(Role::Candidate) | None => {}
            }
            self.view = view;
        }
        self.acknowledge()
    }

    /// Answers nothing any more: refuses all that wait, so that they ask the new primary.
    pub fn close(&mut self) {
        let waiting: Vec<_> = self
            .blocks
            .values_mut()
            .flat_map(|block| block.retire())
            .collect();
        for asker in waiting.into_iter().flat_map(|askers| askers.to) {
            self.refuse(asker.to, Refusal::NotPrimary(self.id));
        }
        self.timeouts_us.clear();
        self.drop_records(|_| true);
        let pending: Vec<_> = self.pending.drain().collect();
        for answer in pending {
            match answer {
                Output::Reply { to, .. } => self.refuse(to, Refusal::NotPrimary(self.id)),
                Output::Captured { number, .. } => self.not_captured(number, deposed()),
                Output::Report(_) | Output::Record { .. } | Output::Milestone { .. } => {}
            }
        }
        if let Some(capture) = self.capture.take() {
            self.not_captured(capture.number, deposed());
        }
        self.log = Outboxes::default();
        self.role = None;
    }

    /// As primary: has the groups of the view and the copies of the holders. A `new` one goes on
    /// where the former one was, or where a snapshot was.
    fn lead(&mut self, view: &View, holders: &Holders, new: bool, now_us: u64) {
        let created = || {
            let created = self.blocks.iter().filter(|(_, block)| block.created());
            created.map(|(id, _)| *id).collect()
        };
        let void = self.log.follow(&holders.copies, created);
        self.drop_records(|to| void.contains(&to));
        self.release();
        // Who was not heard since values were restored cannot be told from who was, once the
        // primary has changed again.
        let attaching = new && self.lineage > Generation(0);
        let earliest = self.clock_seen.map_or(Clock(0), Clock::tick);
        let blocks: Vec<_> = self.blocks.keys().copied().collect();
        for id in blocks {
            let block = self.blocks.get_mut(&id).expect("own block");
            if new {
                block.begin_answers();
            }
            for (group, askers) in block.follow(view, earliest, attaching) {
                for asker in askers.to {
                    self.refuse(asker.to, Refusal::NotLive(group));
                }
            }
            self.decide(id, now_us);
        }
        self.fill();
        if self.complete() {
            // What is answered now says it.
            self.log.look_full();
        }
    }

    pub(super) fn report(&mut self) {
        let seen = self.acknowledge();
        self.outputs.push_back(Output::Report(seen));
    }

    fn acknowledge(&self) -> Acknowledge {
        Acknowledge {
            generation: self.view.generation,
            clock_seen: self.clock_seen,
            complete: self.complete(),
            full: self.log.full(),
            stalled: self.log.stalled(),
        }
    }
}

fn deposed() -> NotCaptured {
    NotCaptured::Failed("another server answers for the shard now".into())
}
