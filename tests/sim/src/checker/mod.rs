//! The rules of ARCHITECTURE.md, checked from outside.
//!
//! The checker stands beside every server. It sees the orders and frames that are handed to a
//! shard, in order, the answers and records that come out of it, and the blocks as they are then.
//! It knows the specification, and what a life of a group brings at a clock ([`crate::values`]). It
//! never asks a shard what it counts, whom it waits for, or what it has told its copies. From that
//! much follows, block by block:
//!
//! - which groups are live, and where each stands: its first clock is in the view, and every
//!   decision moves it on. So c − m can be checked at every decision (rule 1), with m taken over
//!   the checker's own record of the live groups;
//! - what version and values must be: the first values that were created, and from there every
//!   update recomputed in f64 from the *live* life's gradients (`decide.rs`), merged (`apply.rs`) and
//!   applied as the paper of the optimizer has it (`optimizer.rs`, `rate.rs`, `measure.rs`), with all
//!   that it keeps beside the values. A contribution that is applied twice, or not, or for a fenced
//!   life, shows at once (rules 2 and 3);
//! - what a group makes of answers that are differences: values within the form's bound of the
//!   block's, and one state for each version, whichever of its answers arrives (`held.rs`);
//! - what is lost: a primary's decisions are a history, and each of its answers tells one step of
//!   it. Whoever takes over must have every step that was told, bit for bit, and so must whoever
//!   takes over from that one; decisions that nobody was told may be gone (`log.rs`). An answer
//!   must also tell whatever anybody had been told when it was asked for (rule 4);
//! - what a copy has after each record: its primary's bits (`copies.rs`);
//! - who has everything that was answered, among the processes that live, and what a shard lacks that
//!   is restored (`survivors.rs`, rules 4 and 11);
//! - what snapshots hold and what comes back of them (`snapshots.rs`, rule 10).
//!
//! What it cannot see: an update that is taken back before the call that made it returns, and in
//! which order the contributions of one update were summed.

mod answers;
mod apply;
mod block;
mod copies;
mod decide;
mod held;
mod history;
mod log;
mod measure;
mod optimizer;
mod order;
mod rate;
mod rules;
mod snapshots;
mod stale;
mod survivors;
mod terms;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tradewind_common::layout::Block;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{
    BlockId, Clock, Generation, GroupId, Incarnation, Layout, ServerId, ShardId, TensorKind,
};
use tradewind_core::ReplyTo;
use tradewind_core::log::LogEntry;
use tradewind_core::shard::{Action, Output, Push, Shard};

use crate::Report;
use crate::values::{Brought, Life};
use held::Held;
use log::Log;
use terms::{PassedOn, Pushed, Terms, Traffic};

use snapshots::Part;
pub use snapshots::Saved;
pub use survivors::Missing;
use survivors::{Begun, Reached};

/// A rule of ARCHITECTURE.md, "What must hold".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// 1
    Staleness,
    /// 2
    ExactlyOnce,
    /// 3
    Synchronous,
    /// 4
    NothingLost,
    /// 5
    Liveness,
    /// 6
    NoFreshStart,
    /// 7
    BadInput,
    /// 8
    Bounds,
    /// 10
    Snapshots,
    /// 11
    LossesTold,
    /// What groups were answered contradicts itself, or what was told as lost.
    History,
    /// Policies: an update was made of too few contributions, too soon.
    Window,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What was seen.
    pub text: String,
}

