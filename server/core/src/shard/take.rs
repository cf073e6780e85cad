//! Frames that a primary takes in: contributions, pulls, creations.

use tradewind_common::{BlockId, Clock, GroupId, Incarnation};

use super::{Action, Answer, Answering, Output, Push, Shard, Taken};
use crate::ReplyTo;
use crate::askers::{Asker, Wants};
use crate::block::{Arrival, Arriving, Contribution};
use crate::log::LogEntry;
use crate::refusal::Refusal;

/// A frame that may be taken in: who asks what about which block.
#[derive(Clone, Copy, Debug)]
struct Asked {
    block: BlockId,
    group: GroupId,
    clock: Clock,
    asker: Asker,
}

impl Asked {
    /// An answer to it that was not held back.
    fn answering(self, answer: Answer) -> Answering {
        Answering {
            block: self.block,
            group: self.group,
            clock: self.clock,
            answer,
            wants: self.asker.wants,
            waited_us: 0,
        }
    }
}

impl Shard {
    pub(super) fn push(&mut self, push: Push, to: ReplyTo, now_us: u64) -> Result<Taken, Refusal> {
        if !self.holder.is_primary() {
            return Err(Refusal::NotPrimary(self.holder.shard()));
        }
        let Push {
            group,
            incarnation,
            clock,
            block,
            wants,
            action,
        } = push;
        if !self.blocks.has(block) {
            return Err(Refusal::UnknownBlock(block));
        }
        let wants = match (&action, wants) {
            // A bare pull may come from nobody, who holds nothing.
            (Action::Pull, Wants::Difference { .. }) if incarnation == Incarnation(0) => {
                Wants::Values
            }
            (Action::Pull, wants) if incarnation == Incarnation(0) => wants,
            (Action::Pull | Action::Create(_) | Action::Contribute(_), wants) => {
                let configured = self.spec.group_sizes.len() as u32;
                self.holder.check(group, incarnation, configured)?;
                wants
            }
        };
        let asked = Asked {
            block,
            group,
            clock,
            asker: Asker { to, wants },
        };
        match action {
            Action::Pull => self.pull(asked, incarnation),
            Action::Create(_) if self.holder.view().creator != Some((group, incarnation)) => {
                Err(Refusal::NotCreator(group))
            }
            Action::Create(values) => self.create(asked, values),
            Action::Contribute(contribution) => self.contribute(asked, contribution, now_us),
        }
    }

    fn pull(&mut self, asked: Asked, incarnation: Incarnation) -> Result<Taken, Refusal> {
        if !self.holder.view().ready() {
            return Err(Refusal::NotReady);
        }
        let told = self.tell(asked.asker.to, asked.answering(Answer::Read));
        // Whoever pulls as nobody computes nothing.
        if told.is_ok() && incarnation != Incarnation(0) {
            self.keep_sent(asked.block, asked.group, asked.asker.wants);
        }
        told
    }

    fn create(&mut self, asked: Asked, values: Vec<f32>) -> Result<Taken, Refusal> {
        let (id, to) = (asked.block, asked.asker.to);
        let answering = asked.answering(Answer::Created);
        if !self.blocks.create(id, values, self.policies.optimizer())? {
            return self.tell(to, answering);
        }
        if !self.out.has_no_copies() {
            self.out.append(LogEntry::State(self.blocks.state(id)));
        }
        if self.blocks.are_complete() {
            self.report();
        }
        let result = self.reply(answering);
        self.out.answer(Output::Reply { to, result });
        Ok(Taken::Answered)
    }

    fn contribute(
        &mut self,
        asked: Asked,
        contribution: Contribution,
        now_us: u64,
    ) -> Result<Taken, Refusal> {
        let (id, lineage, mut asker) = (asked.block, self.lineage(), asked.asker);
        let block = self.blocks.own(id);
        if !self.holder.view().ready() || !block.created() {
            return Err(Refusal::NotReady);
        }
        // Either its group has values that were restored in place of these, or it says so only: the
        // coordinator alone deposes.
        if contribution
            .as_ref()
            .is_some_and(|gradient| gradient.lineage > lineage)
        {
            return Err(Refusal::NotPrimary(self.holder.shard()));
        }
        if let (Some(gradient), Wants::Difference { holds }) = (&contribution, &mut asker.wants)
            && gradient.lineage != lineage
        {
            // What it holds has a version of another lineage, too.
            *holds = None;
        }
        let arrival = block.push(Arriving {
            group: asked.group,
            clock: asked.clock,
            contribution,
            lineage,
            gap: self.policies.leaves_behind(),
            asker,
            now_us,
        })?;
        self.holder.see(Some(asked.clock));
        match arrival {
            Arrival::Waits {
                superseded,
                left_out,
            } => {
                self.counters.dropped += left_out;
                if let Some(stream) = superseded {
                    self.refuse(stream, Refusal::Superseded(id));
                }
                Ok(Taken::Waits)
            }
            Arrival::Repeat(decided) => {
                self.counters.duplicate += 1;
                let asked = Asked { asker, ..asked };
                self.tell(asker.to, asked.answering(Answer::Decided(decided, true)))
            }
        }
    }
}
