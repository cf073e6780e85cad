//! Shard: the blocks that one server owns of one run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, Layout};

use super::ReplyTo;
use super::askers::{Asker, Fresh, Wants};
use super::block::{Arrival, Block, Contribution, Decided, Terms, Verdict};
use super::consistency::{self, Consistency};
use super::optimizer::{self, Optimizer};
use super::refusal::Refusal;
use super::view::{Acknowledge, View};

/// One frame of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// Who speaks; a bare pull may come from nobody.
    pub group: GroupId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The group's clock; 0 for pulls and creations.
    pub clock: Clock,
    /// What it is about.
    pub block: BlockId,
    /// What the answer shall carry.
    pub wants: Wants,
    /// What is asked for.
    pub action: Action,
}

/// What a frame asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Decide the group's gradient, or its skip, and answer with the fresh values.
    Contribute(Contribution),
    /// Only the current values.
    Pull,
    /// Set the initial values.
    Create(Vec<f32>),
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A contribution was decided; `true` if it had been before.
    Decided(Decided, bool),
    /// To a pull.
    Read,
    /// To a creation.
    Created,
}

/// What goes back for one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The frame's block.
    pub block: BlockId,
    /// The frame's clock.
    pub clock: Clock,
    /// Which kind.
    pub answer: Answer,
    /// Version of the values.
    pub version: u64,
    /// Exchanges by which the group was behind the fastest when the block was decided.
    pub lag: u64,
    /// How long the policy held the block back, microseconds.
    pub waited_us: u64,
    /// Samples applied to the block.
    pub samples_applied: u64,
    /// The budget is reached.
    pub stop: bool,
    /// Number of values of the block.
    pub length: usize,
    /// What was asked for of the current values.
    pub fresh: Fresh,
}

/// What a shard wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Answer a frame.
    Reply {
        /// Whom.
        to: ReplyTo,
        /// With what.
        result: Result<Reply, Refusal>,
    },
    /// Every block has a value now: tell the coordinator.
    Complete(Acknowledge),
}

/// Delays of this many updates and more are counted together.
pub const DELAYS_MAX: usize = 256;

/// What a shard counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Contributions that are in the values.
    pub applied: u64,
    /// Contributions of weight 0.
    pub skipped: u64,
    /// Contributions that a policy left out.
    pub dropped: u64,
    /// Frames that repeated a decided one.
    pub duplicate: u64,
    /// Frames refused.
    pub refused: u64,
    /// Updates; one may merge several contributions.
    pub updates: u64,
    /// `delays[d]` contributions had delay d; the last entry holds all longer ones.
    pub delays: Vec<u64>,
}

/// The blocks of one server, the view it follows, and the answers it owes.
pub struct Shard {
    spec: Arc<RunSpec>,
    consistency: Box<dyn Consistency>,
    optimizer: Box<dyn Optimizer>,
    blocks: BTreeMap<BlockId, Block>,
    view: View,
    clock_seen: Option<Clock>,
    counters: Counters,
    outputs: VecDeque<Output>,
}

impl Shard {
    /// A shard without values that holds `owned` blocks of `layout`.
    pub fn new(
        spec: Arc<RunSpec>,
        layout: &Layout,
        owned: impl IntoIterator<Item = BlockId>,
    ) -> Self {
        let consistency = consistency::from_spec(spec.consistency);
        let owned = owned.into_iter().filter_map(|id| layout.block(id));
        let blocks = owned
            .map(|b| (b.id, Block::new(b.id, b.kind, b.elements.len())))
            .collect();
        Self {
            consistency,
            optimizer: optimizer::from_spec(spec.optimizer),
            spec,
            blocks,
            view: View::default(),
            clock_seen: None,
            counters: Counters {
                applied: 0,
                skipped: 0,
                dropped: 0,
                duplicate: 0,
                refused: 0,
                updates: 0,
                delays: vec![0; DELAYS_MAX],
            },
            outputs: VecDeque::new(),
        }
    }

    /// The same shard under another consistency policy; for tests that break a rule on purpose.
    pub fn with_consistency(mut self, consistency: Box<dyn Consistency>) -> Self {
        self.consistency = consistency;
        self
    }

    /// Takes a frame in. Its answer is polled out, at once or when the policy lets it go.
    pub fn handle_push(&mut self, push: Push, to: ReplyTo, now_us: u64) {
        let block = push.block;
        match self.push(push, to, now_us) {
            Ok(Some(reply)) => self.outputs.push_back(Output::Reply {
                to,
                result: Ok(reply),
            }),
            Ok(None) => self.decide(block, now_us),
            Err(refusal) => self.refuse(to, refusal),
        }
    }

