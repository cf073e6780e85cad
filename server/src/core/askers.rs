//! Who waits for the answer to one contribution.

use super::ReplyTo;

/// Most callers that wait for one answer; the one who asked first is forgotten.
pub const ASKERS_MAX: usize = 8;

/// Who waits for an answer, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Askers {
    /// Where the answer goes: to everybody who asked, because a frame of a stream that has broken
    /// may arrive after its repeat on the next one.
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

    /// They ask, too.
    pub fn join(&mut self, repeat: Self) {
        self.to.retain(|to| !repeat.to.contains(to));
        self.to.extend(repeat.to);
        let over = self.to.len().saturating_sub(ASKERS_MAX);
        self.to.drain(..over);
    }
}
