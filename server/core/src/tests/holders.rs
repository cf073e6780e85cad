//! A shard with all its holders, and the ways between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tradewind_common::holders::{CopyHolder, Holders, Primary};
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Generation, Layout, ServerId, ShardId};

use super::shard::{gradient, push, view};
use crate::ReplyTo;
use crate::log::Record;
use crate::order::NotCaptured;
use crate::refusal::Refusal;
use crate::shard::{Action, Output, Push, Reply, Shard};
use crate::state::BlockState;
use crate::view::{Acknowledge, View};

/// The shard that is told about.
pub(super) const SHARD: ShardId = ShardId(0);

/// What came of a capture.
pub(super) type Captured = (u64, Result<Vec<BlockState>, NotCaptured>);

/// Servers that hold a shard. Records wait on their way until they are delivered.
pub(super) struct Stage {
    spec: Arc<RunSpec>,
    layout: Layout,
    shards: BTreeMap<ServerId, Shard>,
    pub(super) holders: Holders,
    /// Whose each log is.
    logs: BTreeMap<Generation, ServerId>,
    generation: u64,
    wires: BTreeMap<ServerId, VecDeque<Record>>,
    answers: Vec<(u64, Result<Reply, Refusal>)>,
    pub(super) reports: Vec<(u32, Acknowledge)>,
    captured: Vec<Captured>,
}

impl Stage {
    /// Server 0 is the primary, `copies` have copies, and nothing has a value.
    pub(super) fn empty(spec: RunSpec, copies: &[u32]) -> Self {
        let layout = spec.check().unwrap();
        let mut stage = Self {
            spec: Arc::new(spec),
            layout,
            shards: BTreeMap::new(),
            holders: Holders::default(),
            logs: BTreeMap::new(),
            generation: 0,
            wires: BTreeMap::new(),
            answers: Vec::new(),
            reports: Vec::new(),
            captured: Vec::new(),
        };
        stage.promote(0);
        for copy in copies {
            stage.add(*copy);
        }
        stage.order(&[], &[0], Some(0));
        stage
    }

    /// The same with all blocks at 1.0, and groups with their first clocks.
    pub(super) fn ready(spec: RunSpec, copies: &[u32], live: &[(u32, u64)]) -> Self {
        let mut stage = Self::empty(spec, copies);
        for (block, length) in stage.lengths() {
            let create = Action::Create(vec![1.0; length]);
            stage.push(push(0, 0, block, create), 0);
        }
        stage.settle();
        stage.order(live, &[], None);
        stage.answers.clear();
        stage.reports.clear();
        stage
    }

    pub(super) fn lengths(&self) -> Vec<(BlockId, usize)> {
        let blocks = self.layout.blocks.iter();
        blocks.map(|b| (b.id, b.elements.len())).collect()
    }

    /// In the next order, a server is the primary.
    pub(super) fn promote(&mut self, server: u32) {
        let (server, since) = (ServerId(server), Generation(self.generation + 1));
        self.holders.primary = Some(Primary { server, since });
        self.holders.copies.retain(|copy| copy.server != server);
        self.holders
            .copies
            .iter_mut()
            .for_each(|copy| copy.full = false);
        self.logs.insert(since, server);
        self.know(server);
    }

    /// In the next order, a server is a copy from now on.
    pub(super) fn add(&mut self, server: u32) {
        let (server, since) = (ServerId(server), Generation(self.generation + 1));
        self.remove(server.0);
        let full = false;
        self.holders.copies.push(CopyHolder {
            server,
            since,
            full,
        });
        self.know(server);
    }

    /// In the next order, a server is no copy any more.
    pub(super) fn remove(&mut self, server: u32) {
        self.holders
            .copies
            .retain(|copy| copy.server != ServerId(server));
    }

    /// A server dies and comes back with nothing.
    pub(super) fn lose(&mut self, server: u32) {
        self.shards.remove(&ServerId(server));
        self.wires.remove(&ServerId(server));
        self.know(ServerId(server));
    }

    fn know(&mut self, server: ServerId) {
        let blocks = self.layout.blocks.iter().map(|b| b.id);
        self.shards
            .entry(server)
            .or_insert_with(|| Shard::new(server, SHARD, self.spec.clone(), &self.layout, blocks));
    }

    /// The view of the next generation.
    pub(super) fn next_view(
        &mut self,
        live: &[(u32, u64)],
        joined: &[u32],
        creator: Option<u32>,
    ) -> View {
        self.generation += 1;
        view(self.generation, live, joined, creator)
    }

    /// All servers follow the next order.
    pub(super) fn order(&mut self, live: &[(u32, u64)], joined: &[u32], creator: Option<u32>) {
        let view = self.next_view(live, joined, creator);
        let servers: Vec<_> = self.shards.keys().map(|server| server.0).collect();
        for server in servers {
            self.tell(server, &view);
        }
    }

