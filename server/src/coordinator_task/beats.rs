//! Which stream of a rank's heartbeats is its latest: the end of a former one, which may be noticed
//! late, says nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;
use tradewind_common::{GroupId, Rank, RunId};

use tradewind_core::run::Caller;

/// A stream of a rank's heartbeats.
#[derive(Clone, Debug)]
pub struct Stream {
    /// A later stream of the same rank has a higher one.
    pub number: u64,
    /// Told when the stream is to look whether its group is still there.
    pub look: Arc<Notify>,
}

/// The latest streams, as long as they are there: at most one for each rank of all runs.
#[derive(Debug, Default)]
pub(super) struct Beats(HashMap<(RunId, GroupId), BTreeMap<Rank, Stream>>);

impl Beats {
    pub(super) fn heard(&mut self, run: &RunId, caller: Caller, stream: Stream) {
        let ranks = self.0.entry((run.clone(), caller.group)).or_default();
        match ranks.get_mut(&caller.rank) {
            Some(latest) if latest.number >= stream.number => {}
            Some(latest) => *latest = stream,
            None => {
                ranks.insert(caller.rank, stream);
            }
        }
    }

    /// Whether the stream that has ended was the rank's latest.
    pub(super) fn ended(&mut self, run: &RunId, caller: Caller, stream: u64) -> bool {
        let group = (run.clone(), caller.group);
        let Some(ranks) = self.0.get_mut(&group) else {
            return false;
        };
        let is_latest = ranks
            .get(&caller.rank)
            .is_some_and(|of| of.number == stream);
        if is_latest {
            ranks.remove(&caller.rank);
        }
        if ranks.is_empty() {
            self.0.remove(&group);
        }
        is_latest
    }

    /// The streams of a group look whether it is still there.
    pub(super) fn look(&self, run: RunId, group: GroupId) {
        let ranks = self.0.get(&(run, group)).into_iter().flatten();
        ranks.for_each(|(_, stream)| stream.look.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::Incarnation;

    use super::*;

    fn stream(number: u64) -> Stream {
        let look = Arc::default();
        Stream { number, look }
    }

    #[test]
    fn the_end_of_a_former_stream_says_nothing() {
        let run = RunId::new("r").unwrap();
        let caller = Caller {
            group: GroupId(1),
            incarnation: Incarnation(3),
            rank: Rank(2),
        };
        let mut beats = Beats::default();
        beats.heard(&run, caller, stream(7));
        // It has begun another one, whose first beats overtake the last of this one.
        beats.heard(&run, caller, stream(9));
        beats.heard(&run, caller, stream(7));
        assert!(!beats.ended(&run, caller, 7));
        assert!(beats.ended(&run, caller, 9));
        assert!(!beats.ended(&run, caller, 9), "it is told once");
        assert!(beats.0.is_empty());
    }

    #[tokio::test]
    async fn the_streams_of_a_group_are_told_to_look_and_no_others() {
        let run = RunId::new("r").unwrap();
        let mut beats = Beats::default();
        let streams: Vec<Stream> = (0..4).map(stream).collect();
        for (number, stream) in (0..).zip(&streams) {
            let caller = Caller {
                group: GroupId(number / 2),
                incarnation: Incarnation(1),
                rank: Rank(number % 2),
            };
            beats.heard(&run, caller, stream.clone());
        }
        beats.look(run.clone(), GroupId(1));
        streams[2].look.notified().await;
        streams[3].look.notified().await;
        let others = futures_util::future::select(
            Box::pin(streams[0].look.notified()),
            Box::pin(streams[1].look.notified()),
        );
        let told = tokio::time::timeout(std::time::Duration::from_millis(20), others).await;
        assert!(told.is_err(), "theirs is still there");
    }
}