impl Violation {
    /// Says what was seen.
    pub fn new(rule: Rule, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { rule, text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule broken: {:?}: {}", self.rule, self.text)
    }
}

/// The observer of one run.
#[derive(Debug)]
pub struct Checker {
    terms: Terms,
    placement: Arc<Placement>,
    blocks: BTreeMap<BlockId, (TensorKind, usize)>,
    /// By shard, the primaries that there were, by since when each was one.
    logs: BTreeMap<ShardId, BTreeMap<Generation, Log>>,
    /// What each server is primary of, and since when.
    roles: BTreeMap<(ServerId, ShardId), Generation>,
    held: BTreeMap<BlockId, Held>,
    traffic: Traffic,
    /// Who speaks on which stream.
    streams: BTreeMap<ReplyTo, Life>,
    starts: BTreeMap<Life, (Clock, Generation)>,
    /// Blocks that a shard is about to have from a snapshot, by its lineage.
    restored: BTreeMap<(ShardId, Generation), BTreeMap<BlockId, Saved>>,
    /// Blocks in snapshots that are not whole yet, by number; and in those that are.
    parts: BTreeMap<u64, Vec<Part>>,
    kept: Vec<Part>,
    /// What shards lacked when they were restored, by their lineage; and how far blocks had come when
    /// everything ended, before the run was resumed.
    missing: BTreeMap<(ShardId, Generation), Missing>,
    /// What those lineages began with, and after which they came.
    begun: BTreeMap<(ShardId, Generation), Begun>,
    /// The same when it was counted.
    counted: BTreeMap<(ShardId, Generation), Missing>,
    before_resume: BTreeMap<BlockId, Reached>,
    /// The furthest that any answer told of each block in each lineage: version, samples.
    told: BTreeMap<(BlockId, Generation), (u64, u64)>,
    /// Somebody was told that the budget is used up.
    told_to_stop: bool,
    report: Report,
}

impl Checker {
    /// An observer who has seen nothing.
    pub fn new(
        spec: &RunSpec,
        layout: &Layout,
        placement: Arc<Placement>,
        brought: Brought,
    ) -> Self {
        let block = |b: &Block| (b.id, (b.kind, b.elements.len()));
        Self {
            terms: Terms::new(spec, layout, brought),
            placement,
            blocks: layout.blocks.iter().map(block).collect(),
            logs: BTreeMap::new(),
            roles: BTreeMap::new(),
            held: BTreeMap::new(),
            traffic: Traffic::default(),
            streams: BTreeMap::new(),
            starts: BTreeMap::new(),
            restored: BTreeMap::new(),
            parts: BTreeMap::new(),
            kept: Vec::new(),
            missing: BTreeMap::new(),
            begun: BTreeMap::new(),
            counted: BTreeMap::new(),
            before_resume: BTreeMap::new(),
            told: BTreeMap::new(),
            told_to_stop: false,
            report: Report::default(),
        }
    }

    fn log(&self, server: ServerId, shard: ShardId) -> Option<&Log> {
        let since = self.roles.get(&(server, shard))?;
        self.logs.get(&shard)?.get(since)
    }

    fn log_mut(&mut self, server: ServerId, shard: ShardId) -> Option<&mut Log> {
        let since = self.roles.get(&(server, shard))?;
        self.logs.get_mut(&shard)?.get_mut(since)
    }

    /// A frame is handed to a shard on a server, and its answer goes to `to`.
    pub fn pushed(
        &mut self,
        (server, shard): (ServerId, ShardId),
        (to, now_us): (ReplyTo, u64),
        push: &Push,
    ) {
        let life = (push.group, push.incarnation);
        self.streams.insert(to, life);
        if self.blocks.contains_key(&push.block) {
            self.held.entry(push.block).or_default().pushed(to, push);
        }
        if let Action::Contribute(Some(gradient)) = &push.action {
            let pushed = Pushed {
                version: gradient.pulled_version,
                lineage: gradient.lineage,
                samples: gradient.samples,
                seen: gradient.seen,
                at_us: now_us,
            };
            let exchange = self.traffic.seen.entry((life, push.clock));
            exchange.or_insert(gradient.seen);
            let key = (push.block, life, push.clock);
            self.traffic.pushed.entry(key).or_insert(pushed);
        }
        let latest = self.logs.get(&shard).and_then(|logs| logs.values().last());
        let lineage = latest.map(|log| log.lineage);
        let answered = latest.and_then(|log| log.floor.get(&push.block).copied());
        let contributes = matches!(push.action, Action::Contribute(_));
        let asked = (to, push.block, push.clock, contributes);
        if let Some(log) = self.log_mut(server, shard)
            && lineage.is_none_or(|lineage| lineage == log.lineage)
        {
            log.asked(asked, answered);
        }
        // Who is cut off from everybody may still create what its own order tells it to.
        if let Some(log) = self.log_mut(server, shard)
            && matches!(push.action, Action::Create(_))
            && !log.ready
            && log.creator == Some(life)
        {
            log.creates.insert((to, push.block));
        }
    }

