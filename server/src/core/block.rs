//! One block: values, version, and up to which clock each live group has been decided.

mod apply;
mod whole;

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::clock;
use tradewind_common::pieces::{Norms, Piece};
use tradewind_common::schedule::{Schedule, Seen};
use tradewind_common::{BlockId, Clock, Compression, Generation, GroupId, Incarnation, TensorKind};

use super::ReplyTo;
use super::askers::{Asker, Askers, Fresh, Wants};
use super::consistency::Standing;
use super::held::Holdings;
use super::optimizer::Optimizer;
use super::refusal::Refusal;
use super::view::View;

/// What was decided about one (group, clock, block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gradient is in the values.
    Applied,
    /// A policy left it out.
    Dropped,
    /// The group had none.
    Skipped,
}

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
}

#[derive(Clone, Debug)]
struct Waiting {
    contribution: Contribution,
    /// Whether its delay can be measured: the version it was computed on is of this lineage.
    measured: bool,
    askers: Askers,
}

/// The place of one live group at the block.
#[derive(Clone, Debug)]
struct Cursor {
    incarnation: Incarnation,
    next: Clock,
    /// Values were restored since the group was last heard: its first contribution may be past
    /// `next`.
    attaching: bool,
    waiting: Option<Waiting>,
}

/// A verdict with the delay that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The clock that was decided.
    pub clock: Clock,
    /// How.
    pub verdict: Verdict,
    /// Updates between the pull that it was computed on and its application.
    pub delay: u64,
}

/// What pushing a contribution came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits to be decided.
    Waits {
        /// A stream that asked for it long ago waits no more.
        superseded: Option<ReplyTo>,
        /// Contributions of its group before it that were lost by restoring.
        lost: u64,
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

    /// The live groups and those that have joined as a consistency policy sees them, in GroupId
    /// order.
    pub fn standing(&self) -> Vec<Standing> {
        let live = |(group, cursor): (&GroupId, &Cursor)| Standing {
            group: *group,
            next: cursor.next,
            arrived: cursor.waiting.is_some(),
        };
        let joined = |(group, (_, earliest)): (&GroupId, &(Incarnation, Clock))| Standing {
            group: *group,
            next: *earliest,
            arrived: false,
        };
        let mut standing: Vec<_> = self.cursors.iter().map(live).collect();
        if !self.joined.is_empty() {
            standing.extend(self.joined.iter().map(joined));
            standing.sort_unstable_by_key(|s| s.group);
        }
        standing
    }

    /// The same without those that have not been heard since values were restored. Where they stand
    /// is not known, and they may wait elsewhere for just those that would wait for them here.
    pub fn heard(&self) -> Vec<Standing> {
        let silent = |standing: &Standing| {
            let cursor = self.cursors.get(&standing.group);
            cursor.is_some_and(|cursor| cursor.attaching)
        };
        let mut standing = self.standing();
        standing.retain(|standing| !silent(standing));
        standing
    }

    /// Takes over the groups of a view; those that have joined will not start before `earliest`.
    /// Groups that are new here go on after what was decided of them; if `attaching`, their first
    /// contribution may leave a gap. Answers who waited in vain: the groups that are no longer
    /// live, whose undecided contributions are forgotten.
    pub fn follow(
        &mut self,
        view: &View,
        earliest: Clock,
        attaching: bool,
    ) -> Vec<(GroupId, Askers)> {
        self.forget_holdings(view);
        let stays = |group: &GroupId, cursor: &Cursor| {
            view.live
                .get(group)
                .is_some_and(|(life, _)| *life == cursor.incarnation)
        };
        let gone: Vec<_> = self.cursors.extract_if(.., |g, c| !stays(g, c)).collect();
        for (group, (incarnation, start)) in &view.live {
            let last = self.last(*group, *incarnation);
            self.cursors.entry(*group).or_insert(Cursor {
                incarnation: *incarnation,
                next: last.map_or(*start, |last| last.clock.tick()),
                attaching,
                waiting: None,
            });
        }
        let stays = |(group, life): (&GroupId, &Incarnation)| {
            let known = self.joined.get(group).filter(|(known, _)| known == life);
            (*group, known.copied().unwrap_or((*life, earliest)))
        };
        self.joined = view.joined.iter().map(stays).collect();
        gone.into_iter()
            .filter_map(|(group, c)| Some((group, c.waiting?.askers)))
            .collect()
    }

    /// Decides nothing more: forgets the groups, but not what was decided of them, and answers who
    /// waited in vain.
    pub fn retire(&mut self) -> Vec<Askers> {
        self.held = Holdings::default();
        self.joined.clear();
        let cursors = std::mem::take(&mut self.cursors);
        cursors
            .into_values()
            .filter_map(|c| Some(c.waiting?.askers))
            .collect()
    }

    /// What was decided last of this life of a group.
    fn last(&self, group: GroupId, life: Incarnation) -> Option<Decided> {
        let (of, last) = self.decided.get(&group)?;
        (*of == life).then_some(*last)
    }

    /// Keeps only what lives hold that go on: a new one begins with values as they are.
    fn forget_holdings(&mut self, view: &View) {
        let (cursors, joined) = (&self.cursors, &self.joined);
        self.held.retain(|group| {
            let live = cursors.get(group).map(|cursor| cursor.incarnation);
            let life = live.or_else(|| joined.get(group).map(|(life, _)| *life));
            life.is_some() && life == view.incarnation(*group)
        });
    }

    /// Takes a contribution in, or finds that it was decided before (rule 2). The block's values
    /// are of `lineage`.
    pub fn push(
        &mut self,
        (group, clock): (GroupId, Clock),
        contribution: Contribution,
        lineage: Generation,
        (asker, now_us): (Asker, u64),
    ) -> Result<Arrival, Refusal> {
        let block = self.id;
        let cursor = self.cursors.get(&group).ok_or(Refusal::NotLive(group))?;
        let expected = cursor.next;
        // After the last clock there is none, so that no group may come to stand there by a gap.
        if clock > expected && !(cursor.attaching && clock < Clock(u64::MAX)) {
            return Err(Refusal::ClockAhead {
                block,
                group,
                given: clock,
                expected,
            });
        }
        if clock < expected {
            let repeat = self
                .last(group, cursor.incarnation)
                .filter(|last| last.clock == clock)
                .map(Arrival::Repeat);
            return repeat.ok_or(Refusal::ClockPassed {
                block,
                group,
                given: clock,
                expected,
            });
        }
        let mut measured = true;
        if let Some(gradient) = &contribution {
            measured = gradient.lineage == lineage;
            self.check_gradient(gradient, measured)?;
        }
        let cursor = self.cursors.get_mut(&group).expect("looked up above");
        let superseded = match &mut cursor.waiting {
            Some(waiting) => waiting.askers.join(asker),
            None => {
                cursor.waiting = Some(Waiting {
                    contribution,
                    measured,
                    askers: Askers::new(asker, now_us),
                });
                None
            }
        };
        cursor.next = clock;
        cursor.attaching = false;
        let lost = clock.0 - expected.0;
        Ok(Arrival::Waits { superseded, lost })
    }
}
