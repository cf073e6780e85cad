//! One block: values, version, and up to which clock each live group has been decided.

mod apply;
mod contents;
mod groups;
mod merge;
mod sent;
mod shape;

use std::collections::BTreeMap;

use tradewind_common::pieces::{Norms, Piece};
use tradewind_common::policy::Weights;
use tradewind_common::schedule::{Schedule, Seen};
use tradewind_common::{BlockId, Clock, Compression, Generation, GroupId, TensorKind};

use self::apply::Gathering;
use self::contents::Contents;
use self::groups::Groups;
pub use self::groups::{Arrival, Arriving};
use self::sent::Sent;
use self::shape::Shape;
use super::askers::{Askers, Fresh, Wants};
use super::consistency::{Scene, Standing};
use super::decided::{Decided, Verdict};
use super::delay::Delay;
use super::momentum::Momentum;
use super::optimizer::Optimizer;
use super::refusal::Refusal;
use super::state::BlockState;
use super::trace::Trace;
use super::view::{Rights, ViewChange};

/// Most vectors as long as itself that a block keeps of one kind: contributions that wait, values as groups have
/// them, former values. Of short blocks they are more, as many as take [`KEPT_BYTES`].
pub const KEPT_MAX: usize = 64;

/// Bytes of vectors of one kind that a block may keep, however many they are.
pub const KEPT_BYTES: usize = 1 << 20;

/// How many vectors of one kind a block of this length keeps.
fn kept_max(length: usize) -> usize {
    KEPT_MAX.max(KEPT_BYTES / (4 * length.max(1)))
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
    /// How much each of several contributions counts.
    pub weights: Weights,
    /// What becomes of gradients that were computed on old values.
    pub delay: &'a dyn Delay,
}

/// Who decides momentum for a block, and for how many other ones.
pub struct Steered<'a> {
    /// Hears what values the block has passed.
    pub momentum: &'a mut (dyn Momentum + 'static),
    /// How many blocks it decides for.
    pub blocks: usize,
}

/// One contribution decided by an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidedContribution {
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

/// A contiguous range of the parameters, and everything that is decided about it. It passes on to its
/// parts what concerns them: each owns what it decides about.
#[derive(Debug)]
pub struct Block {
    shape: Shape,
    contents: Contents,
    groups: Groups,
    /// For the next update.
    gathering: Gathering,
    sent: Sent,
    /// Where the momentum policy measures.
    trace: Trace,
    /// How many contributions may wait, values of groups and former values be kept.
    keeps: usize,
}

impl Block {
    /// A block of `pieces`, which tile it in order, that has no values yet.
    pub fn new(id: BlockId, kind: TensorKind, pieces: Vec<Piece>) -> Self {
        Self::of(Shape::new(id, kind, pieces))
    }

    fn of(shape: Shape) -> Self {
        Self {
            keeps: kept_max(shape.length()),
            shape,
            contents: Contents::default(),
            groups: Groups::default(),
            gathering: Gathering::default(),
            sent: Sent::default(),
            trace: Trace::default(),
        }
    }

    /// Keeps no more than so many contributions, values of groups and former values, each.
    pub fn keep(&mut self, most: usize) {
        self.keeps = most;
    }

    /// Which one it is.
    pub fn id(&self) -> BlockId {
        self.shape.id()
    }

    /// Parameters or buffer.
    pub fn kind(&self) -> TensorKind {
        self.shape.kind()
    }

    /// Updates applied.
    pub fn version(&self) -> u64 {
        self.contents.version()
    }

    /// Samples applied.
    pub fn samples_applied(&self) -> u64 {
        self.contents.samples_applied()
    }

    /// Number of values.
    pub fn length(&self) -> usize {
        self.shape.length()
    }

    /// Whether it has values.
    pub fn created(&self) -> bool {
        self.contents.values().is_some()
    }

    /// The current values.
    pub fn values(&self) -> Result<&[f32], Refusal> {
        let values = self.contents.values().ok_or(Refusal::NotReady)?;
        Ok(values)
    }

    /// Sets the initial values; the first ones win (rule 6). Answers whether these are they.
    pub fn create(&mut self, values: Vec<f32>, optimizer: &dyn Optimizer) -> Result<bool, Refusal> {
        self.shape.check_values(&values)?;
        Ok(self.contents.create(values, self.shape.slots(optimizer)))
    }

    /// The block as it is, sharing its memory until it changes; `None` if it has no values.
    pub fn state(&self) -> Option<BlockState> {
        let values = self.contents.values()?;
        Some(BlockState {
            id: self.id(),
            values: values.clone(),
            slots: self.contents.slots().to_vec(),
            version: self.version(),
            samples_applied: self.samples_applied(),
            decided: self.groups.decided(),
        })
    }

    /// Takes a block over as it was elsewhere.
    pub fn put(&mut self, state: BlockState, optimizer: &dyn Optimizer) -> Result<(), Refusal> {
        self.shape.check_state(&state, optimizer)?;
        let decided = self.contents.put(state);
        self.groups.take_over(decided);
        Ok(())
    }

    /// Is as new.
    pub fn forget(&mut self) {
        let keeps = self.keeps;
        *self = Self::of(self.shape.take());
        self.keeps = keeps;
    }

