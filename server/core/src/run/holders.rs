//! Who holds each shard, and who takes over when a server is gone (rule 4).
//!
//! While a primary answers, a copy is removed once the primary has followed an order of after the
//! copy was missed: a coordinator that reaches neither of them decides nothing about either.
//!
//! When the primary is missed, nobody answers. It and its full copies are candidates, as long as they
//! are not known to be dead. One that is there is chosen as the heir, and acknowledges: from then on it
//! refuses what its predecessor sends, so that the predecessor, whose answers wait for all its
//! copies, answers nothing more. Only then, and when that is written down, it is the primary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tradewind_common::holders::Holders;
use tradewind_common::{Generation, ServerId, ShardId};

mod holding;

pub(crate) use self::holding::LostServer;
use self::holding::Missed;
pub(super) use self::holding::{Choice, Holding};
use super::outbox::Outbox;
use super::reports::Reports;
use crate::fleet::Fleet;
use crate::order::Restore;

/// Copies that are missed, since which generation, by shard.
pub(super) type Departing = BTreeMap<ShardId, BTreeMap<ServerId, Generation>>;

/// Whom shards miss after a server is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MissedHolders {
    /// Whether any shard misses somebody.
    pub(super) any: bool,
    /// Shards that miss their primary.
    pub(super) primaries: Vec<ShardId>,
}

/// The holders of all shards, as they are written down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WrittenHolders {
    /// By shard.
    pub(super) holders: Vec<Holders>,
    /// Who held shards before their primary was missed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) interrupted: BTreeMap<ShardId, Holders>,
    /// Copies that are missed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) departing: Departing,
    /// Shards whose heir has to restore them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) restoring: BTreeMap<ShardId, Restore>,
}

/// The holders of all shards of a run.
#[derive(Clone, Debug)]
pub(super) struct ShardHolders {
    /// By shard.
    shards: Vec<Holding>,
    /// Something may have changed since this was last looked at.
    touched: bool,
    /// What was written down then.
    known: WrittenHolders,
}

impl ShardHolders {
    /// Those of a run that begins, with so many holders of each shard.
    pub(super) fn first(fleet: &Fleet, replication: u32) -> Self {
        let shards = (0..fleet.expected()).map(ShardId);
        let first = |shard| Holding::first(shard, fleet, replication);
        Self::of_all(shards.map(first).collect())
    }

    fn of_all(shards: Vec<Holding>) -> Self {
        Self {
            shards,
            touched: true,
            known: WrittenHolders::default(),
        }
    }

    /// What has changed since this was last asked, if anything has: all of them.
    pub(super) fn take_change(&mut self) -> Option<WrittenHolders> {
        if !std::mem::take(&mut self.touched) {
            return None;
        }
        let now = self.written();
        let changed = now != self.known;
        if changed {
            self.known.clone_from(&now);
        }
        changed.then_some(now)
    }

    /// Every shard is restored from this snapshot by its first holder alone, its heir in generation
    /// `since`.
    pub(super) fn resume(&mut self, number: u64, since: Generation) {
        self.touched = true;
        for holding in &mut self.shards {
            holding.resume(number, since);
        }
    }

    /// Those that were written down.
    pub(super) fn read(mut written: WrittenHolders) -> Self {
        let shard = |(number, holders)| {
            let shard = ShardId(number as u32);
            Holding::of(shard, holders).with_written(
                written.interrupted.remove(&shard),
                written.departing.remove(&shard).unwrap_or_default(),
                written.restoring.remove(&shard),
            )
        };
        let holders = std::mem::take(&mut written.holders);
        Self::of_all(holders.into_iter().enumerate().map(shard).collect())
    }