    /// One server follows an order.
    pub(super) fn tell(&mut self, server: u32, view: &View) -> Acknowledge {
        let holders = self.holders.clone();
        let seen = self.at(server).handle_order(view.clone(), &holders, 0);
        self.collect(server);
        seen
    }

    pub(super) fn knows(&self, server: u32) -> bool {
        self.shards.contains_key(&ServerId(server))
    }

    pub(super) fn at(&mut self, server: u32) -> &mut Shard {
        self.shards.get_mut(&ServerId(server)).unwrap()
    }

    /// A frame for the primary, on stream `to`.
    pub(super) fn push(&mut self, push: Push, to: u64) {
        let primary = self.holders.primary.unwrap().server.0;
        self.push_at(primary, push, to);
    }

    pub(super) fn push_at(&mut self, server: u32, push: Push, to: u64) {
        self.at(server).handle_push(push, ReplyTo(to), 0);
        self.collect(server);
    }

    pub(super) fn capture(&mut self, server: u32, number: u64, at_clock: Option<u64>) {
        self.at(server).handle_capture(number, at_clock.map(Clock));
        self.collect(server);
    }

    /// Takes out what a server has to say.
    pub(super) fn collect(&mut self, server: u32) {
        while let Some(output) = self.at(server).poll_output() {
            match output {
                Output::Reply { to, result } => self.answers.push((to.0, result)),
                Output::Report(seen) => self.reports.push((server, seen)),
                Output::Record { to, record } => {
                    self.wires.entry(to).or_default().push_back(record);
                }
                Output::Captured { number, result } => self.captured.push((number, result)),
                Output::Milestone { .. } => unreachable!("none are asked for"),
            }
        }
    }

    /// The records on their way to a server.
    pub(super) fn wire(&mut self, to: u32) -> &mut VecDeque<Record> {
        self.wires.entry(ServerId(to)).or_default()
    }

    /// One record arrives, and its confirmation comes back; `false` if none was on its way.
    pub(super) fn deliver_one(&mut self, to: u32) -> bool {
        self.deliver_next(to).is_some()
    }

    /// The same; answers who sent it, and whether it was refused.
    pub(super) fn deliver_next(&mut self, to: u32) -> Option<(u32, Result<(), Refusal>)> {
        let record = self.wire(to).pop_front()?;
        let by = self.logs[&record.log].0;
        let confirm = self.at(to).handle_record(record);
        self.collect(to);
        let confirm = confirm.map(|confirm| {
            self.at(by).handle_confirm(confirm);
            self.collect(by);
        });
        Some((by, confirm))
    }

    /// All records arrive at one copy.
    pub(super) fn deliver(&mut self, to: u32) {
        while self.deliver_one(to) {}
    }

    /// All records arrive.
    pub(super) fn settle(&mut self) {
        let mut copies: BTreeSet<_> = self.shards.keys().map(|server| server.0).collect();
        copies.remove(&self.holders.primary.unwrap().server.0);
        for copy in copies {
            self.deliver(copy);
        }
    }

    /// The answers since this was asked last.
    pub(super) fn answers(&mut self) -> Vec<(u64, Result<Reply, Refusal>)> {
        std::mem::take(&mut self.answers)
    }

    /// The only one.
    pub(super) fn answer(&mut self) -> Result<Reply, Refusal> {
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0).1
    }

    /// What came of captures since this was asked last.
    pub(super) fn captured(&mut self) -> Vec<Captured> {
        std::mem::take(&mut self.captured)
    }

    /// The blocks of a holder, as far as they have values.
    pub(super) fn states(&mut self, server: u32) -> Vec<BlockState> {
        self.at(server)
            .blocks()
            .filter_map(|(_, block)| block.state())
            .collect()
    }

    /// Every copy has what the primary has.
    pub(super) fn assert_equal(&mut self) {
        let primary = self.holders.primary.unwrap().server.0;
        let (want, digest) = (self.states(primary), self.at(primary).digest());
        for copy in self.holders.copies.clone() {
            assert_eq!(self.states(copy.server.0), want, "{copy:?}");
            assert_eq!(self.at(copy.server.0).digest(), digest, "{copy:?}");
        }
    }
}

/// A gradient for a block of `length` values, another one for each `turn`.
pub(super) fn wave(length: usize, turn: u64) -> Action {
    let value = |i| ((i as f32 + 1.0) * 0.37 + turn as f32 * 1.1).sin();
    let values: Vec<f32> = (0..length).map(value).collect();
    gradient(&values, 1 + turn as u32 % 3)
}
