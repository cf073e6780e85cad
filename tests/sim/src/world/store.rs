//! What coordinators share in the folder: claims, states, and where the coordinator is. Each step on
//! it happens at once; between two of a process, others may take theirs.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_server::core::durable::Durable;

/// The folder of the coordinators.
#[derive(Debug, Default)]
pub(super) struct Store {
    claims: BTreeSet<u64>,
    states: BTreeMap<u64, Durable>,
    /// Which coordinator says that it is to be found.
    pub(super) address: Option<u64>,
}

impl Store {
    /// Claims to be the coordinator: the number of the new one.
    pub(super) fn claim(&mut self) -> u64 {
        let next = self.later(0).map_or(1, |last| last + 1);
        self.claims.insert(next);
        next
    }

    /// The last claim that is later than one.
    pub(super) fn later(&self, than: u64) -> Option<u64> {
        self.claims.last().copied().filter(|last| *last > than)
    }

    /// Writes a coordinator's state down.
    pub(super) fn write(&mut self, of: u64, state: Durable) {
        self.states.insert(of, state);
    }

    /// The newest state that was written by a coordinator before one. It goes the way of a file.
    pub(super) fn read(&self, before: u64) -> Option<Durable> {
        let (_, newest) = self.states.range(..before).next_back()?;
        let bytes = serde_json::to_vec(newest).expect("it can be written");
        Some(serde_json::from_slice(&bytes).expect("it can be read"))
    }

    /// Says where the coordinator is, unless a later one has said so.
    pub(super) fn publish(&mut self, of: u64) {
        if self.later(of).is_none() && self.address.is_none_or(|there| there < of) {
            self.address = Some(of);
        }
    }

    /// A run is resumed from a snapshot: nobody goes on from the states.
    pub(super) fn forget_states(&mut self) {
        self.states.clear();
    }
}
