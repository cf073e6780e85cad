//! Who holds each shard, and who takes over when a server is gone (rule 4).

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use tradewind_common::holders::{CopyHolder, Holders, Primary};
use tradewind_common::{Generation, Incarnation, ServerId, ShardId};

use super::{Phase, Run};
use crate::core::event::{Event, EventKind};
use crate::core::fleet::{Fleet, Presence};
use crate::core::order::Restore;

/// A shard that nobody answers for: its last primary, which may have been cut off only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Orphan {
    primary: Primary,
    incarnation: Incarnation,
}

/// The first holders of a run's shards: shard i lies on server i, its copies on the next ones, on
/// other hosts where there are some.
pub(super) fn spread(fleet: &Fleet, replication: u32) -> Vec<Holders> {
    let servers = fleet.expected();
    let place = |shard: u32| {
        let mut holders = Holders::alone(ServerId(shard));
        while holders.copies.len() + 1 < replication as usize {
            let mut others = (1..servers).map(|next| ServerId((shard + next) % servers));
            let mut free = others.by_ref().filter(|id| holders.role(*id).is_none());
            let first = free.next();
            let mut apart = first.into_iter().chain(free);
            let Some(server) = apart
                .find(|id| !shares_host(fleet, &holders, *id))
                .or(first)
            else {
                break;
            };
            holders.copies.push(empty_copy(server, Generation(0)));
        }
        holders
    };
    (0..servers).map(place).collect()
}

fn empty_copy(server: ServerId, since: Generation) -> CopyHolder {
    CopyHolder {
        server,
        since,
        full: false,
    }
}

fn shares_host(fleet: &Fleet, holders: &Holders, server: ServerId) -> bool {
    let host = fleet.host(server);
    holders.servers().any(|holder| fleet.host(holder) == host)
}

/// Copies of a log that ends are filled anew by the next one.
fn begin_anew(copies: &mut [CopyHolder], since: Generation) {
    for copy in copies {
        copy.since = since;
        copy.full = false;
    }
}

impl Run {
    pub(super) fn primary(&self, shard: ShardId) -> Option<Primary> {
        self.holders[shard.0 as usize].primary
    }

