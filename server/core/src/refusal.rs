//! Why a frame or a call is refused. A refusal decides nothing and changes nothing (rule 7).

use tradewind_common::finite::all_finite;
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, Rank, RunId, ShardId};

/// The reason of a refusal; tests match on it, people read its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A frame that does not say what it must.
    #[error("{field}: {problem}")]
    Malformed {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// No such run here.
    #[error("run {0} is not known to this server")]
    UnknownRun(RunId),
    /// The configuration has no such group.
    #[error("the run has groups 0 to {last}, not {group}")]
    UnknownGroup {
        /// The group that was named.
        group: GroupId,
        /// The last one there is.
        last: GroupId,
    },
    /// The group has no such rank.
    #[error("group {group} has ranks 0 to {last}, not {rank}")]
    UnknownRank {
        /// The group.
        group: GroupId,
        /// The rank that was named.
        rank: Rank,
        /// The last one there is.
        last: Rank,
    },
    /// Another life of the group has taken over, or this one never joined.
    #[error("incarnation {given} of group {group} is fenced; the current one is {current}")]
    StaleIncarnation {
        /// The group.
        group: GroupId,
        /// Who spoke.
        given: Incarnation,
        /// Who may.
        current: Incarnation,
    },
    /// The group is not live.
    #[error(
        "group {0} is not live: its lease has run out, it has left, or it has not been admitted"
    )]
    NotLive(GroupId),
    /// The run has no values yet.
    #[error("the run's initial values are not complete")]
    NotReady,
    /// The run has values, or somebody else creates them.
    #[error("group {0} may not create values: the run is ready, or another group creates them")]
    NotCreator(GroupId),
    /// The block lies on another server, or nowhere.
    #[error("block {0} is not in this shard")]
    UnknownBlock(BlockId),
    /// An old clock whose verdict is no longer kept.
    #[error(
        "clock {given} of group {group} was decided long ago; block {block} expects {expected}"
    )]
    ClockPassed {
        /// The block.
        block: BlockId,
        /// The group.
        group: GroupId,
        /// What was pushed.
        given: Clock,
        /// What is next.
        expected: Clock,
    },
    /// A clock before its turn.
    #[error("clock {given} of group {group} leaves a gap; block {block} expects {expected}")]
    ClockAhead {
        /// The block.
        block: BlockId,
        /// The group.
        group: GroupId,
        /// What was pushed.
        given: Clock,
        /// What is next.
        expected: Clock,
    },
    /// The same frame has come on too many streams.
    #[error("the frame for block {0} has come on many streams since; the answer goes to those")]
    Superseded(BlockId),
    /// A wrong number of values.
    #[error("block {block} has {expected} values, the frame brought {given}")]
    WrongLength {
        /// The block.
        block: BlockId,
        /// What it has.
        expected: usize,
        /// What came.
        given: usize,
    },
    /// A wrong number of bytes for values in the run's form.
    #[error(
        "block {block} has {values} values, which take {expected} bytes in the run's form; the frame brought {given}"
    )]
    WrongBytes {
        /// The block.
        block: BlockId,
        /// What it has.
        values: usize,
        /// What they take.
        expected: usize,
        /// What came.
        given: usize,
    },
    /// NaN or infinity.
    #[error("value {index} for block {block} is {value}; nothing of it was applied")]
    NotFinite {
        /// The block.
        block: BlockId,
        /// The first such value.
        index: usize,
        /// How it prints.
        value: String,
    },
    /// A gradient of nothing.
    #[error("the gradient for block {0} is the mean over 0 samples; send skip")]
    NoSamples(BlockId),
    /// A version that the block has not reached.
    #[error(
        "the gradient for block {block} was computed on version {given}, but the block is at {current}"
    )]
    VersionAhead {
        /// The block.
        block: BlockId,
        /// What was named.
        given: u64,
        /// What there is.
        current: u64,
    },
    /// Another server answers for the shard, or will.
    #[error("this server does not answer for shard {0}; follow its holders and try again")]
    NotPrimary(ShardId),
    /// A record for a server that has not been told to keep a copy, or not any more.
    #[error("this server keeps no copy of shard {0}, or has not been told yet; try again")]
    NotCopy(ShardId),
    /// A record of a former primary, or for a former life of this copy.
    #[error(
        "log {}, for the copy added in generation {}, is old: the newest is {}, in generation {}",
        .given.0, .given.1, .newest.0, .newest.1
    )]
    StaleLog {
        /// The log, and since when the receiver is a copy in it.
        given: (Generation, Generation),
        /// What the receiver knows.
        newest: (Generation, Generation),
    },
    /// A record after one that did not come.
    #[error("the record follows record {previous}, but the copy has come to {reached}")]
    Gap {
        /// The last one that was applied.
        reached: u64,
        /// The one that was sent before.
        previous: u64,
    },
    /// Too many answers wait for a copy, or too many contributions at a block.
    #[error(
        "too many answers wait until a copy confirms them, or contributions until others have come; try again"
    )]
    Busy,
}

/// The first value that is not finite, if any.
pub fn check_finite(block: BlockId, values: &[f32]) -> Result<(), Refusal> {
    if all_finite(values) {
        return Ok(());
    }
    let (index, value) = values
        .iter()
        .enumerate()
        .find(|(_, x)| !x.is_finite())
        .expect("one is not finite");
    Err(Refusal::NotFinite {
        block,
        index,
        value: value.to_string(),
    })
}
