//! Shard: blocks of one run that belong together, as one of their holders has them. The primary
//! answers for them, a copy follows it.

mod answers;
mod blocks;
mod copy;
mod counters;
mod holder;
mod order;
mod policies;
mod saves;
mod snapshot;
mod take;
mod timeouts;

use std::sync::Arc;

use tradewind_common::holders::Role;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Generation, GroupId, Layout, ServerId, ShardId};

use self::answers::Outgoing;
use self::blocks::ShardBlocks;
pub use self::counters::{Counters, DELAYS_MAX};
use self::holder::Holder;
use self::policies::{Deciding, ShardPolicies};
use self::saves::Saves;
use self::timeouts::Timeouts;
use super::ReplyTo;
use super::askers::{Asker, Askers, Wants};
use super::block::{Block, DecidedContribution};
use super::consistency::{Consistency, Decision};
use super::delay::Delay;
pub use super::frame::{Action, Answer, Output, Push, Reply};
use super::log::{Confirm, LogEntry};
use super::momentum::Momentum;
use super::refusal::Refusal;
use super::view::View;

/// One shard at one of its holders: the blocks, the view that is followed, and what is owed to
/// groups and to copies. It passes on to its parts what concerns them: each owns what it decides about.
pub struct Shard {
    spec: Arc<RunSpec>,
    policies: ShardPolicies,
    blocks: ShardBlocks,
    timeouts: Timeouts,
    holder: Holder,
    out: Outgoing,
    saves: Saves,
    counters: Counters,
}

/// What one frame or contribution is answered.
#[derive(Clone, Copy, Debug)]
struct Answering {
    block: BlockId,
    group: GroupId,
    clock: Clock,
    answer: Answer,
    wants: Wants,
    /// How long the policy held it back, microseconds.
    waited_us: u64,
}

impl Shard {
    /// A shard without values that holds `blocks` of `layout`, on server `me`. It is nobody's until
    /// the first order.
    pub fn new(
        me: ServerId,
        shard: ShardId,
        spec: Arc<RunSpec>,
        layout: &Layout,
        blocks: impl IntoIterator<Item = BlockId>,
    ) -> Self {
        Self {
            policies: ShardPolicies::from_spec(&spec),
            blocks: ShardBlocks::new(&spec, layout, blocks),
            spec,
            timeouts: Timeouts::default(),
            holder: Holder::new(me, shard),
            out: Outgoing::default(),
            saves: Saves::default(),
            counters: Counters::default(),
        }
    }

    /// The same shard, which has its blocks saved whenever so many more samples are applied; 0 for
    /// never.
    pub fn with_milestones(mut self, every_samples: u64) -> Self {
        self.saves.set_milestones(every_samples, self.blocks.len());
        self
    }

    /// The same shard, whose blocks keep at most so many contributions that wait, values as groups have them and
    /// former values, each; for tests.
    pub fn with_kept(mut self, most: usize) -> Self {
        self.blocks.keep(most);
        self
    }

    /// The same shard under another consistency policy; for tests that break a rule on purpose.
    pub fn with_consistency(mut self, consistency: Box<dyn Consistency>) -> Self {
        self.policies.set_consistency(consistency);
        self
    }

    /// The same shard under another staleness policy; for tests that break a rule on purpose.
    pub fn with_delay(mut self, delay: Box<dyn Delay>) -> Self {
        self.policies.set_delay(delay);
        self
    }

    /// The same shard under another momentum policy; for tests that break a rule on purpose.
    pub fn with_momentum(mut self, momentum: Box<dyn Momentum>) -> Self {
        self.policies.set_momentum(momentum);
        self
    }

    /// Takes a frame in. Its answer is polled out: at once, or when the policy lets it go and every
    /// copy has confirmed what it tells.
    pub fn handle_push(&mut self, push: Push, to: ReplyTo, now_us: u64) {
        let block = push.block;
        match self.push(push, to, now_us) {
            Ok(Taken::Answered) => {}
            Ok(Taken::Waits) => self.decide(block, now_us),
            Err(refusal) => self.refuse(to, refusal),
        }
    }

    /// Answers a frame that could not even be taken in.
    pub fn handle_malformed(&mut self, refusal: Refusal, to: ReplyTo) {
        self.refuse(to, refusal);
    }

    /// There is a new way to a copy: what it has not confirmed comes out again.
    pub fn handle_link(&mut self, copy: ServerId) {
        self.out.link(copy);
    }

    /// A copy has applied what it was sent up to some record.
    pub fn handle_confirm(&mut self, confirm: Confirm) {
        let blocks = &self.blocks;
        self.out.confirm(confirm, |id| blocks.state(id));
        if self.blocks.are_complete() && self.out.look_full() {
            self.report();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next, microseconds; it may be
    /// later.
    pub fn poll_timeout(&self) -> Option<u64> {
        let asked = self.timeouts.next_us();
        asked.into_iter().chain(self.out.next_look_us()).min()
    }

    /// Time has come to ask the policy again, or to look for copies that confirm nothing.
    pub fn handle_timeout(&mut self, now_us: u64) {
        let lease_us = self.spec.lease_ms.saturating_mul(1_000);
        let ready = self.holder.view().ready();
        if self.out.look_stalled(now_us, lease_us, ready) {
            self.report();
        }
        for id in self.timeouts.due(now_us) {
            self.decide(id, now_us);
        }
    }

    /// The next thing to do, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.poll()
    }

    /// The explicit momentum of the last update of parameters, where that is not the optimizer's own.
    pub fn momentum(&self) -> Option<f64> {
        self.policies.explicit()
    }

    /// What the shard counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The generation that the shard follows.
    pub fn generation(&self) -> Generation {
        self.holder.view().generation
    }

    /// What it follows of membership.
    pub fn view(&self) -> &View {
        self.holder.view()
    }

    /// What this server is to the shard; `None` before the first order, and after the last.
    pub fn role(&self) -> Option<Role> {
        self.holder.role()
    }

    /// When the values were last restored from a snapshot; 0 if they were created.
    pub fn lineage(&self) -> Generation {
        self.holder.lineage()
    }

    /// Records that copies have not confirmed.
    pub fn unconfirmed(&self) -> u64 {
        self.out.unconfirmed()
    }

    /// The blocks, in flat order.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter()
    }

