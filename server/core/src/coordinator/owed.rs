//! Orders that servers are owed. They are made when nothing else is left to be done: however much has
//! happened to a run until then, a server is told of it once, and of what is so by then.

use std::collections::BTreeSet;

use tradewind_common::{RunId, ServerId};

/// Whom runs owe an order.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// All servers that are up by then.
    all: BTreeSet<RunId>,
    one: BTreeSet<(RunId, ServerId)>,
}

impl Owed {
    /// All servers are to hear of a run.
    pub(super) fn all(&mut self, run: &RunId) {
        if !self.all.contains(run) {
            self.all.insert(run.clone());
        }
    }

    /// A server is to hear of a run.
    pub(super) fn one(&mut self, run: &RunId, server: ServerId) {
        self.one.insert((run.clone(), server));
    }

    /// The next that is to hear of a run, of the servers that are `up` now; `None` if nobody is owed one.
    pub(super) fn next<I: Iterator<Item = ServerId>>(
        &mut self,
        up: impl Fn() -> I,
    ) -> Option<(RunId, ServerId)> {
        while let Some(run) = self.all.pop_first() {
            self.one.extend(up().map(|server| (run.clone(), server)));
        }
        self.one.pop_first()
    }
}
