//! Who waits for the answer to one contribution.

use std::collections::BTreeSet;

use super::ReplyTo;

/// Most streams that wait for one answer; beyond it the one that asked first is refused.
pub const ASKERS_MAX: usize = 8;

/// Who waits for an answer, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Askers {
    /// Where the answer goes: to everybody who asked, because a frame of a stream that has broken
    /// may arrive after its repeat on the next one. A stream that asked twice is answered twice.
    pub to: Vec<ReplyTo>,
    /// When the contribution arrived, microseconds.
    pub since_us: u64,
}

impl Askers {
    /// The first one.
    pub fn new(to: ReplyTo, since_us: u64) -> Self {
        Self {
            to: vec![to],
            since_us,
        }
    }

    /// Somebody asks, too; answers whom there is no room for any more.
    pub fn join(&mut self, repeat: ReplyTo) -> Option<ReplyTo> {
        self.to.push(repeat);
        let streams: BTreeSet<_> = self.to.iter().collect();
        if streams.len() <= ASKERS_MAX {
            return None;
        }
        let first = self.to[0];
        self.to.retain(|to| *to != first);
        Some(first)
    }
}