    /// As they are written down.
    pub(super) fn written(&self) -> WrittenHolders {
        let mut written = WrittenHolders::default();
        for (shard, holding) in self.ids().zip(&self.shards) {
            written.holders.push(holding.holders().clone());
            if let Some(before) = holding.interrupted() {
                written.interrupted.insert(shard, before.clone());
            }
            if !holding.departing().is_empty() {
                let departing = holding.departing().clone();
                written.departing.insert(shard, departing);
            }
            if let Some(restore) = holding.restore() {
                written.restoring.insert(shard, restore);
            }
        }
        written
    }

    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shards.len() as u32).map(ShardId)
    }

    /// The holders of a shard that there is.
    pub(super) fn of(&self, shard: ShardId) -> &Holding {
        &self.shards[shard.0 as usize]
    }

    pub(super) fn of_mut(&mut self, shard: ShardId) -> &mut Holding {
        self.touched = true;
        &mut self.shards[shard.0 as usize]
    }

    /// The holders of a shard, if there is one of that number.
    pub(super) fn get(&self, shard: ShardId) -> Option<&Holding> {
        self.shards.get(shard.0 as usize)
    }

    /// By shard.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Holders> {
        self.shards.iter().map(Holding::holders)
    }

    /// What a server has to restore as an heir.
    pub(super) fn to_restore(&self, server: ServerId) -> impl Iterator<Item = Restore> + '_ {
        let shards = self.shards.iter();
        let heir = shards.filter(move |holding| holding.is_heir(server));
        heir.filter_map(Holding::restore)
    }

    /// Whether every shard has a primary.
    pub(super) fn answer_everywhere(&self) -> bool {
        self.shards.iter().all(|shard| shard.primary().is_some())
    }

    /// Whether something about holders waits for a word of a server, or for time to pass.
    pub(super) fn are_unsettled(&self) -> bool {
        self.shards.iter().any(Holding::is_unsettled)
    }

    /// Whether a snapshot may be read by an heir.
    pub(super) fn restore_any(&self) -> bool {
        self.shards.iter().any(|shard| shard.restore().is_some())
    }

    /// Whether every holder of every shard has all its values.
    pub(super) fn are_complete(&self, reports: &Reports) -> bool {
        self.shards.iter().all(|shard| shard.is_complete(reports))
    }

    /// Whether the primary of every shard has all its values, from a snapshot if need be.
    pub(super) fn are_restored(&self, reports: &Reports) -> bool {
        self.shards.iter().all(|shard| shard.is_restored(reports))
    }

    /// The generation that every shard's primary follows, or a later one; `None` if one follows
    /// none, or a shard has no primary.
    pub(super) fn followed(&self, reports: &Reports) -> Option<Generation> {
        let followed = self.shards.iter().map(|shard| shard.followed(reports));
        followed.min().flatten()
    }

    /// A life of a server is gone.
    pub(super) fn lose(
        &mut self,
        lost: LostServer,
        fleet: &Fleet,
        out: &mut Outbox,
    ) -> MissedHolders {
        self.touched = true;
        let mut missed = MissedHolders::default();
        for (number, holding) in self.shards.iter_mut().enumerate() {
            match holding.lose(lost, fleet, out) {
                Missed::Nobody => continue,
                Missed::Primary => missed.primaries.push(ShardId(number as u32)),
                Missed::Other => {}
            }
            missed.any = true;
        }
        missed
    }

    /// Adds copies on the server that has come; on others only when nobody is waited for, because
    /// whoever comes back would find its place taken. Whether there are any.
    pub(super) fn add_copies(
        &mut self,
        newcomer: Option<ServerId>,
        replication: u32,
        fleet: &Fleet,
        out: &mut Outbox,
    ) -> bool {
        let allowed = |id| newcomer == Some(id) || !fleet.waits();
        let mut changed = false;
        for shard in self.ids() {
            loop {
                let held = |server| self.held(server);
                let place = self
                    .of(shard)
                    .place_for_copy(replication, fleet, allowed, held);
                let Some(server) = place else {
                    break;
                };
                self.of_mut(shard).add_copy(server, out);
                changed = true;
            }
        }
        changed
    }

    /// The server that is up and holds least.
    pub(super) fn least_loaded(&self, fleet: &Fleet) -> Option<ServerId> {
        fleet.up().min_by_key(|id| (self.held(*id), *id))
    }

    /// How many shards of the run a server holds.
    fn held(&self, server: ServerId) -> usize {
        let roles = self.shards.iter().map(|shard| shard.role(server));
        roles.flatten().count()
    }

    /// The run does not go on: nobody is to take over any more.
    pub(super) fn end(&mut self) {
        self.touched = true;
        self.shards.iter_mut().for_each(Holding::end);
    }

    /// For whom a shard waits that nobody answers for.
    pub(super) fn waits_for(&self, shard: ShardId, fleet: &Fleet) -> Vec<String> {
        self.of(shard).waits_for(fleet)
    }
}
