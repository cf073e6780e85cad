//! Who waits for the answer to one contribution.

use std::collections::BTreeSet;
use std::sync::Arc;

use tradewind_common::Compression;

use super::ReplyTo;

/// Most streams that wait for one answer; beyond it the one that asked first is refused.
pub const ASKERS_MAX: usize = 8;

/// What an answer shall carry besides the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wants {
    /// Nothing.
    Nothing,
    /// The fresh values, as they are.
    #[default]
    Values,
    /// What brings its group to the fresh values, compressed as the run says.
    Difference {
        /// Version of the last answer that the group took in; `None` if it holds nothing.
        holds: Option<u64>,
    },
}

/// Fresh values on their way to whoever asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Fresh {
    /// None were asked for.
    Nothing,
    /// All of them, shared with the block until it changes.
    Values(Arc<Vec<f32>>),
    /// The difference to what the group holds, in this form.
    Difference(Compression, Vec<u8>),
}

impl Fresh {
    /// Bytes that they take on the way.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Values(values) => 4 * values.len(),
            Self::Difference(_, encoded) => encoded.len(),
        }
    }

    /// The values, if they are there as they are.
    pub fn values(&self) -> &[f32] {
        match self {
            Self::Nothing | Self::Difference(..) => &[],
            Self::Values(values) => values,
        }
    }
}

/// A stream that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Which.
    pub to: ReplyTo,
    /// What it asked for.
    pub wants: Wants,
}

/// Who waits for an answer, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Askers {
    /// Where the answer goes: to everybody who asked, because a frame of a stream that has broken
    /// may arrive after its repeat on the next one. A stream that asked twice is answered twice.
    pub to: Vec<Asker>,
    /// When the contribution arrived, microseconds.
    pub since_us: u64,
}

impl Askers {
    /// The first one.
    pub fn new(to: Asker, since_us: u64) -> Self {
        Self {
            to: vec![to],
            since_us,
        }
    }

    /// Somebody asks, too; answers whom there is no room for any more.
    pub fn join(&mut self, repeat: Asker) -> Option<ReplyTo> {
        self.to.push(repeat);
        let streams: BTreeSet<_> = self.to.iter().map(|asker| asker.to).collect();
        if streams.len() <= ASKERS_MAX {
            return None;
        }
        let first = self.to[0].to;
        self.to.retain(|asker| asker.to != first);
        Some(first)
    }
}
