//! What coordinators share in the folder: claims, states, and where the coordinator is. Each step on
//! it happens at once; between two of a process, others may take theirs.
//!
//! A listing may be old, as on NFS, where its reader has not changed the folder since: whoever has
//! created or renamed a file in it is shown it as it is.

use std::collections::BTreeMap;

use tradewind_core::durable::{Change, Durable};

/// What a coordinator writes down.
#[derive(Clone, Debug)]
pub(super) enum Writing {
    /// All that there is.
    All(Box<Durable>),
    /// What has changed since it wrote last.
    Change(Box<Change>),
}

/// The folder of the coordinators.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// Claims, and when each was made.
    claims: BTreeMap<u64, u64>,
    states: BTreeMap<u64, Durable>,
    /// Which coordinator says that it is to be found.
    address: Option<u64>,
    /// Until when listings are old, and how old at most.
    old: Option<(u64, u64)>,
}

impl Store {
    /// Which coordinator says that it is to be found.
    pub(super) fn address(&self) -> Option<u64> {
        self.address
    }

    /// Listings are old until then, by so much at most.
    pub(super) fn age_listings(&mut self, until_us: u64, by_us: u64) {
        self.old = Some((until_us, by_us));
    }

    /// When a listing was taken that somebody is shown now.
    fn listed_us(&self, now_us: u64) -> u64 {
        let old = self.old.filter(|(until_us, _)| now_us < *until_us);
        now_us.saturating_sub(old.map_or(0, |(_, by_us)| by_us))
    }

    /// Claims to be the coordinator: the number of the new one; `None` if the listing did not show
    /// that the number is taken.
    pub(super) fn claim(&mut self, now_us: u64) -> Option<u64> {
        let next = self.later_listed(0, now_us).map_or(1, |last| last + 1);
        if self.claims.contains_key(&next) {
            return None;
        }
        self.claims.insert(next, now_us);
        Some(next)
    }

    /// The last claim that is later than one, to somebody who has just changed the folder.
    pub(super) fn later(&self, than: u64) -> Option<u64> {
        let (last, _) = self.claims.last_key_value()?;
        Some(*last).filter(|last| *last > than)
    }

    /// The same to somebody who only looks.
    pub(super) fn later_listed(&self, than: u64, now_us: u64) -> Option<u64> {
        let listed_us = self.listed_us(now_us);
        let claims = self.claims.iter();
        let shown = claims.filter(|(_, made_us)| **made_us <= listed_us);
        let last = shown.map(|(number, _)| *number).max();
        last.filter(|last| *last > than)
    }

    /// Writes a coordinator's state down, or what has changed in it, which goes the way of a file. What
    /// is there then.
    pub(super) fn write(&mut self, of: u64, writing: Writing) -> &Durable {
        match writing {
            Writing::All(durable) => {
                self.states.insert(of, *durable);
            }
            Writing::Change(change) => {
                let bytes = serde_json::to_vec(&change).expect("it can be written");
                let change = serde_json::from_slice(&bytes).expect("it can be read");
                let state = self.states.get_mut(&of).expect("all was written first");
                state.change(change).expect("it is behind its state");
            }
        }
        &self.states[&of]
    }

    /// The newest state that was written by a coordinator before one, which has just claimed. It goes
    /// the way of a file.
    pub(super) fn read(&self, before: u64) -> Option<Durable> {
        let (_, newest) = self.states.range(..before).next_back()?;
        let bytes = serde_json::to_vec(newest).expect("it can be written");
        Some(serde_json::from_slice(&bytes).expect("it can be read"))
    }

    /// Says where the coordinator is, unless a later one has said so.
    pub(super) fn publish(&mut self, of: u64, now_us: u64) {
        let later = self.later_listed(of, now_us);
        if later.is_none() && self.address.is_none_or(|there| there < of) {
            self.address = Some(of);
        }
    }

    /// A run is resumed from a snapshot: nobody goes on from the states.
    pub(super) fn forget_states(&mut self) {
        self.states.clear();
    }
}
