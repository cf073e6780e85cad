//! What the coordinator tells a holder: membership, and what it is to the shard.

use tradewind_common::Generation;
use tradewind_common::holders::{Holders, Role};

use super::{Output, Shard};
use crate::order::NotCaptured;
use crate::refusal::Refusal;
use crate::state::BlockState;
use crate::view::{Acknowledge, Behind, OrderedView, View, ViewChange};

impl Shard {
    /// Takes blocks over from a snapshot, in place of what is here, before the order is handled that
    /// makes this the heir in `lineage`. A block that is not among `states`, or is another there, has
    /// no value then.
    pub fn restore(&mut self, states: Vec<BlockState>, lineage: Generation) {
        self.close();
        self.policies.begin_anew();
        self.blocks.restore(states, self.policies.optimizer());
        self.holder.see(self.blocks.clock_decided());
        self.holder.set_lineage(lineage);
    }

    /// Follows an order that says all of a view, unless it is older than the present one, and re-evaluates
    /// what waits.
    pub fn handle_order(&mut self, view: View, holders: &Holders, now_us: u64) -> Acknowledge {
        let change = self.holder.view().change_to(&view);
        self.follow(&change, holders, now_us)
    }

    /// The same for what an order says, whichever it is. What has changed costs as much as groups have changed.
    ///
    /// # Errors
    /// If it goes on from a view that is not here. Nothing is changed then: all of the view has to be said.
    pub fn handle_ordered(
        &mut self,
        told: OrderedView,
        holders: &Holders,
        now_us: u64,
    ) -> Result<Acknowledge, Behind> {
        match told {
            OrderedView::Whole(view) => Ok(self.handle_order(view, holders, now_us)),
            OrderedView::Since(change) => {
                change.check(self.generation())?;
                Ok(self.follow(&change, holders, now_us))
            }
        }
    }

    fn follow(&mut self, change: &ViewChange, holders: &Holders, now_us: u64) -> Acknowledge {
        let role = self.holder.role_in(holders);
        if change.generation > self.generation() {
            self.holder.change_view(change);
            let new = role != self.role();
            if new && self.holder.is_primary() {
                self.close();
            }
            self.holder.set_role(role);
            match role {
                Some(Role::Primary(since)) => {
                    self.holder.set_lineage(holders.lineage);
                    if new {
                        self.out.begin_log(since);
                        self.holder.begin_log(since);
                    }
                    self.lead(change, holders, new, now_us);
                }
                Some(Role::Copy(since)) => {
                    self.holder.set_lineage(holders.lineage);
                    // In a new log every block is sent anew, and what was here means nothing.
                    if let Some(primary) = holders.primary
                        && self.holder.reach(primary.since, since)
                    {
                        self.blocks.forget();
                    }
                }
                // Records of former logs are refused from now on. What is here stays, of its lineage.
                Some(Role::Heir(since)) => self.holder.begin_log(since),
                Some(Role::Candidate) | None => {}
            }
        }
        self.acknowledge()
    }

    /// Answers nothing any more: refuses all that wait, so that they ask the new primary.
    pub fn close(&mut self) {
        let not_primary = Refusal::NotPrimary(self.holder.shard());
        let waiting = self.blocks.retire();
        for asker in waiting.into_iter().flat_map(|askers| askers.to) {
            self.refuse(asker.to, not_primary.clone());
        }
        self.timeouts.clear_all();
        for answer in self.out.close() {
            match answer {
                Output::Reply { to, .. } => self.refuse(to, not_primary.clone()),
                Output::Captured { number, .. } => self.not_captured(number, deposed()),
                Output::Report(_) | Output::Record { .. } | Output::Milestone { .. } => {}
            }
        }
        if let Some(number) = self.saves.give_up() {
            self.not_captured(number, deposed());
        }
        self.holder.set_role(None);
    }

    /// As primary: has the groups of the view and the copies of the holders. A `new` one, whose blocks know
    /// nobody, goes on where the former one was, or where a snapshot was.
    fn lead(&mut self, change: &ViewChange, holders: &Holders, new: bool, now_us: u64) {
        let all = new.then(|| View::default().change_to(self.holder.view()));
        let change = all.as_ref().unwrap_or(change);
        let blocks = &self.blocks;
        self.out.follow(&holders.copies, || blocks.created());
        // Who was not heard since values were restored cannot be told from who was, once the
        // primary has changed again.
        let attaching = new && self.lineage() > Generation(0);
        let earliest = self.holder.next_clock();
        for id in self.blocks.ids() {
            let block = self.blocks.own(id);
            if new {
                block.begin_answers();
            }
            for (group, askers) in block.follow(change, earliest, attaching) {
                for asker in askers.to {
                    self.refuse(asker.to, Refusal::NotLive(group));
                }
            }
            self.decide(id, now_us);
        }
        let blocks = &self.blocks;
        self.out.fill(|id| blocks.state(id));
        if self.blocks.are_complete() {
            // What is answered now says it.
            self.out.look_full();
        }
    }

    pub(super) fn report(&mut self) {
        let seen = self.acknowledge();
        self.out.push(Output::Report(seen));
    }

    fn acknowledge(&self) -> Acknowledge {
        Acknowledge {
            generation: self.generation(),
            clock_seen: self.holder.clock_seen(),
            complete: self.blocks.are_complete(),
            full: self.out.full(),
            stalled: self.out.stalled(),
        }
    }
}

fn deposed() -> NotCaptured {
    NotCaptured::Failed("another server answers for the shard now".into())
}