    /// A server is gone: it keeps no copies any more, and full copies take over what it answered
    /// for. A copy that is not full never does.
    pub(in crate::core) fn server_lost(
        &mut self,
        server: ServerId,
        incarnation: Incarnation,
        fleet: &Fleet,
        now_ms: u64,
    ) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        self.acknowledged.retain(|(_, holder), _| *holder != server);
        let next = self.generation.next();
        let (mut changed, mut disturbed) = (false, false);
        for shard in self.shards() {
            disturbed |= self.primary(shard).is_some_and(|p| p.server == server)
                && self.snapshots.capture(shard).is_some();
            let holders = &mut self.holders[shard.0 as usize];
            let before = holders.copies.len();
            holders.copies.retain(|copy| copy.server != server);
            if holders.copies.len() < before {
                changed = true;
                let text = format!("server {server} keeps no copy of shard {shard} any more");
                let event = Event::new(EventKind::CopyRemoved, text);
                self.tell(event.server(server).shard(shard));
                continue;
            }
            let Some(primary) = holders.primary.filter(|p| p.server == server) else {
                continue;
            };
            changed = true;
            let full = || holders.copies.iter().filter(|copy| copy.full);
            // Others may be gone, too, and not be missed yet: who was heard last, most likely is not.
            let heir = full().map(|copy| copy.server);
            let heir = heir.min_by_key(|id| Reverse((fleet.is_up(*id), fleet.until_ms(*id))));
            holders.primary = heir.map(|server| Primary {
                server,
                since: next,
            });
            holders.copies.retain(|copy| Some(copy.server) != heir);
            let event = match heir {
                Some(heir) => {
                    begin_anew(&mut holders.copies, next);
                    // What it said as a copy does not count: its predecessor may have gone on.
                    self.acknowledged.retain(|(of, _), _| *of != shard);
                    let text = format!(
                        "server {heir} answers for shard {shard}, of which it has a full copy: server {server} is gone"
                    );
                    Event::new(EventKind::Promoted, text).server(heir)
                }
                None => {
                    let orphan = Orphan {
                        primary,
                        incarnation,
                    };
                    self.orphans.insert(shard, orphan);
                    let text = format!(
                        "nobody answers for shard {shard}: server {server} is gone, and there is no full copy"
                    );
                    Event::new(EventKind::Orphaned, text).server(server)
                }
            };
            self.tell(event.shard(shard));
        }
        if changed {
            self.change();
        }
        if disturbed {
            self.disturb_snapshots();
        }
        self.advance(now_ms);
    }

    /// Finds holders for what lacks some: after a server has come, or one is not waited for any
    /// more. What was lost in spite of copies is restored elsewhere only where most servers can be
    /// seen: otherwise it may be the coordinator that is cut off, and the servers have everything.
    pub(in crate::core) fn place(&mut self, came: Option<ServerId>, fleet: &Fleet, now_ms: u64) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        for (shard, orphan) in self.orphans.clone() {
            let last = orphan.primary.server;
            let presence = fleet.presence(last);
            let here = presence == Some(Presence::Up);
            if here && fleet.incarnation(last) == Some(orphan.incarnation) {
                self.go_on(shard, orphan.primary);
            } else if here {
                self.start_anew(shard, last);
            } else if presence == Some(Presence::GivenUp)
                && (self.spec.faults.replication == 1 || fleet.sees_most())
                && let Some(server) = fleet.up().min_by_key(|id| (self.holdings(*id), *id))
            {
                self.start_anew(shard, server);
            }
        }
        self.add_copies(came, fleet);
        self.advance(now_ms);
    }

    /// The last primary of a shard was only cut off: it has all that it ever answered.
    fn go_on(&mut self, shard: ShardId, primary: Primary) {
        self.orphans.remove(&shard);
        self.holders[shard.0 as usize].primary = Some(primary);
        self.change();
        let server = primary.server;
        let text = format!("server {server} was only cut off and answers for shard {shard} again");
        let event = Event::new(EventKind::Promoted, text);
        self.tell(event.server(server).shard(shard));
    }

    /// The values of a shard are gone: a server restores them, or they are created again where no
    /// training has happened.
    fn start_anew(&mut self, shard: ShardId, server: ServerId) {
        let since = self.generation.next();
        let former = self.restoring.get(&shard).copied();
        let from_snapshot = former.or_else(|| {
            self.snapshots.newest().map(|newest| Restore {
                shard,
                newest,
                only: false,
            })
        });
        let created = matches!(self.phase, Phase::Ready | Phase::Restoring);
        if created && from_snapshot.is_none() {
            let last = self.orphans[&shard].primary.server;
            self.fail(format!(
                "shard {shard} was lost with server {last}: it had no full copy, and there is no snapshot"
            ));
        }
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        self.orphans.remove(&shard);
        self.acknowledged.retain(|(of, _), _| *of != shard);
        let holders = &mut self.holders[shard.0 as usize];
        holders.primary = Some(Primary { server, since });
        holders.copies.retain(|copy| copy.server != server);
        begin_anew(&mut holders.copies, since);
        match from_snapshot.filter(|_| created) {
            Some(restore) => {
                holders.lineage = since;
                self.restoring.insert(shard, restore);
            }
            None => self.create_again(),
        }
        self.change();
    }

    /// What has been created is gone in part. The creator joins anew, so that what it said of the
    /// first time is not taken for the second.
    fn create_again(&mut self) {
        self.disturb_snapshots();
        if let Phase::Creating(creator, ..) = self.phase {
            let text = format!("group {creator} forms anew: what it created is lost with a server");
            let event = Event::new(EventKind::GroupReforms, text);
            self.tell(event.group(creator));
            self.gather(creator);
        }
    }

    /// Adds copies on the server that has come; on others only when nobody is waited for, because
    /// whoever comes back would find its place taken.
    fn add_copies(&mut self, came: Option<ServerId>, fleet: &Fleet) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        let since = self.generation.next();
        let mut changed = false;
        for shard in self.shards() {
            loop {
                let holders = &self.holders[shard.0 as usize];
                let lacks = holders.servers().count() < self.spec.faults.replication as usize;
                if holders.primary.is_none() || !lacks {
                    break;
                }
                let up = fleet.up().filter(|id| came == Some(*id) || !fleet.waits());
                let free = up.filter(|id| holders.role(*id).is_none());
                let order =
                    |id: &ServerId| (shares_host(fleet, holders, *id), self.holdings(*id), *id);
                let Some(server) = free.min_by_key(order) else {
                    break;
                };
                let holders = &mut self.holders[shard.0 as usize];
                holders.copies.push(empty_copy(server, since));
                changed = true;
                let text = format!("server {server} is to keep a copy of shard {shard}");
                let event = Event::new(EventKind::CopyAdded, text);
                self.tell(event.server(server).shard(shard));
            }
        }
        if changed {
            self.change();
        }
    }

    /// How many shards of the run a server holds.
    fn holdings(&self, server: ServerId) -> usize {
        let roles = self.holders.iter().map(|holders| holders.role(server));
        roles.flatten().count()
    }
}