    /// What an answer to `group` carries of the current values.
    pub fn fresh(
        &mut self,
        group: GroupId,
        wants: Wants,
        compression: Compression,
    ) -> Result<Fresh, Refusal> {
        let values = self.contents.values().ok_or(Refusal::NotReady)?;
        let current = (self.contents.version(), values);
        Ok(match wants {
            Wants::Nothing => Fresh::Nothing,
            Wants::Difference { holds }
                if self.kind() == TensorKind::Parameter && compression.lossy() =>
            {
                self.sent
                    .difference((group, holds), current, compression, self.keeps)
            }
            Wants::Values | Wants::Difference { .. } => Fresh::Values(values.clone()),
        })
    }

    /// The present values leave in an answer to `group`, which will compute on them.
    pub fn keep_sent(&mut self, group: GroupId) {
        if let Some(values) = self.contents.values()
            && self.kind() == TensorKind::Parameter
            && self.groups.standings().is_live(group)
        {
            let version = self.contents.version();
            self.sent.keep(group, version, values, self.keeps);
        }
    }

    /// The clock that was decided last of each group.
    pub fn clocks_decided(&self) -> impl Iterator<Item = (GroupId, Clock)> + '_ {
        let decided = self.groups.decided().into_iter();
        decided.map(|(group, (_, last))| (group, last.clock))
    }

    /// The highest clock that was decided of any group.
    pub fn clock_decided(&self) -> Option<Clock> {
        self.groups.clock_decided()
    }

    /// Bytes that are kept of the groups while nothing waits.
    pub fn table_bytes(&self) -> usize {
        self.groups.bytes()
    }

    /// How far `group` is behind the fastest live group, in exchanges.
    pub fn lag(&self, group: GroupId) -> u64 {
        self.groups.standings().lag(group)
    }

    /// Where a group stands that is live, or has joined.
    pub fn standing(&self, group: GroupId) -> Option<Standing> {
        self.groups.standings().of(group)
    }

    /// The block as a consistency policy sees it: with or without those that have not been heard since values
    /// were restored.
    pub fn scene(&self, everybody: bool, now_us: u64) -> Scene<'_> {
        Scene {
            standings: self.groups.standings(),
            everybody,
            gathered: self.gathering.seen(),
            highest: self.clock_decided(),
            now_us,
            gap_us: self.groups.gap_us(),
        }
    }

    /// The clock that is made next, where clocks are made for all groups; 0 while nobody is live.
    pub fn present_clock(&self) -> Clock {
        self.scene(true, 0).present().unwrap_or_default()
    }

    /// Groups whose first contribution since values were restored waits and was not computed on what
    /// was restored. Their exchange had begun before: a group that is answered at one block, and will
    /// not come there again, may wait at another for one that waits here.
    pub fn interrupted(&self) -> impl ExactSizeIterator<Item = GroupId> + '_ {
        self.groups.interrupted().iter().copied()
    }

    /// Whether more contributions wait than may.
    pub fn is_crowded(&self) -> bool {
        self.groups.standings().waiting() > self.keeps
    }

    /// Sends the contribution that is furthest ahead away, as if it had not come: who asked for it.
    pub fn withdraw_furthest(&mut self) -> Option<Askers> {
        self.groups.withdraw_furthest()
    }

    /// A new primary goes on with the values that there are. What the one before has made of them in
    /// its answers is not known.
    pub fn begin_answers(&mut self) {
        if self.created() {
            self.sent.begin_at(self.contents.version());
        }
    }

    /// Takes over what has changed of groups; those that have joined will not start before `earliest`.
    /// Groups that are new here go on after what was decided of them; if `attaching`, their first
    /// contribution may leave a gap. Answers who waited in vain: the groups that are no longer
    /// live, whose undecided contributions are forgotten.
    pub fn follow(
        &mut self,
        change: &ViewChange,
        earliest: Clock,
        attaching: bool,
    ) -> Vec<(GroupId, Askers)> {
        // Only lives that go on hold something: a new one begins with values as they are.
        let standings = self.groups.standings();
        for (group, rights) in &change.changed {
            let life = standings.incarnation(*group);
            if life.is_none() || life != rights.incarnation() {
                self.sent.forget(*group);
            }
        }
        self.groups.follow(change, earliest, attaching)
    }

    /// What each group is that it knows: of a primary that is as its view says.
    pub fn rights(&self) -> BTreeMap<GroupId, Rights> {
        self.groups.standings().rights()
    }

    /// Decides nothing more: forgets the groups, but not what was decided of them, and answers who
    /// waited in vain.
    pub fn retire(&mut self) -> Vec<Askers> {
        self.gathering = Gathering::default();
        self.sent = Sent::default();
        self.trace = Trace::default();
        self.groups.retire()
    }

    /// Takes a contribution in, or finds that it was decided before (rule 2).
    pub fn push(&mut self, arriving: Arriving) -> Result<Arrival, Refusal> {
        let (shape, version) = (&self.shape, self.contents.version());
        let check =
            |gradient: &Gradient, measured| shape.check_gradient(gradient, measured, version);
        self.groups.push(shape.id(), arriving, check)
    }
}
