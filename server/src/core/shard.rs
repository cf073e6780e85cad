//! Shard: blocks of one run that belong together, as one of their holders has them. The primary
//! answers for them, a copy follows it.

mod answers;
mod copy;
mod counters;
mod frame;
mod order;
mod snapshot;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tradewind_common::holders::Role;
use tradewind_common::pieces::Cut;
use tradewind_common::spec::RunSpec;
use tradewind_common::{
    BlockId, Clock, Generation, GroupId, Incarnation, Layout, ServerId, ShardId,
};

pub use self::counters::{Counters, DELAYS_MAX};
pub use self::frame::{Action, Answer, Output, Push, Reply};
use super::ReplyTo;
use super::askers::{Asker, Wants};
use super::block::{Arrival, Block, Contribution, Terms};
use super::capture::Capture;
use super::consistency::{self, Consistency};
use super::log::Entry;
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
    optimizer: Box<dyn Optimizer>,
    blocks: BTreeMap<BlockId, Block>,
    /// How many of them have no value yet.
    uncreated: usize,
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
    counters: Counters,
    lost_reported: u64,
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
        Self {
            me,
            id: shard,
            consistency: consistency::from_spec(spec.consistency),
            optimizer: optimizer::from_spec(spec.optimizer),
            spec,
            uncreated: blocks.len(),
            blocks,
            view: View::default(),
            role: None,
            lineage: Generation::default(),
            clock_seen: None,
            position: Position::default(),
            log: Outboxes::default(),
            pending: Pending::default(),
            capture: None,
            counters: Counters::default(),
            lost_reported: 0,
            outputs: VecDeque::new(),
        }
    }

    /// The same shard under another consistency policy; for tests that break a rule on purpose.
    pub fn with_consistency(mut self, consistency: Box<dyn Consistency>) -> Self {
        self.consistency = consistency;
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

    /// The next thing to do, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
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
            for x in block.values().unwrap_or_default() {
                hasher.update(&x.to_le_bytes());
            }
        }
        *hasher.finalize().as_bytes()
    }

    fn push(&mut self, push: Push, to: ReplyTo, now_us: u64) -> Result<Taken, Refusal> {
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
            Action::Pull => self.tell(asker, id, (group, clock), Answer::Read),
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
        if group.0 as usize >= self.spec.group_sizes.len() {
            let last = GroupId(self.spec.group_sizes.len() as u32 - 1);
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
        if let (Some(gradient), Wants::Difference { holds }) = (&contribution, &mut asker.wants)
            && gradient.lineage != self.lineage
        {
            // What it holds has a version of another lineage, too.
            *holds = None;
        }
        let at = (asker, now_us);
        let arrival = block.push((group, clock), contribution, self.lineage, at)?;
        self.clock_seen = self.clock_seen.max(Some(clock));
        match arrival {
            Arrival::Waits { superseded, lost } => {
                self.counters.lost += lost;
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

    /// Lets the policy decide until it has to wait.
    fn decide(&mut self, id: BlockId, now_us: u64) {
        let terms = Terms {
            optimizer: &*self.optimizer,
            schedule: &self.spec.schedule,
            budget: self.spec.samples,
            averages: self.consistency.averages(),
        };
        let block = self.blocks.get_mut(&id).expect("own block");
        let mut outcomes = Vec::new();
        loop {
            if let Some(capture) = &mut self.capture {
                capture.look(block);
            }
            // A clock that is averaged is made with everybody, or not.
            let standing = if terms.averages {
                block.standing()
            } else {
                block.heard()
            };
            let Some(groups) = self.consistency.decide(&standing) else {
                break;
            };
            let (update, decided) = block.update(&groups, terms);
            self.counters.updates += u64::from(update.applied.is_some());
            self.log.append(Entry::Update(update), &mut self.outputs);
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

    fn reply(
        &mut self,
        id: BlockId,
        (group, clock): (GroupId, Clock),
        (answer, wants): (Answer, Wants),
        waited_us: u64,
    ) -> Result<Reply, Refusal> {
        let block = self.blocks.get_mut(&id).expect("own block");
        Ok(Reply {
            block: id,
            clock,
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
