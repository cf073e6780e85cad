//! One block: values, version, and up to which clock each live group has been decided.

mod apply;
mod groups;
mod whole;

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::clock;
use tradewind_common::pieces::{Norms, Piece};
use tradewind_common::policy::Weights;
use tradewind_common::schedule::{Schedule, Seen};
use tradewind_common::{BlockId, Clock, Compression, Generation, GroupId, Incarnation, TensorKind};

use super::ReplyTo;
use super::askers::{Askers, Fresh, Wants};
use super::backups::Backups;
use super::decided::{Decided, Verdict};
use super::delay::Delay;
use super::held::Holdings;
use super::optimizer::Optimizer;
use super::refusal::Refusal;
use super::trace::Trace;

/// A group's averaged gradient of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// As many as the block has.
    pub values: Vec<f32>,
    /// Samples that it is the mean over.
    pub samples: u32,
    /// Version that it was computed on.
    pub pulled_version: u64,
    /// Lineage of the values that the version names; in another than the shard's it means nothing.
    pub lineage: Generation,
    /// What was applied in the run as the group knew it: the schedule's argument.
    pub seen: Seen,
    /// Of the tensors of which the block has a part and whose norms its update follows from, in
    /// flat order: of the whole gradient of the group, and of the values it was computed on.
    pub norms: Vec<Norms>,
}

/// What a group brings at a clock; `None` is a skip.
pub type Contribution = Option<Gradient>;

/// How a block applies what a policy lets through.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// For parameters.
    pub optimizer: &'a dyn Optimizer,
    /// Of the learning rate.
    pub schedule: &'a Schedule,
    /// The run's samples, the schedule's end.
    pub budget: u64,
    /// See [`Consistency::averages`](super::consistency::Consistency::averages).
    pub averages: bool,
    /// How much each of several contributions counts.
    pub weights: Weights,
    /// What becomes of gradients that were computed on old values.
    pub delay: &'a dyn Delay,
}

#[derive(Clone, Debug)]
struct Waiting {
    contribution: Contribution,
    /// Whether its delay can be measured: the version it was computed on is of this lineage.
    measured: bool,
    /// Whether its group had not been heard before since values were restored.
    first: bool,
    askers: Askers,
}

/// When contributions arrive at the block, of whomever; the primary's alone.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    last_us: Option<u64>,
    gap_us: Option<u64>,
}

impl Arrivals {
    /// Of the mean gap an eighth is the last one.
    fn note(&mut self, now_us: u64) {
        if let Some(last_us) = self.last_us.replace(now_us) {
            let gap_us = now_us.saturating_sub(last_us);
            let mean_us = self.gap_us.unwrap_or(gap_us);
            self.gap_us = Some(mean_us - mean_us / 8 + gap_us / 8);
        }
    }
}

/// The place of one live group at the block.
#[derive(Clone, Debug)]
struct Cursor {
    incarnation: Incarnation,
    /// The first clock of this life.
    start: Clock,
    next: Clock,
    /// Values were restored since the group was last heard: its first contribution may be past
    /// `next`.
    attaching: bool,
    waiting: Option<Waiting>,
}

/// What pushing a contribution came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits to be decided.
    Waits {
        /// A stream that asked for it long ago waits no more.
        superseded: Option<ReplyTo>,
        /// Contributions of its group before it that it has left out, because the others had gone
        /// on elsewhere.
        left_out: u64,
    },
    /// It had been decided before.
    Repeat(Decided),
}

/// One contribution decided by an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whose.
    pub group: GroupId,
    /// Clock, verdict and delay.
    pub decided: Decided,
    /// Whether the delay was measured.
    pub measured: bool,
    /// Whether it was applied as it is, though it should have been brought to the present values.
    pub bare: bool,
    /// Who waits for it.
    pub askers: Askers,
}

