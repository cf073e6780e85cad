//! The rules of DESIGN.md, checked from outside.
//!
//! The checker sees what an observer at a server's door sees: the views and frames that are handed
//! to a shard, in order, and the answers that come out of it. It knows the specification, and what
//! a life of a group brings at a clock ([`crate::sim::values`]). It never asks a shard what it
//! counts or holds. From that much follows, block by block:
//!
//! - which groups are live, and where each stands: its first clock is in the view, and every first
//!   answer of a clock moves it on;
//! - when a contribution is applied: at the latest with its first answer, and a shard answers in
//!   the call in which it decides. So c − m can be checked at every first answer (rule 1), with m
//!   taken over the checker's own record of the live groups;
//! - what version and values must be: the first values that were created, and from there every
//!   update recomputed in f64 from the *live* life's gradients. A contribution that is applied
//!   twice, or not, or for a fenced life, or without an answer, shows in the next answer of its
//!   block (rules 2 and 3);
//! - what a group makes of answers that are differences: values within the form's bound of the
//!   block's, and one state for each version, whichever of its answers arrives (`held.rs`).
//!
//! What it cannot see: an update that is taken back before the next answer, and in which order the
//! contributions of one update were summed.

mod block;
mod held;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tradewind_common::placement::Placement;
use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::{
    BlockId, Clock, Compression, Generation, GroupId, Incarnation, Layout, ServerId,
};
use tradewind_server::core::ReplyTo;
use tradewind_server::core::block::Decided;
use tradewind_server::core::shard::{Action, Answer, Output, Push, Reply};
use tradewind_server::core::view::View;

use crate::sim::Report;
use crate::sim::values::Life;
use block::Record;

/// A rule of DESIGN.md, "What must hold".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// 1
    Staleness,
    /// 2
    ExactlyOnce,
    /// 3
    Synchronous,
    /// 5
    Liveness,
    /// 6
    NoFreshStart,
    /// 7
    BadInput,
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

/// What the records of all blocks need to know of the run.
#[derive(Debug)]
struct Terms {
    consistency: ConsistencySpec,
    samples: u64,
    group_samples: Vec<u32>,
    skip_one_in: u64,
    down: Compression,
}

/// What was handed to one server.
#[derive(Debug, Default)]
struct Door {
    generation: Generation,
    ready: bool,
    creator: Option<Life>,
}

/// The observer of one run.
#[derive(Debug)]
pub struct Checker {
    terms: Terms,
    placement: Placement,
    doors: BTreeMap<ServerId, Door>,
    records: BTreeMap<BlockId, Record>,
    /// Who speaks on which stream.
    streams: BTreeMap<ReplyTo, Life>,
    starts: BTreeMap<Life, Clock>,
    decided_max: BTreeMap<GroupId, Clock>,
    decided: u64,
    repeated: u64,
}

impl Checker {
    /// An observer who has seen nothing.
    pub fn new(spec: &RunSpec, layout: &Layout, placement: &Placement, skip_one_in: u64) -> Self {
        let record = |b: &tradewind_common::layout::Block| {
            (b.id, Record::new(b.id, b.kind, b.elements.len()))
        };
        Self {
            terms: Terms {
                consistency: spec.consistency,
                samples: spec.samples,
                group_samples: spec.group_sizes.iter().map(|n| n * spec.batch).collect(),
                skip_one_in,
                down: spec.down,
            },
            placement: placement.clone(),
            doors: BTreeMap::new(),
            records: layout.blocks.iter().map(record).collect(),
            streams: BTreeMap::new(),
            starts: BTreeMap::new(),
            decided_max: BTreeMap::new(),
            decided: 0,
            repeated: 0,
        }
    }

    /// A view was handed to a shard. Older ones than it follows change nothing.
    pub fn view(&mut self, server: ServerId, view: &View) -> Result<(), Violation> {
        let door = self.doors.entry(server).or_default();
        if view.generation <= door.generation {
            return Ok(());
        }
        if door.ready && !view.ready() {
            let text = format!("server {server} was ready and is told to create again");
            return Err(Violation::new(Rule::NoFreshStart, text));
        }
        door.generation = view.generation;
        door.ready = view.ready();
        door.creator = view.creator;
        for (group, (incarnation, start)) in &view.live {
            self.check_start((*group, *incarnation), *start)?;
        }
        for block in self.placement.shard(server) {
            let record = self.records.get_mut(&block).expect("a block of the layout");
            record.follow(view, &self.terms)?;
        }
        Ok(())
    }

    /// Rule 2: a life has one first clock, past everything that was decided for former ones.
    fn check_start(&mut self, life: Life, start: Clock) -> Result<(), Violation> {
        let known = self.starts.entry(life).or_insert(start);
        if *known != start {
            let text = format!("{life:?} starts at {known} and at {start}");
            return Err(Violation::new(Rule::ExactlyOnce, text));
        }
        let later = self.starts.range((life.0, life.1.next())..);
        let is_latest = later.take_while(|((g, _), _)| *g == life.0).count() == 0;
        let fresh = !self.records.values().any(|r| r.has_decided(life));
        let before = self.decided_max.get(&life.0);
        if is_latest && fresh && before.is_some_and(|before| start <= *before) {
            let text = format!("{life:?} starts at {start}, which was decided for a former life");
            return Err(Violation::new(Rule::ExactlyOnce, text));
        }
        Ok(())
    }