    /// Answers a frame that could not even be taken in.
    pub fn handle_malformed(&mut self, refusal: Refusal, to: ReplyTo) {
        self.refuse(to, refusal);
    }

    /// Follows a view, unless it is older than the present one, and re-evaluates what waits.
    pub fn handle_view(&mut self, view: View, now_us: u64) -> Acknowledge {
        if view.generation > self.view.generation {
            let earliest = self.clock_seen.map_or(Clock(0), Clock::tick);
            let blocks: Vec<_> = self.blocks.keys().copied().collect();
            for id in blocks {
                let block = self.blocks.get_mut(&id).expect("own block");
                for (group, askers) in block.follow(&view, earliest) {
                    for asker in askers.to {
                        self.refuse(asker.to, Refusal::NotLive(group));
                    }
                }
                self.decide(id, now_us);
            }
            self.view = view;
        }
        self.acknowledge()
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

    fn push(&mut self, push: Push, to: ReplyTo, now_us: u64) -> Result<Option<Reply>, Refusal> {
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
        match action {
            Action::Pull => {
                // A bare pull may come from nobody, who holds nothing.
                let wants = match wants {
                    Wants::Difference { .. } if incarnation == Incarnation(0) => Wants::Values,
                    wants => wants,
                };
                if incarnation != Incarnation(0) {
                    self.check_incarnation(group, incarnation)?;
                }
                if !self.view.ready() {
                    return Err(Refusal::NotReady);
                }
                self.reply(id, group, clock, (Answer::Read, wants), 0)
                    .map(Some)
            }
            Action::Create(values) => {
                self.check_incarnation(group, incarnation)?;
                if self.view.creator != Some((group, incarnation)) {
                    return Err(Refusal::NotCreator(group));
                }
                self.create(id, values)?;
                let answer = (Answer::Created, wants);
                self.reply(id, group, clock, answer, 0).map(Some)
            }
            Action::Contribute(contribution) => {
                self.check_incarnation(group, incarnation)?;
                if !self.view.ready() {
                    return Err(Refusal::NotReady);
                }
                let block = self.blocks.get_mut(&id).expect("checked above");
                if !block.created() {
                    return Err(Refusal::NotReady);
                }
                let arrival =
                    block.push(group, clock, contribution, (Asker { to, wants }, now_us))?;
                self.clock_seen = self.clock_seen.max(Some(clock));
                match arrival {
                    Arrival::Waits(superseded) => {
                        if let Some(stream) = superseded {
                            self.refuse(stream, Refusal::Superseded(id));
                        }
                        Ok(None)
                    }
                    Arrival::Repeat(decided) => {
                        self.counters.duplicate += 1;
                        let answer = (Answer::Decided(decided, true), wants);
                        self.reply(id, group, clock, answer, 0).map(Some)
                    }
                }
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

    fn create(&mut self, id: BlockId, values: Vec<f32>) -> Result<(), Refusal> {
        let block = self.blocks.get_mut(&id).expect("checked by the caller");
        let was_created = block.created();
        block.create(values, &*self.optimizer)?;
        if !was_created && self.complete() {
            self.outputs.push_back(Output::Complete(self.acknowledge()));
        }
        Ok(())
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
        while let Some(groups) = self.consistency.decide(&block.standing()) {
            let version = block.version();
            outcomes.push(block.update(&groups, terms));
            self.counters.updates += block.version() - version;
        }
        for outcome in outcomes.into_iter().flatten() {
            let decided = outcome.decided;
            match decided.verdict {
                Verdict::Applied => {
                    self.counters.applied += 1;
                    let delay = (decided.delay as usize).min(DELAYS_MAX - 1);
                    self.counters.delays[delay] += 1;
                }
                Verdict::Skipped => self.counters.skipped += 1,
                Verdict::Dropped => self.counters.dropped += 1,
            }
            let waited_us = now_us.saturating_sub(outcome.askers.since_us);
            let answer = Answer::Decided(decided, false);
            for Asker { to, wants } in outcome.askers.to {
                let answer = (answer, wants);
                let result = self.reply(id, outcome.group, decided.clock, answer, waited_us);
                self.outputs.push_back(Output::Reply { to, result });
            }
        }
    }

    fn reply(
        &mut self,
        id: BlockId,
        group: GroupId,
        clock: Clock,
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
        self.blocks.values().all(Block::created)
    }

    fn acknowledge(&self) -> Acknowledge {
        Acknowledge {
            generation: self.view.generation,
            clock_seen: self.clock_seen,
            complete: self.complete(),
        }
    }
}
