//! Shard: blocks of one run that belong together, as one of their holders has them. The primary
//! answers for them, a copy follows it.

mod answers;
mod copy;
mod counters;
mod order;
mod snapshot;
mod take;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tradewind_common::holders::Role;
use tradewind_common::pieces::Cut;
use tradewind_common::spec::RunSpec;
use tradewind_common::{
    BlockId, Clock, Generation, GroupId, Layout, ServerId, ShardId, TensorKind,
};

pub use self::counters::{Counters, DELAYS_MAX};
use super::ReplyTo;
use super::askers::{Asker, Wants};
use super::block::{Block, Steered, Terms};
use super::capture::Capture;
use super::consistency::{self, Consistency, Decision};
use super::delay::{self, Delay};
pub use super::frame::{Action, Answer, Output, Push, Reply};
use super::log::Entry;
use super::milestones::Milestones;
use super::momentum::{self, Momentum};
use super::optimizer::{self, Optimizer};
use super::pending::Pending;
use super::refusal::Refusal;
use super::replica::{Outboxes, Position};
use super::view::View;

/// One shard at one of its holders: the blocks, the view that is followed, and what is owed to
/// groups and to copies.
pub struct Shard {
    me: ServerId,
    id: ShardId,
    spec: Arc<RunSpec>,
    consistency: Box<dyn Consistency>,
    delay: Box<dyn Delay>,
    momentum: Box<dyn Momentum>,
    /// Of the last update of parameters, where it is not the optimizer's own.
    explicit: Option<f64>,
    optimizer: Box<dyn Optimizer>,
    blocks: BTreeMap<BlockId, Block>,
    /// How many of them are of parameters, and how many have no value yet.
    parameter_blocks: usize,
    uncreated: usize,
    /// When the policy wants to be asked again about a block, microseconds.
    timeouts_us: BTreeMap<BlockId, u64>,
    view: View,
    /// What this server is to the shard in that view.
    role: Option<Role>,
    /// When the values were last restored.
    lineage: Generation,
    clock_seen: Option<Clock>,
    /// As a copy.
    position: Position,
    /// As the primary.
    log: Outboxes,
    pending: Pending,
    capture: Option<Capture>,
    milestones: Milestones,
    counters: Counters,
    /// When it is looked next whether copies still confirm, microseconds.
    look_us: u64,
    outputs: VecDeque<Output>,
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
        let cut = Cut::of(&spec);
        let blocks = blocks.into_iter().filter_map(|id| layout.block(id));
        let blocks: BTreeMap<_, _> = blocks
            .map(|b| (b.id, Block::new(b.id, b.kind, cut.pieces(layout, b))))
            .collect();
        let of_parameters = |block: &&Block| block.kind() == TensorKind::Parameter;
        let parameter_blocks = blocks.values().filter(of_parameters).count();
        Self {
            me,
            id: shard,
            consistency: consistency::from_spec(&spec),
            delay: delay::from_spec(spec.policies.staleness),
            momentum: momentum::from_spec(&spec),
            explicit: None,
            optimizer: optimizer::from_spec(spec.optimizer),
            spec,
            uncreated: blocks.len(),
            parameter_blocks,
            blocks,
            timeouts_us: BTreeMap::new(),
            view: View::default(),
            role: None,
            lineage: Generation::default(),
            clock_seen: None,
            position: Position::default(),
            log: Outboxes::default(),
            pending: Pending::default(),
            capture: None,
            milestones: Milestones::default(),
            counters: Counters::default(),
            look_us: 0,
            outputs: VecDeque::new(),
        }
    }

    /// The same shard, which has its blocks saved whenever so many more samples are applied; 0 for
    /// never.
    pub fn with_milestones(mut self, every_samples: u64) -> Self {
        self.milestones = Milestones::new(every_samples, self.blocks.len());
        self
    }

    /// The same shard under another consistency policy; for tests that break a rule on purpose.
    pub fn with_consistency(mut self, consistency: Box<dyn Consistency>) -> Self {
        self.consistency = consistency;
        self
    }

    /// The same shard under another staleness policy; for tests that break a rule on purpose.
    pub fn with_delay(mut self, delay: Box<dyn Delay>) -> Self {
        self.delay = delay;
        self
    }

    /// The same shard under another momentum policy; for tests that break a rule on purpose.
    pub fn with_momentum(mut self, momentum: Box<dyn Momentum>) -> Self {
        self.momentum = momentum;
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

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next, microseconds; it may be
    /// later.
    pub fn poll_timeout(&self) -> Option<u64> {
        let asked = self.timeouts_us.values().min().copied();
        let look = (!self.log.none()).then_some(self.look_us);
        asked.into_iter().chain(look).min()
    }

    /// Time has come to ask the policy again, or to look for copies that confirm nothing.
    pub fn handle_timeout(&mut self, now_us: u64) {
        self.look_for_stalled(now_us);
        let due = self
            .timeouts_us
            .iter()
            .filter(|(_, at_us)| **at_us <= now_us);
        let due: Vec<BlockId> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.decide(id, now_us);
        }
    }

    /// The next thing to do, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The explicit momentum of the last update of parameters, where that is not the optimizer's own.
    pub fn momentum(&self) -> Option<f64> {
        self.explicit
    }

    /// What the shard counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The generation that the shard follows.
    pub fn generation(&self) -> Generation {
        self.view.generation
    }

    /// What this server is to the shard; `None` before the first order, and after the last.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    /// When the values were last restored from a snapshot; 0 if they were created.
    pub fn lineage(&self) -> Generation {
        self.lineage
    }

    /// Records that copies have not confirmed.
    pub fn unconfirmed(&self) -> u64 {
        self.log.unconfirmed()
    }

    /// The blocks, in flat order.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter().map(|(id, block)| (*id, block))
    }

    /// BLAKE3 over (block, version, values), little-endian, in block order.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (id, block) in &self.blocks {
            hasher.update(&id.0.to_le_bytes());
            hasher.update(&block.version().to_le_bytes());
            hasher.update(bytemuck::cast_slice(block.values().unwrap_or_default()));
        }
        *hasher.finalize().as_bytes()
    }

    /// Lets the policy decide until it has to wait.
    fn decide(&mut self, id: BlockId, now_us: u64) {
        let terms = Terms {
            optimizer: &*self.optimizer,
            schedule: &self.spec.schedule,
            budget: self.spec.samples,
            averages: self.consistency.averages(),
            weights: self.spec.policies.weights,
            delay: &*self.delay,
        };
        let block = self.blocks.get_mut(&id).expect("own block");
        self.timeouts_us.remove(&id);
        let mut outcomes = Vec::new();
        loop {
            if let Some(capture) = &mut self.capture {
                capture.look(block, self.consistency.leaves_behind());
            }
            // A clock that is averaged is made with everybody, or not: what was under way when values
            // were lost is left out. But where groups may be left behind, one that is silent here
            // may wait elsewhere for one that waits here.
            let everybody = terms.averages && !self.consistency.leaves_behind();
            let (standing, interrupted) = if everybody {
                (block.standing(), block.interrupted())
            } else {
                (block.heard(), Vec::new())
            };
            let decision = if interrupted.is_empty() {
                self.consistency.decide(&block.scene(&standing, now_us))
            } else {
                Decision::LeaveOut(interrupted)
            };
            let (groups, late) = match decision {
                Decision::Merge(groups) => (groups, false),
                Decision::LeaveOut(groups) => (groups, true),
                Decision::Wait => break,
                Decision::WaitUntil(at_us) => {
                    self.timeouts_us.insert(id, at_us);
                    break;
                }
            };
            let before = block.samples_applied();
            let steered = Steered {
                momentum: &mut *self.momentum,
                blocks: self.parameter_blocks,
            };
            let (update, decided) = block.update(&groups, terms, steered, late);
            self.counters.updates += u64::from(update.applied.is_some());
            let momentum = update.applied.as_ref().and_then(|applied| applied.momentum);
            self.explicit = momentum.or(self.explicit);
            self.log.append(Entry::Update(update), &mut self.outputs);
            for (samples, states) in self.milestones.look(before, block) {
                self.outputs
                    .push_back(Output::Milestone { samples, states });
            }
            outcomes.extend(decided);
        }
        for outcome in outcomes {
            self.counters.decided(&outcome);
            let waited_us = now_us.saturating_sub(outcome.askers.since_us);
            let (of, answer) = (
                (outcome.group, outcome.decided.clock),
                Answer::Decided(outcome.decided, false),
            );
            for Asker { to, wants } in outcome.askers.to {
                let result = self.reply(id, of, (answer, wants), waited_us);
                self.answer(Output::Reply { to, result });
            }
        }
        self.finish_capture();
    }

    /// The values of an answer that leaves now are kept, where the staleness policy needs them.
    fn keep_sent(&mut self, id: BlockId, group: GroupId, wants: Wants) {
        if self.delay.compensates() && wants != Wants::Nothing {
            self.blocks
                .get_mut(&id)
                .expect("own block")
                .keep_sent(group);
        }
    }

    fn reply(
        &mut self,
        id: BlockId,
        (group, clock): (GroupId, Clock),
        (answer, wants): (Answer, Wants),
        waited_us: u64,
    ) -> Result<Reply, Refusal> {
        if matches!(answer, Answer::Decided(..)) {
            self.keep_sent(id, group, wants);
        }
        let block = self.blocks.get_mut(&id).expect("own block");
        let next = match self.consistency.leaves_behind() {
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
            lineage: self.lineage,
            length: block.length(),
            fresh: block.fresh(group, wants, self.spec.down)?,
        })
    }

    fn refuse(&mut self, to: ReplyTo, refusal: Refusal) {
        self.counters.refused += 1;
        self.outputs.push_back(Output::Reply {
            to,
            result: Err(refusal),
        });
    }

    fn complete(&self) -> bool {
        self.uncreated == 0
    }
}

/// What became of a frame that was not refused.
enum Taken {
    /// Its answer is on its way, or waits for copies.
    Answered,
    /// It waits to be decided.
    Waits,
}
