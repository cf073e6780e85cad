//! Which stream of a rank's heartbeats is its latest: the end of a former one, which may be noticed
//! late, says nothing.

use std::collections::HashMap;

use tradewind_common::{GroupId, Rank, RunId};

use tradewind_core::run::Caller;

/// The latest streams, as long as they are there: at most one for each rank of all runs.
#[derive(Debug, Default)]
pub(super) struct Beats(HashMap<(RunId, GroupId, Rank), u64>);

impl Beats {
    pub(super) fn heard(&mut self, run: &RunId, caller: Caller, stream: u64) {
        let latest = self.0.entry(of(run, caller)).or_default();
        *latest = stream.max(*latest);
    }

    /// Whether the stream that has ended was the rank's latest.
    pub(super) fn ended(&mut self, run: &RunId, caller: Caller, stream: u64) -> bool {
        let rank = of(run, caller);
        let is_latest = self.0.get(&rank) == Some(&stream);
        if is_latest {
            self.0.remove(&rank);
        }
        is_latest
    }
}

fn of(run: &RunId, caller: Caller) -> (RunId, GroupId, Rank) {
    (run.clone(), caller.group, caller.rank)
}

#[cfg(test)]
mod tests {
    use tradewind_common::Incarnation;

    use super::*;

    #[test]
    fn the_end_of_a_former_stream_says_nothing() {
        let run = RunId::new("r").unwrap();
        let caller = Caller {
            group: GroupId(1),
            incarnation: Incarnation(3),
            rank: Rank(2),
        };
        let mut beats = Beats::default();
        beats.heard(&run, caller, 7);
        // It has begun another one, whose first beats overtake the last of this one.
        beats.heard(&run, caller, 9);
        beats.heard(&run, caller, 7);
        assert!(!beats.ended(&run, caller, 7));
        assert!(beats.ended(&run, caller, 9));
        assert!(!beats.ended(&run, caller, 9), "it is told once");
        assert!(beats.0.is_empty());
    }
}
