//! What a shard counts.

use crate::block::DecidedContribution;
use crate::decided::Verdict;

/// Delays of this many updates and more are counted together: under `async` a delay is about the number
/// of groups, of which there are no more.
pub const DELAYS_MAX: usize = 1 << 16;

/// What a primary has counted; copies count nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Contributions that are in the values.
    pub applied: u64,
    /// Contributions of weight 0.
    pub skipped: u64,
    /// Contributions that a policy left out, or that their group did because it was late.
    pub dropped: u64,
    /// Contributions that the staleness policy should have brought to the present values, but had
    /// nothing to compare those with.
    pub bare: u64,
    /// Frames that repeated a decided one.
    pub duplicate: u64,
    /// Frames refused.
    pub refused: u64,
    /// Updates; one may merge several contributions.
    pub updates: u64,
    /// `delays[d]` contributions had delay d, up to the longest that there was; the entry before
    /// [`DELAYS_MAX`] holds all longer ones. Delays that could not be measured are in none.
    pub delays: Vec<u64>,
}

impl Counters {
    /// A contribution was decided.
    pub(super) fn decided(&mut self, outcome: &DecidedContribution) {
        self.bare += u64::from(outcome.bare);
        match outcome.decided.verdict {
            Verdict::Applied => {
                self.applied += 1;
                if outcome.measured {
                    let delay = (outcome.decided.delay as usize).min(DELAYS_MAX - 1);
                    if self.delays.len() <= delay {
                        self.delays.resize(delay + 1, 0);
                    }
                    self.delays[delay] += 1;
                }
            }
            Verdict::Skipped => self.skipped += 1,
            Verdict::Dropped => self.dropped += 1,
        }
    }
}