    /// A frame was handed to a shard, and its answer goes to `to`.
    pub fn pushed(&mut self, to: ReplyTo, push: &Push) {
        let life = (push.group, push.incarnation);
        self.streams.insert(to, life);
        let Some(record) = self.records.get_mut(&push.block) else {
            return;
        };
        record.asked(to, push);
        if let Action::Contribute(Some(gradient)) = &push.action {
            record.pushed(life, push.clock, gradient.pulled_version);
        }
    }

    /// All that came out of a shard after one view or one frame. Whether anything was decided.
    pub fn answered(&mut self, server: ServerId, outputs: &[Output]) -> Result<bool, Violation> {
        let replies = || outputs.iter().filter_map(reply);
        let mut fresh: BTreeMap<BlockId, Vec<(GroupId, Decided)>> = BTreeMap::new();
        for (to, reply) in replies() {
            let (group, _) = self.streams[to];
            if let Answer::Decided(decided, false) = reply.answer {
                let of_block = fresh.entry(reply.block).or_default();
                // Everybody who asked is answered.
                if !of_block.contains(&(group, decided)) {
                    of_block.push((group, decided));
                }
            }
        }
        for (block, decisions) in &fresh {
            self.decide(*block, decisions)?;
        }
        for (to, reply) in replies() {
            self.check_reply(server, (*to, self.streams[to]), reply)?;
        }
        Ok(!fresh.is_empty())
    }

    fn decide(&mut self, id: BlockId, decisions: &[(GroupId, Decided)]) -> Result<(), Violation> {
        let record = self.records.get_mut(&id).expect("a block of the layout");
        let merges = self.terms.consistency == ConsistencySpec::Sync;
        let same =
            |a: &(GroupId, Decided), b: &(GroupId, Decided)| merges && a.1.clock == b.1.clock;
        for update in decisions.chunk_by(same) {
            record.update(update, &self.terms)?;
        }
        for (group, decided) in decisions {
            let max = self.decided_max.entry(*group).or_default();
            *max = (*max).max(decided.clock);
            self.decided += 1;
        }
        Ok(())
    }

    fn check_reply(
        &mut self,
        server: ServerId,
        (to, life): (ReplyTo, Life),
        reply: &Reply,
    ) -> Result<(), Violation> {
        let door = &self.doors[&server];
        let record = self
            .records
            .get_mut(&reply.block)
            .expect("a block of the layout");
        match reply.answer {
            Answer::Created => {
                if door.ready || door.creator != Some(life) {
                    let text = format!("{life:?} created block {}", reply.block);
                    return Err(Violation::new(Rule::NoFreshStart, text));
                }
                record.created(life);
            }
            Answer::Read | Answer::Decided(..) if !door.ready => {
                let text = format!("block {} was read or pushed before ready", reply.block);
                return Err(Violation::new(Rule::NoFreshStart, text));
            }
            Answer::Decided(decided, true) => {
                self.repeated += 1;
                record.check_repeat(life.0, decided)?;
            }
            Answer::Read | Answer::Decided(_, false) => {}
        }
        record.check_values((to, life), reply, &self.terms)
    }

    /// A life has taken the answer of a version in, and has these values now.
    pub fn took(
        &self,
        life: Life,
        block: BlockId,
        (version, values): (u64, &[f32]),
    ) -> Result<(), Violation> {
        if self.records[&block].has(life, version, values) {
            return Ok(());
        }
        let text = format!("{life:?} has {values:?} of block {block} at version {version}");
        Err(Violation::new(Rule::ExactlyOnce, text))
    }

    /// A group holds the answers of all blocks: each of them must have been decided.
    pub fn ticked(&self, group: GroupId, clock: Clock) -> Result<(), Violation> {
        let missing: BTreeSet<_> = self
            .records
            .iter()
            .filter(|(_, record)| !record.decided(group, clock))
            .map(|(id, _)| id.0)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let text = format!("group {group} finished clock {clock} without blocks {missing:?}");
        Err(Violation::new(Rule::ExactlyOnce, text))
    }

    /// The run is over: everybody who is alive has been told to stop.
    pub fn end(&self) -> Result<(), Violation> {
        let applied = self.records.values().map(Record::samples).max();
        if applied >= Some(self.terms.samples) {
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
        report.decided = self.decided;
        report.repeated = self.repeated;
        report.differences = self.records.values().map(Record::differences).sum();
        report.lag_max = self
            .records
            .values()
            .map(Record::lag_max)
            .max()
            .unwrap_or(0);
    }

    /// The blocks of a server, with their lengths.
    pub fn blocks(&self, server: ServerId) -> Vec<(BlockId, usize)> {
        let of_server = self.placement.shard(server);
        of_server
            .map(|id| (id, self.records[&id].length()))
            .collect()
    }

    /// Where a live group stands at a block: its life, and the clock that is decided next.
    pub fn place(&self, block: BlockId, group: GroupId) -> Option<(Incarnation, Clock)> {
        self.records.get(&block)?.place(group)
    }
}

fn reply(output: &Output) -> Option<(&ReplyTo, &Reply)> {
    match output {
        Output::Reply {
            to,
            result: Ok(reply),
        } => Some((to, reply)),
        _ => None,
    }
}
