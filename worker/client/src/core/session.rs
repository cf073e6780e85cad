//! Session: one rank's side of its exchanges. It knows the group's clock, the blocks of the rank's
//! slice, and which of them are still unanswered; so a broken stream is made good by sending what
//! is outstanding again, and the shards decide nothing twice (rule 2).

use std::collections::BTreeMap;

use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, RunId, ShardId};

/// What an exchange does with every block of the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Push the group's gradient, the mean over this many samples.
    Gradient {
        /// More than 0.
        samples: u32,
    },
    /// The group has no finite gradient.
    Skip,
    /// Only read.
    Pull,
    /// Set the initial values.
    Create,
}

/// One frame to send; its values, if it has any, are the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// To which shard.
    pub shard: ShardId,
    /// Which block.
    pub block: BlockId,
    /// The group's clock; 0 for pulls and creations.
    pub clock: Clock,
    /// What it asks for.
    pub purpose: Purpose,
    /// Version of the block that the gradient was computed on.
    pub pulled_version: u64,
    /// Lineage of the values that this version names.
    pub lineage: Generation,
    /// What was applied as the group knew it when the exchange began.
    pub seen: Seen,
    /// Version of the values that the rank holds, as last answered.
    pub holds: Option<u64>,
}

/// What an answer says about its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The group's contribution was decided.
    Decided,
    /// It was read.
    Read,
    /// It has initial values.
    Created,
}

impl Purpose {
    /// The answer that it waits for.
    fn answer(self) -> Kind {
        match self {
            Self::Gradient { .. } | Self::Skip => Kind::Decided,
            Self::Pull => Kind::Read,
            Self::Create => Kind::Created,
        }
    }
}

/// What a shard answered, without the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The block.
    pub block: BlockId,
    /// The clock of the frame.
    pub clock: Clock,
    /// What it says.
    pub kind: Kind,
    /// The clock that the block makes next, where groups may be left behind; else 0.
    pub next: Clock,
    /// Version of the block.
    pub version: u64,
    /// Lineage of the values that it names.
    pub lineage: Generation,
    /// Whether the values came with it.
    pub values: bool,
    /// Updates between the pull and the application; `None` where nothing was applied.
    pub delay: Option<u64>,
    /// Whether a policy left the gradient out.
    pub dropped: bool,
    /// Exchanges behind the fastest group.
    pub lag: u64,
    /// How long the policy held the block back, microseconds.
    pub waited_us: u64,
    /// Samples applied to the block.
    pub samples_applied: u64,
    /// The budget is reached.
    pub stop: bool,
}

/// What an exchange came to, over the blocks of the slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The highest clock that a block makes next, where groups may be left behind; else 0.
    pub next: Clock,
    /// The largest version.
    pub updates: u64,
    /// The largest delay; `None` where nothing was applied.
    pub delay: Option<u64>,
    /// Blocks whose gradient a policy left out.
    pub dropped: u64,
    /// The largest lag.
    pub lag: u64,
    /// The longest time a block was held back, microseconds.
    pub waited_us: u64,
    /// The most samples applied to a block.
    pub samples_applied: u64,
    /// Whether any block said stop.
    pub stop: bool,
    /// Whether the group was asked to leave. No block says so.
    pub leave: bool,
}

impl Summary {
    /// What the rank knows to be applied: the argument of the next gradient's rate, once all ranks
    /// of the group have the same summary.
    pub fn seen(&self) -> Seen {
        Seen {
            samples: self.samples_applied,
            updates: self.updates,
        }
    }

    fn add(&mut self, answer: &Answer) {
        self.next = self.next.max(answer.next);
        self.updates = self.updates.max(answer.version);
        self.delay = self.delay.max(answer.delay);
        self.dropped += u64::from(answer.dropped);
        self.lag = self.lag.max(answer.lag);
        self.waited_us = self.waited_us.max(answer.waited_us);
        self.samples_applied = self.samples_applied.max(answer.samples_applied);
        self.stop |= answer.stop;
    }
}

/// Who speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The run.
    pub run: RunId,
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// Names values of a block: a version means something within its lineage only.
#[derive(Clone, Copy, Debug, Default)]
struct Version {
    number: u64,
    lineage: Generation,
}

/// Versions of one block on their way into a gradient.
#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    /// Of the values that came with the last answer.
    answered: Version,
    /// Of the values that the next gradient is computed on.
    in_use: Version,
    /// Of those that the gradient of the present exchange was computed on.
    computed_on: Version,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    purpose: Purpose,
    clock: Clock,
    seen: Seen,
}

/// One rank's exchanges, one at a time.
#[derive(Clone, Debug)]
pub struct Session {
    identity: Identity,
    clock: Clock,
    slice: BTreeMap<BlockId, ShardId>,
    overlap: bool,
    versions: BTreeMap<BlockId, Versions>,
    current: Option<Current>,
    outstanding: BTreeMap<BlockId, ShardId>,
    summary: Summary,
}