/// A contiguous range of the parameters, and everything that is decided about it.
#[derive(Debug)]
pub struct Block {
    id: BlockId,
    kind: TensorKind,
    length: usize,
    /// They tile it in order.
    pieces: Vec<Piece>,
    /// Shared with answers that are on their way: an update copies them only then.
    values: Option<Arc<Vec<f32>>>,
    /// Shared with captures and records in the same way.
    slots: Vec<Arc<Vec<f32>>>,
    /// Where answers are compressed.
    held: Holdings,
    /// Where the staleness policy needs them.
    backups: Backups,
    /// Where the momentum policy measures.
    trace: Trace,
    arrivals: Arrivals,
    version: u64,
    samples_applied: u64,
    /// What was decided last of each group's latest life, live or not: at most one entry for each
    /// group that the run is configured with. Cursors are made from it.
    decided: BTreeMap<GroupId, (Incarnation, Decided)>,
    /// Of the live groups; empty where the shard is not its primary's.
    cursors: BTreeMap<GroupId, Cursor>,
    /// Incarnations that have joined, with the earliest clock that they may start at. The others
    /// wait for them as for live ones, or a joiner would find itself behind by more than the
    /// staleness bound, and clocks of its own already made without it.
    joined: BTreeMap<GroupId, (Incarnation, Clock)>,
}

impl Block {
    /// A block of `pieces`, which tile it in order, that has no values yet.
    pub fn new(id: BlockId, kind: TensorKind, pieces: Vec<Piece>) -> Self {
        Self {
            id,
            kind,
            length: pieces.last().map_or(0, |last| last.elements.end),
            pieces,
            values: None,
            slots: Vec::new(),
            held: Holdings::default(),
            backups: Backups::default(),
            trace: Trace::default(),
            arrivals: Arrivals::default(),
            version: 0,
            samples_applied: 0,
            decided: BTreeMap::new(),
            cursors: BTreeMap::new(),
            joined: BTreeMap::new(),
        }
    }

    /// Which one it is.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Parameters or buffer.
    pub fn kind(&self) -> TensorKind {
        self.kind
    }

    /// Updates applied.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Samples applied.
    pub fn samples_applied(&self) -> u64 {
        self.samples_applied
    }

    /// Number of values.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether it has values.
    pub fn created(&self) -> bool {
        self.values.is_some()
    }

    /// The current values.
    pub fn values(&self) -> Result<&[f32], Refusal> {
        self.values
            .as_ref()
            .map(|values| &values[..])
            .ok_or(Refusal::NotReady)
    }

    /// What an answer to `group` carries of the current values.
    pub fn fresh(
        &mut self,
        group: GroupId,
        wants: Wants,
        compression: Compression,
    ) -> Result<Fresh, Refusal> {
        let values = self.values.as_ref().ok_or(Refusal::NotReady)?;
        let current = (self.version, values);
        Ok(match wants {
            Wants::Nothing => Fresh::Nothing,
            Wants::Difference { holds }
                if self.kind == TensorKind::Parameter && compression.lossy() =>
            {
                self.held.answer((group, holds), current, compression)
            }
            Wants::Values | Wants::Difference { .. } => Fresh::Values(values.clone()),
        })
    }

    /// The present values leave in an answer to `group`, which will compute on them.
    pub fn keep_sent(&mut self, group: GroupId) {
        if let Some(values) = &self.values
            && self.kind == TensorKind::Parameter
            && self.cursors.contains_key(&group)
        {
            self.backups.keep(group, self.version, values);
        }
    }

    /// The clock that was decided last of each group.
    pub fn clocks_decided(&self) -> impl Iterator<Item = (GroupId, Clock)> + '_ {
        let decided = self.decided.iter();
        decided.map(|(group, (_, last))| (*group, last.clock))
    }

    /// The highest clock that was decided of any group.
    pub fn clock_decided(&self) -> Option<Clock> {
        self.decided.values().map(|(_, last)| last.clock).max()
    }

    /// How far `group` is behind the fastest live group, in exchanges.
    pub fn lag(&self, group: GroupId) -> u64 {
        let all = self.cursors.values().map(|cursor| cursor.next);
        let own = self.cursors.get(&group);
        own.map_or(0, |own| clock::lag(own.next, all))
    }
}
