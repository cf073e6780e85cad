//! Frames that a primary takes in: contributions, pulls, creations.

use tradewind_common::holders::Role;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation};

use super::{Action, Answer, Output, Push, Shard, Taken};
use crate::ReplyTo;
use crate::askers::{Asker, Wants};
use crate::block::{Arrival, Arriving, Contribution};
use crate::log::Entry;
use crate::refusal::Refusal;

impl Shard {
    pub(super) fn push(&mut self, push: Push, to: ReplyTo, now_us: u64) -> Result<Taken, Refusal> {
        if !matches!(self.role, Some(Role::Primary(_))) {
            return Err(Refusal::NotPrimary(self.id));
        }
        let Push {
            group,
            incarnation,
            clock,
            block: id,
            wants,
            action,
        } = push;
        if !self.blocks.contains_key(&id) {
            return Err(Refusal::UnknownBlock(id));
        }
        let wants = match action {
            // A bare pull may come from nobody, who holds nothing.
            Action::Pull if incarnation == Incarnation(0) => match wants {
                Wants::Difference { .. } => Wants::Values,
                wants => wants,
            },
            _ => {
                self.check_incarnation(group, incarnation)?;
                wants
            }
        };
        let asker = Asker { to, wants };
        match action {
            Action::Pull if !self.view.ready() => Err(Refusal::NotReady),
            Action::Pull => {
                let told = self.tell(asker, id, (group, clock), Answer::Read);
                // Whoever pulls as nobody computes nothing.
                if told.is_ok() && incarnation != Incarnation(0) {
                    self.keep_sent(id, group, wants);
                }
                told
            }
            Action::Create(_) if self.view.creator != Some((group, incarnation)) => {
                Err(Refusal::NotCreator(group))
            }
            Action::Create(values) => self.create(asker, id, (group, clock), values),
            Action::Contribute(contribution) => {
                self.contribute(asker, id, (group, clock), contribution, now_us)
            }
        }
    }

    fn check_incarnation(&self, group: GroupId, given: Incarnation) -> Result<(), Refusal> {
        // Before the first view there are those of the specification.
        let groups = self.view.groups.max(self.spec.group_sizes.len() as u32);
        if group.0 >= groups {
            let last = GroupId(groups - 1);
            return Err(Refusal::UnknownGroup { group, last });
        }
        match self.view.incarnation(group) {
            Some(current) if current == given => Ok(()),
            Some(current) => Err(Refusal::StaleIncarnation {
                group,
                given,
                current,
            }),
            None => Err(Refusal::NotLive(group)),
        }
    }

    fn create(
        &mut self,
        asker: Asker,
        id: BlockId,
        of: (GroupId, Clock),
        values: Vec<f32>,
    ) -> Result<Taken, Refusal> {
        let block = self.blocks.get_mut(&id).expect("checked by the caller");
        if !block.create(values, &*self.optimizer)? {
            return self.tell(asker, id, of, Answer::Created);
        }
        self.uncreated -= 1;
        if !self.log.none() {
            let state = block.state().expect("it was created");
            self.log.append(Entry::State(state), &mut self.outputs);
        }
        if self.complete() {
            self.report();
        }
        let reply = self.reply(id, of, (Answer::Created, asker.wants), 0);
        self.answer(Output::Reply {
            to: asker.to,
            result: reply,
        });
        Ok(Taken::Answered)
    }

    fn contribute(
        &mut self,
        mut asker: Asker,
        id: BlockId,
        (group, clock): (GroupId, Clock),
        contribution: Contribution,
        now_us: u64,
    ) -> Result<Taken, Refusal> {
        let block = self.blocks.get_mut(&id).expect("checked by the caller");
        if !self.view.ready() || !block.created() {
            return Err(Refusal::NotReady);
        }
        // Either its group has values that were restored in place of these, or it says so only: the
        // coordinator alone deposes.
        if contribution
            .as_ref()
            .is_some_and(|gradient| gradient.lineage > self.lineage)
        {
            return Err(Refusal::NotPrimary(self.id));
        }
        if let (Some(gradient), Wants::Difference { holds }) = (&contribution, &mut asker.wants)
            && gradient.lineage != self.lineage
        {
            // What it holds has a version of another lineage, too.
            *holds = None;
        }
        let arrival = block.push(Arriving {
            group,
            clock,
            contribution,
            lineage: self.lineage,
            gap: self.consistency.leaves_behind(),
            asker,
            now_us,
        })?;
        self.clock_seen = self.clock_seen.max(Some(clock));
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
                self.tell(asker, id, (group, clock), Answer::Decided(decided, true))
            }
        }
    }
}