impl Session {
    /// A session over `slice`, whose first contribution has clock `start`.
    pub fn new(
        identity: Identity,
        start: Clock,
        slice: impl IntoIterator<Item = (BlockId, ShardId)>,
    ) -> Self {
        Self {
            identity,
            clock: start,
            slice: slice.into_iter().collect(),
            overlap: false,
            versions: BTreeMap::new(),
            current: None,
            outstanding: BTreeMap::new(),
            summary: Summary::default(),
        }
    }

    /// With overlap the gradient of an exchange is computed while the one before is under way: on
    /// the values of one answer further back. A gradient that follows a pull is computed on what
    /// was pulled, with or without.
    #[must_use]
    pub fn with_overlap(self, overlap: bool) -> Self {
        Self { overlap, ..self }
    }

    /// Who speaks.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The clock of the next contribution.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The group goes on at `clock`, if it is not further: the others have, at some block of some
    /// rank. What lies between is left out.
    ///
    /// # Panics
    /// If an exchange is under way.
    pub fn go_on_at(&mut self, clock: Clock) {
        assert!(self.outstanding.is_empty(), "one exchange at a time");
        self.clock = self.clock.max(clock);
    }

    /// The blocks of the slice, in flat order, with the shards that they belong to.
    pub fn slice(&self) -> impl Iterator<Item = (BlockId, ShardId)> + '_ {
        self.slice.iter().map(|(block, shard)| (*block, *shard))
    }

    /// Begins an exchange; the frames to send follow from [`frames`](Self::frames). `seen` is
    /// the same on all ranks of the group.
    ///
    /// # Panics
    /// If the exchange before has not ended.
    pub fn begin(&mut self, purpose: Purpose, seen: Seen) {
        assert!(self.outstanding.is_empty(), "one exchange at a time");
        let clock = match purpose {
            Purpose::Gradient { .. } | Purpose::Skip => {
                for versions in self.versions.values_mut() {
                    // What has been answered meanwhile is what the next gradient is computed on.
                    versions.computed_on = versions.in_use;
                    versions.in_use = versions.answered;
                }
                self.clock
            }
            Purpose::Pull | Purpose::Create => Clock(0),
        };
        self.current = Some(Current {
            purpose,
            clock,
            seen,
        });
        self.outstanding = self.slice.clone();
        self.summary = Summary::default();
    }

    /// The unanswered frames for one shard, in flat order: all of them at the beginning, and what
    /// has to be sent again after its stream broke, wherever the shard is then.
    pub fn frames(&self, shard: ShardId) -> impl Iterator<Item = Frame> + '_ {
        let due = self.outstanding.iter();
        due.filter(move |(_, of)| **of == shard)
            .filter_map(|(block, _)| self.frame(*block))
    }

    /// The frame of one block, unless it is answered.
    pub fn frame(&self, block: BlockId) -> Option<Frame> {
        let (current, shard) = (self.current?, self.outstanding.get(&block)?);
        let versions = self.versions.get(&block);
        let computed_on = versions.map(|v| v.computed_on).unwrap_or_default();
        // A frame without a gradient cannot say of which lineage what it holds is.
        let gradient = matches!(current.purpose, Purpose::Gradient { .. });
        let holds = versions.filter(|_| gradient).map(|v| v.answered.number);
        Some(Frame {
            shard: *shard,
            block,
            clock: current.clock,
            purpose: current.purpose,
            pulled_version: computed_on.number,
            lineage: computed_on.lineage,
            seen: current.seen,
            holds,
        })
    }

    /// Whether an answer is one that is waited for.
    pub fn expects(&self, answer: &Answer) -> bool {
        // The kind, too: pulls and creations have clock 0, as the first contribution may have.
        let kind = self.current.is_some_and(|current| {
            (current.clock, current.purpose.answer()) == (answer.clock, answer.kind)
        });
        kind && self.outstanding.contains_key(&answer.block)
    }

    /// Takes an answer in. `true` if the values that came with it are the fresh ones of its block;
    /// `false` for an answer that was given before, or to another exchange, which is passed over.
    pub fn answer(&mut self, answer: &Answer) -> bool {
        if !self.expects(answer) {
            return false;
        }
        self.outstanding.remove(&answer.block);
        if answer.values {
            self.versions.entry(answer.block).or_default().answered = Version {
                number: answer.version,
                lineage: answer.lineage,
            };
        }
        self.summary.add(answer);
        true
    }

    /// Ends the exchange when every block has been answered; a contribution ticks the clock.
    pub fn finish(&mut self) -> Option<Summary> {
        if !self.outstanding.is_empty() {
            return None;
        }
        let current = self.current.take()?;
        let contributed = matches!(current.purpose, Purpose::Gradient { .. } | Purpose::Skip);
        if contributed {
            self.clock = self.clock.tick();
        }
        if !(self.overlap && contributed) {
            for versions in self.versions.values_mut() {
                versions.in_use = versions.answered;
            }
        }
        Some(self.summary)
    }
}

#[cfg(test)]
mod tests;