    /// BLAKE3 over (block, version, values), little-endian, in block order.
    pub fn digest(&self) -> [u8; 32] {
        self.blocks.digest()
    }

    /// Lets the policy decide until it has to wait.
    fn decide(&mut self, id: BlockId, now_us: u64) {
        self.timeouts.clear(id);
        let blocks = self.blocks.parameters();
        let block = self.blocks.own(id);
        let mut outcomes = Vec::new();
        loop {
            let leaves_behind = self.policies.leaves_behind();
            self.saves.before_update(block, leaves_behind);
            let (groups, late) = match self.policies.decide(block, now_us) {
                Decision::Merge(groups) => (groups, false),
                Decision::LeaveOut(groups) => (groups, true),
                Decision::Wait => break,
                Decision::WaitUntil(at_us) => {
                    self.timeouts.set(id, at_us);
                    break;
                }
            };
            let before = block.samples_applied();
            let what = Deciding {
                groups: &groups,
                late,
                blocks,
            };
            let (update, decided) = self.policies.update(block, what, &self.spec);
            self.counters.updates += u64::from(update.applied.is_some());
            self.out.append(LogEntry::Update(update));
            for (samples, states) in self.saves.after_update(before, block) {
                self.out.push(Output::Milestone { samples, states });
            }
            outcomes.extend(decided);
        }
        let sent_away = self.make_room(id, now_us);
        for outcome in outcomes {
            self.tell_decided(id, outcome, now_us);
        }
        for asker in sent_away.into_iter().flat_map(|askers| askers.to) {
            self.refuse(asker.to, Refusal::Busy);
        }
        self.finish_capture();
    }

    /// While more contributions wait at a block than it keeps, those are gathered that are in the next update in
    /// any case, and then those sent away that would wait longest. What is next is never sent away.
    fn make_room(&mut self, id: BlockId, now_us: u64) -> Vec<Askers> {
        let block = self.blocks.own(id);
        let mut sent_away = Vec::new();
        while block.is_crowded() {
            if !self.policies.gather(block, &self.spec, now_us) {
                sent_away.extend(block.withdraw_furthest());
            }
        }
        sent_away
    }

    /// Whoever waits for a contribution is answered what was decided of it.
    fn tell_decided(&mut self, id: BlockId, outcome: DecidedContribution, now_us: u64) {
        self.counters.decided(&outcome);
        let waited_us = now_us.saturating_sub(outcome.askers.since_us);
        for Asker { to, wants } in outcome.askers.to {
            let result = self.reply(Answering {
                block: id,
                group: outcome.group,
                clock: outcome.decided.clock,
                answer: Answer::Decided(outcome.decided, false),
                wants,
                waited_us,
            });
            self.out.answer(Output::Reply { to, result });
        }
    }

    /// Answers with the current values what is asked again, or only for them. The copies are asked,
    /// too: they may have another primary by now.
    fn tell(&mut self, to: ReplyTo, answering: Answering) -> Result<Taken, Refusal> {
        if self.out.is_crowded() {
            return Err(Refusal::Busy);
        }
        let result = Ok(self.reply(answering)?);
        self.out.ask_and_answer(Output::Reply { to, result });
        Ok(Taken::Answered)
    }

    /// The values of an answer that leaves now are kept, where the staleness policy needs them.
    fn keep_sent(&mut self, id: BlockId, group: GroupId, wants: Wants) {
        if self.policies.keeps_sent(wants) {
            self.blocks.own(id).keep_sent(group);
        }
    }

    fn reply(&mut self, answering: Answering) -> Result<Reply, Refusal> {
        let Answering {
            block: id,
            group,
            clock,
            answer,
            wants,
            waited_us,
        } = answering;
        if matches!(answer, Answer::Decided(..)) {
            self.keep_sent(id, group, wants);
        }
        let block = self.blocks.own(id);
        let next = match self.policies.leaves_behind() {
            true => block.present_clock(),
            false => Clock(0),
        };
        Ok(Reply {
            block: id,
            clock,
            next,
            answer,
            version: block.version(),
            lag: block.lag(group),
            waited_us,
            samples_applied: block.samples_applied(),
            stop: block.samples_applied() >= self.spec.samples,
            lineage: self.holder.lineage(),
            length: block.length(),
            fresh: block.fresh(group, wants, self.spec.down)?,
        })
    }

    fn refuse(&mut self, to: ReplyTo, refusal: Refusal) {
        self.counters.refused += 1;
        self.out.push(Output::Reply {
            to,
            result: Err(refusal),
        });
    }
}

/// What became of a frame that was not refused.
enum Taken {
    /// Its answer is on its way, or waits for copies.
    Answered,
    /// It waits to be decided.
    Waits,
}
