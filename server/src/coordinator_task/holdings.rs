//! Who holds the shards of runs, as it is written down: ranks hear of nothing else. They are told of it
//! when somebody else holds a shard, or is elsewhere, and not whenever a group comes or goes: that is no
//! news for all others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;
use tradewind_common::{Generation, RunId};
use tradewind_proto::holding::Holding;

/// By run; each is replaced only by one that says something else than its generation.
pub type Published = Arc<HashMap<RunId, Arc<Holding>>>;

/// What is written down.
#[derive(Debug)]
pub(super) struct Holdings {
    written: HashMap<RunId, Holding>,
    published: watch::Sender<Published>,
}

impl Holdings {
    /// None yet, and the way to hear of them.
    pub(super) fn new() -> (Self, watch::Receiver<Published>) {
        let (published, heard) = watch::channel(Published::default());
        let written = HashMap::new();
        (Self { written, published }, heard)
    }

    /// These are written down now.
    pub(super) fn replace(&mut self, written: HashMap<RunId, Holding>) {
        let known = self.published.borrow().clone();
        let same = |run: &RunId, holding: &Holding| {
            let known = known.get(run)?;
            let same = known.holders == holding.holders && known.servers == holding.servers;
            same.then(|| known.clone())
        };
        let publish = |(run, holding): (&RunId, &Holding)| {
            let published = same(run, holding).unwrap_or_else(|| Arc::new(holding.clone()));
            (run.clone(), published)
        };
        let now: HashMap<_, _> = written.iter().map(publish).collect();
        let unchanged = now.len() == known.len()
            && now
                .iter()
                .all(|(run, now)| known.get(run).is_some_and(|known| Arc::ptr_eq(known, now)));
        if !unchanged {
            self.published.send_replace(Arc::new(now));
        }
        self.written = written;
    }

    pub(super) fn get(&self, run: &RunId) -> Option<&Holding> {
        self.written.get(run)
    }

    /// The generation that others may hear of.
    pub(super) fn generation(&self, run: &RunId) -> Generation {
        let written = self.get(run).map(|holding| holding.generation);
        written.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::ServerId;
    use tradewind_common::holders::Holders;

    use super::*;

    #[test]
    fn a_generation_alone_is_no_news() {
        let run = RunId::new("r").unwrap();
        let holding = |generation, primary| Holding {
            generation: Generation(generation),
            holders: vec![Holders::alone(ServerId(primary))],
            servers: Vec::new(),
        };
        let (mut holdings, mut heard) = Holdings::new();
        holdings.replace(HashMap::from([(run.clone(), holding(1, 0))]));
        assert!(heard.has_changed().unwrap());
        assert_eq!(heard.borrow_and_update()[&run].generation, Generation(1));
        holdings.replace(HashMap::from([(run.clone(), holding(2, 0))]));
        assert!(!heard.has_changed().unwrap());
        assert_eq!(holdings.generation(&run), Generation(2));
        holdings.replace(HashMap::from([(run.clone(), holding(3, 1))]));
        assert!(heard.has_changed().unwrap());
        assert_eq!(heard.borrow_and_update()[&run].generation, Generation(3));
        holdings.replace(HashMap::new());
        assert!(heard.borrow_and_update().is_empty());
        assert_eq!(holdings.generation(&run), Generation(0));
    }
}