    /// Looks at blocks of a shard after something has been handed to it, and at all that came out
    /// of it. Whether anything was decided.
    pub fn after(
        &mut self,
        (server, id): (ServerId, ShardId),
        shard: &Shard,
        (blocks, now_us): (&[BlockId], u64),
        outputs: &[Output],
    ) -> Result<bool, Violation> {
        self.traffic.now_us = now_us;
        let mut decided = 0;
        if let Some(since) = self.roles.get(&(server, id)) {
            let log = self.logs.get_mut(&id).and_then(|logs| logs.get_mut(since));
            let log = log.expect("every primary has a log");
            for block in blocks {
                let passed_on = passed_on(outputs, *block);
                let known = (&self.traffic, &self.terms);
                decided += log.observe(shard, *block, &passed_on, known)?;
            }
        }
        self.report.counts.decided += decided;
        for output in outputs {
            if let Output::Reply {
                to,
                result: Ok(reply),
            } = output
            {
                self.answered((server, id), *to, reply)?;
            }
        }
        Ok(decided > 0)
    }

    fn latest(&self) -> impl Iterator<Item = &Log> {
        self.logs.values().filter_map(|logs| logs.values().last())
    }

    /// The run is over: everybody who is alive has been told to stop.
    pub fn end(&self) -> Result<(), Violation> {
        self.check_kept()?;
        let records = self.latest().flat_map(|log| log.records.values());
        let applied = records.map(|record| record.samples()).max();
        // What is lost after somebody was told that the budget is used up is told, and not trained again.
        if applied >= Some(self.terms.samples) || self.told_to_stop {
            return Ok(());
        }
        let text = format!(
            "the run ended after {applied:?} of {} samples",
            self.terms.samples
        );
        Err(Violation::new(Rule::Liveness, text))
    }

    /// Adds what the checker has counted.
    pub fn totals(&self, report: &mut Report) {
        report.counts += &self.report.counts;
        report.counts.differences += self.held.values().map(Held::differences).sum::<u64>();
        let records = self.logs.values().flat_map(BTreeMap::values);
        let records = records.flat_map(|log| log.records.values());
        report.lag_max = records.map(|record| record.lag_max).max().unwrap_or(0);
    }

    /// Whether groups may be left behind.
    pub fn leaves_behind(&self) -> bool {
        self.terms.leaves_behind()
    }

    /// The blocks of a shard, with their lengths.
    pub fn blocks(&self, shard: ShardId) -> Vec<(BlockId, usize)> {
        let of_shard = self.placement.blocks(shard);
        of_shard.map(|id| (id, self.blocks[&id].1)).collect()
    }

    /// How many norms a block's gradient comes with.
    pub fn norms_wanted(&self, block: BlockId) -> usize {
        self.terms.norms_wanted(block)
    }

    /// The lineage of a shard on its primary.
    pub fn lineage(&self, (server, shard): (ServerId, ShardId)) -> Option<Generation> {
        Some(self.log(server, shard)?.lineage)
    }

    /// Where a live group stands at a block of a server: its life, and the clock that is decided
    /// next, or a later one if values were restored and it has not been heard since.
    pub fn place(
        &self,
        (server, shard): (ServerId, ShardId),
        block: BlockId,
        group: GroupId,
    ) -> Option<(Incarnation, Clock, bool)> {
        let place = self.log(server, shard)?.place(block, group)?;
        Some((place.incarnation, place.next, place.attaching))
    }
}

/// The updates of a block as they were passed on to copies, in order.
fn passed_on(outputs: &[Output], block: BlockId) -> Vec<PassedOn> {
    let mut updates = BTreeMap::new();
    for output in outputs {
        if let Output::Record { record, .. } = output
            && let LogEntry::Update(update) = &record.entry
            && update.block == block
        {
            let groups = update.decided.iter().map(|(group, ..)| *group);
            let applied = update.applied.as_ref();
            updates.entry(record.seq).or_insert_with(|| PassedOn {
                groups: groups.collect(),
                momentum: applied.and_then(|applied| applied.momentum),
            });
        }
    }
    updates.into_values().collect()
}
