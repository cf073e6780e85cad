//! Rules, and what breaks them.

use std::fmt;

use crate::record::{Action, Operation, Verdict};

/// What must hold of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A contribution is answered applied, dropped or skipped, a skip dropped or skipped, a pull read.
    Verdict,
    /// A version of a block in one lineage has one digest and one vector, whoever is told it.
    Digest,
    /// The values are a vector clock: whole numbers of contributions, none below 0.
    Counts,
    /// The counts of a version add up to the version.
    Sum,
    /// Samples applied are the version times the samples of a contribution.
    Samples,
    /// No count of a later version is lower, in one lineage.
    Monotone,
    /// Whoever asks after somebody was answered is told what that one was told, or later.
    Stale,
    /// Nobody is answered from a lineage after somebody was answered from a later one.
    OldLineage,
    /// A contribution is decided once in a lineage: repeats have the same verdict and delay, and are
    /// called repeats.
    Once,
    /// The delay leads from the version that was computed on to one that the answer contains.
    Delay,
    /// What was answered applied is in every state from there on.
    Applied,
    /// Nothing is in a state more often than it was contributed, nor what was dropped or skipped.
    Doubled,
    /// Nothing is in a state before it was sent.
    Future,
    /// c − m ≤ s.
    Staleness,
    /// A life of a group is answered nothing that it asked after a later life was live.
    Fenced,
    /// Contributions that were answered applied are missing in a new lineage, and nobody told it.
    LossNotTold,
    /// More is missing in a new lineage than was told.
    LossTooLow,
    /// Less can be missing in a new lineage than was told.
    LossTooHigh,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Verdict,
        Self::Digest,
        Self::Counts,
        Self::Sum,
        Self::Samples,
        Self::Monotone,
        Self::Stale,
        Self::OldLineage,
        Self::Once,
        Self::Delay,
        Self::Applied,
        Self::Doubled,
        Self::Future,
        Self::Staleness,
        Self::Fenced,
        Self::LossNotTold,
        Self::LossTooLow,
        Self::LossTooHigh,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::Digest => "digest",
            Self::Counts => "counts",
            Self::Sum => "sum",
            Self::Samples => "samples",
            Self::Monotone => "monotone",
            Self::Stale => "stale",
            Self::OldLineage => "old lineage",
            Self::Once => "once",
            Self::Delay => "delay",
            Self::Applied => "applied",
            Self::Doubled => "doubled",
            Self::Future => "future",
            Self::Staleness => "staleness",
            Self::Fenced => "fenced",
            Self::LossNotTold => "loss not told",
            Self::LossTooLow => "loss told too low",
            Self::LossTooHigh => "loss told too high",
        }
    }
}

/// Operations that no order explains.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {text}", rule.name())]
pub struct Violation {
    /// Which rule they break.
    pub rule: Rule,
    /// Their numbers.
    pub operations: Vec<u64>,
    /// What contradicts what.
    pub text: String,
}

impl Violation {
    pub(super) fn new(rule: Rule, operations: &[&Operation], text: impl Into<String>) -> Self {
        Self {
            rule,
            operations: operations.iter().map(|o| o.number).collect(),
            text: text.into(),
        }
    }
}

/// An operation in words.
pub(super) struct Told<'h>(pub &'h Operation);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation {
            number,
            group,
            incarnation,
            clock,
            block,
            start_us,
            ..
        } = self.0;
        write!(f, "operation {number} (")?;
        match self.0.action {
            Action::Pull => write!(f, "pull of block {block}")?,
            action => {
                let what = match action {
                    Action::Skip => "skip",
                    _ => "contribution",
                };
                write!(
                    f,
                    "{what} of group {group} in life {incarnation} at clock {clock} to block {block}"
                )?;
            }
        }
        let Some(answer) = &self.0.answer else {
            return write!(f, ", sent at {start_us} µs, not answered)");
        };
        let verdict = match answer.verdict {
            Verdict::Applied => "applied",
            Verdict::Dropped => "dropped",
            Verdict::Skipped => "skipped",
            Verdict::Read => "read",
        };
        let again = if answer.repeated { " before" } else { "" };
        write!(
            f,
            ", {start_us} to {} µs, answered {verdict}{again}, version {} of lineage {}",
            answer.end_us, answer.of.version, answer.of.lineage
        )?;
        if answer.verdict == Verdict::Applied {
            write!(f, ", delay {}", answer.delay)?;
        }
        write!(f, ")")
    }
}
