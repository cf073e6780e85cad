//! What has changed in a ledger since it was written down, which is no longer than the change.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Forgotten, Ledger, Owner, one_or_more};
use crate::ids::GroupId;

/// Of what in a ledger something is not written down. It is no part of what the ledger is.
#[derive(Clone, Debug, Default)]
pub(super) struct Unwritten {
    pub(super) chunks: BTreeSet<u64>,
    pub(super) sets: BTreeSet<u32>,
    /// Anything at all.
    pub(super) any: bool,
}

impl PartialEq for Unwritten {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Unwritten {}

/// What has become of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Chunk {
    /// It is out, since this lease if that is known.
    Held(Owner, Option<u64>),
    /// It has come back.
    Returned,
    /// It had come back, and may have been leased again.
    Doubted,
    /// It is finished, or was never leased.
    Gone,
}

/// What has changed in a ledger. It grows with what has happened, and with the number of sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerChange {
    #[serde(with = "one_or_more")]
    next: Vec<u64>,
    leases: u64,
    unused: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_more")]
    forgotten: Vec<Forgotten>,
    chunks: BTreeMap<u64, Chunk>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    takers: BTreeMap<u32, GroupId>,
}

impl Ledger {
    /// What has changed since this was last asked, if anything has.
    pub fn take_change(&mut self) -> Option<LedgerChange> {
        let Unwritten { chunks, sets, any } = std::mem::take(&mut self.unwritten);
        let chunk = |number: u64| {
            let is = if let Some(owner) = self.held.owner(number) {
                Chunk::Held(owner, self.leased.get(&number).copied())
            } else if self.returned.contains(&number) {
                Chunk::Returned
            } else if self.doubted.contains(&number) {
                Chunk::Doubted
            } else {
                Chunk::Gone
            };
            (number, is)
        };
        let taker = |set: u32| Some((set, *self.takers.get(&set)?));
        any.then(|| LedgerChange {
            next: self.next.clone(),
            leases: self.leases,
            unused: self.unused,
            forgotten: self.forgotten.clone(),
            chunks: chunks.into_iter().map(chunk).collect(),
            takers: sets.into_iter().filter_map(taker).collect(),
        })
    }

    /// Makes a change that was written down.
    pub fn change(&mut self, change: LedgerChange) {
        (self.next, self.forgotten) = (change.next, change.forgotten);
        (self.leases, self.unused) = (change.leases, change.unused);
        for (number, is) in change.chunks {
            self.held.take(number);
            self.leased.remove(&number);
            self.returned.remove(&number);
            self.doubted.remove(&number);
            match is {
                Chunk::Held(owner, lease) => {
                    self.held.lend(number, owner);
                    self.leased.extend(lease.map(|lease| (number, lease)));
                }
                Chunk::Returned => {
                    self.returned.insert(number);
                }
                Chunk::Doubted => {
                    self.doubted.insert(number);
                }
                Chunk::Gone => {}
            }
        }
        self.takers.extend(change.takers);
    }
}
