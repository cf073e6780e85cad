//! Answers that wait until every copy has confirmed what they tell (rule 4).

use std::collections::VecDeque;

use super::frame::Output;

/// Most answers that wait before bare pulls and repeats are refused. Those to contributions and
/// creations are bounded by themselves: a group contributes once to a block until it is answered.
pub const PENDING_MAX: usize = 1 << 16;

/// Answers, oldest first, each with the entry of the log that has to be confirmed.
#[derive(Debug, Default)]
pub struct Pending(VecDeque<(u64, Output)>);

impl Pending {
    /// Whether nothing that can as well be asked later shall wait here.
    pub fn crowded(&self) -> bool {
        self.0.len() >= PENDING_MAX
    }

    /// An answer waits for entry `seq`, which is none before those of the others.
    pub fn push(&mut self, seq: u64, answer: Output) {
        self.0.push_back((seq, answer));
    }

    /// The oldest answer, if its entry is `confirmed`.
    pub fn release(&mut self, confirmed: impl Fn(u64) -> bool) -> Option<Output> {
        let (seq, _) = self.0.front()?;
        let confirmed = confirmed(*seq);
        confirmed
            .then(|| self.0.pop_front())?
            .map(|(_, answer)| answer)
    }

    /// All of them, confirmed or not.
    pub fn drain(&mut self) -> impl Iterator<Item = Output> {
        std::mem::take(&mut self.0)
            .into_iter()
            .map(|(_, answer)| answer)
    }
}
