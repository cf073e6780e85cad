//! The servers: which of them are up, and what crosses their processes.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::holders::Role;
use tradewind_common::{Incarnation, ServerId, ShardId};
use tradewind_core::log::Record;
use tradewind_core::order::Order;
use tradewind_core::view::{Acknowledge, View};

use super::event::{Life, Up};
use super::held::Held;
use super::running::{Around, Bond, Followed, Out, Outs, Running};
use super::witness::check_last;
use crate::checker::Checker;

/// The servers, up or not.
#[derive(Default)]
pub(super) struct Servers {
    servers: BTreeMap<ServerId, Server>,
    /// Those that never come back.
    gone: BTreeSet<ServerId>,
    /// Those that confirm nothing, and until when.
    muted: BTreeMap<ServerId, u64>,
}

/// A server through its lives.
#[derive(Default)]
struct Server {
    up: Option<Running>,
    lives: u64,
}

/// What becomes of an order that comes.
pub(super) enum Ordered {
    /// The process is no more, or has another connection.
    Unheard,
    /// It waits to be obeyed.
    Waits,
    /// Another coordinator has followed the one that sent it.
    Refused,
}

impl Servers {
    /// Enters the servers of a scenario.
    pub(super) fn enter(&mut self, count: u32) {
        for id in (0..count).map(ServerId) {
            self.servers.entry(id).or_default();
        }
    }

    /// The run is resumed on so many servers.
    pub(super) fn resume(&mut self, count: u32) {
        self.gone.clear();
        self.servers.retain(|id, _| id.0 < count);
    }

    pub(super) fn count(&self) -> u32 {
        self.servers.len() as u32
    }

    pub(super) fn ids(&self) -> Vec<ServerId> {
        self.servers.keys().copied().collect()
    }

    // Processes.

    /// The process of a server that is up.
    pub(super) fn life(&self, id: ServerId) -> Option<Life> {
        Some(self.servers.get(&id)?.up.as_ref()?.life())
    }

    pub(super) fn is_up(&self, life: Life) -> bool {
        self.life(life.server) == Some(life)
    }

    /// A process, if it is up.
    pub(super) fn process(&self, life: Life) -> Option<&Running> {
        let up = self.servers.get(&life.server)?.up.as_ref()?;
        (up.life() == life).then_some(up)
    }

    /// A process, if it is up.
    pub(super) fn process_mut(&mut self, life: Life) -> Option<&mut Running> {
        let up = self.servers.get_mut(&life.server)?.up.as_mut()?;
        (up.life() == life).then_some(up)
    }

    fn processes(&self) -> impl Iterator<Item = &Running> {
        self.servers
            .values()
            .filter_map(|server| server.up.as_ref())
    }

    /// Starts a process of a server that is not up.
    pub(super) fn start(&mut self, id: ServerId) -> Option<Life> {
        let server = self.servers.get_mut(&id).filter(|s| s.up.is_none())?;
        server.lives += 1;
        let life = Life {
            server: id,
            incarnation: Incarnation(server.lives),
        };
        server.up = Some(Running::new(life));
        Some(life)
    }

    /// The process of a server ends; which one it was.
    pub(super) fn end(&mut self, id: ServerId) -> Option<Life> {
        let up = self.servers.get_mut(&id)?.up.take()?;
        self.muted.remove(&id);
        Some(up.life())
    }

    /// A server never comes back, if enough are left then: somebody has to keep copies; and most of
    /// them have to be there, for otherwise it may be the coordinator that is cut off, and it waits for
    /// the others. Whether that is so.
    pub(super) fn lose(&mut self, id: ServerId, replication: u32) -> bool {
        let servers = self.servers.values();
        let known = servers.filter(|server| server.lives > 0).count() as u32;
        let left = known - self.gone.len() as u32;
        let enough = left > replication && 2 * (left - 1) > known;
        if enough {
            self.gone.insert(id);
        }
        enough
    }

    /// What a server confirms gets lost until then, or until its process ends.
    pub(super) fn mute(&mut self, id: ServerId, until_us: u64) {
        self.muted.insert(id, until_us);
    }

    // Connections.

    /// The connection of a process with a coordinator.
    pub(super) fn bond(&self, life: Life) -> Option<Bond> {
        self.process(life)?.bond
    }

    /// The connections with a coordinator.
    pub(super) fn bonds_with(&self, coordinator: u64) -> Vec<(Life, u64)> {
        let bonds = self.processes().filter_map(|up| {
            let bond = up.bond.filter(|bond| bond.coordinator == coordinator)?;
            Some((up.life(), bond.number))
        });
        bonds.collect()
    }

    /// The connections of primaries to a process of a copy.
    pub(super) fn ways_to(&self, copy: Life) -> Vec<(Life, ShardId, u64)> {
        let mut ways = Vec::new();
        for up in self.processes() {
            let to = |(id, held): (_, &Held)| Some((up.life(), id, held.ways.to(copy)?));
            ways.extend(up.shards().filter_map(to));
        }
        ways
    }

    /// A shard that a process holds, if it is up.
    pub(super) fn held(&mut self, life: Life, id: ShardId) -> Option<&mut Held> {
        self.process_mut(life)?.shard_mut(id)
    }

    /// A connection to a copy is tried, between servers that may be `cut` off from each other; `None`
    /// where it is not there, and is to be tried again.
    pub(super) fn link(
        &mut self,
        life: Life,
        (id, to, number): (ShardId, ServerId, u64),
        cut: bool,
        around: &mut Around<'_>,
    ) -> Option<Outs> {
        let up = self.life(to).map(|life| life.incarnation);
        let process = self.process_mut(life);
        let Some((process, linked)) = process.and_then(|process| {
            let held = process.shard_mut(id)?;
            let linked = held.ways.link(to, number, up, cut)?;
            Some((process, linked))
        }) else {
            return Some(Ok(Vec::new()));
        };
        linked.then(|| process.linked(id, to, around))
    }

    /// A record of a primary comes on a connection.
    pub(super) fn record(
        &mut self,
        life: Life,
        on: (Life, ShardId, u64),
        record: Record,
        around: &mut Around<'_>,
    ) -> Outs {
        let until_us = self.muted.get(&life.server);
        let mute = until_us.is_some_and(|until_us| around.now_us < *until_us);
        match self.process_mut(life) {
            Some(process) => process.record(on, record, mute, around),
            None => Ok(Vec::new()),
        }
    }

    // Orders.

    /// An order of a coordinator comes on a connection.
    pub(super) fn ordered(
        &mut self,
        life: Life,
        (bond, coordinator): (u64, u64),
        order: Box<Order>,
    ) -> Ordered {
        let process = self.process_mut(life);
        let on = |process: &&mut Running| process.bond.is_some_and(|own| own.number == bond);
        let Some(process) = process.filter(on) else {
            return Ordered::Unheard;
        };
        match process.orders.push(coordinator, order) {
            true => Ordered::Waits,
            false => Ordered::Refused,
        }
    }

    /// A process obeys an order.
    pub(super) fn obey(&mut self, life: Life, order: &Order, around: &mut Around<'_>) -> Outs {
        let mut outs = Vec::new();
        let Some(process) = self.process_mut(life) else {
            return Ok(outs);
        };
        if !process.begin(order, around, &mut outs)? {
            return Ok(outs);
        }
        for (index, holders) in order.holders.iter().enumerate() {
            let id = ShardId(index as u32);
            let last = around.witness.is_last(life, id, self, around.checker);
            outs.extend(match holders.role(life.server) {
                None => self.obeying(life).let_go(id, around)?,
                Some(role) => self.hold(life, (id, role), order, around)?,
            });
            if last {
                check_last(life, (id, holders), self, around.checker)?;
            }
        }
        Ok(outs)
    }

    fn obeying(&mut self, life: Life) -> &mut Running {
        self.process_mut(life).expect("it obeys")
    }

    fn hold(
        &mut self,
        life: Life,
        (id, role): (ShardId, Role),
        order: &Order,
        around: &mut Around<'_>,
    ) -> Outs {
        let tell = |report| Out::Tell(Up::Report(Box::new(report)));
        let process = self.obeying(life);
        let report = match process.follow((id, role), order, around)? {
            Followed::NotRestored(report) => return Ok(vec![tell(report)]),
            Followed::Holds {
                report,
                leads,
                fences,
            } => {
                if leads {
                    let holders = &order.holders[id.0 as usize];
                    let keepers = self.keepers(id, around.checker);
                    around.witness.goes_on(id, life.server, holders, keepers);
                }
                if let Some(since) = fences {
                    around.witness.fences(id, since);
                }
                report
            }
        };
        let mut outs = self.obeying(life).serve((id, role), order, around)?;
        outs.push(tell(report));
        Ok(outs)
    }

    // What others know of them.

    /// What a process acknowledged last of each of its shards.
    pub(super) fn seen(&self, id: ServerId) -> Vec<(ShardId, Acknowledge)> {
        let up = self.servers.get(&id).and_then(|server| server.up.as_ref());
        let shards = up.into_iter().flat_map(Running::shards);
        shards.map(|(id, held)| (id, held.seen().clone())).collect()
    }

    /// What the process of a server follows, and a shard that it holds.
    pub(super) fn shard_of(&mut self, id: ServerId, shard: ShardId) -> Option<(&View, &mut Held)> {
        let up = self.servers.get_mut(&id)?.up.as_mut()?;
        up.shard_in_view(shard)
    }

    /// The processes that have everything of a shard that was answered.
    pub(super) fn keepers(&self, id: ShardId, checker: &Checker) -> Vec<Life> {
        let keeps = self.processes().filter(|up| {
            let held = up.shard(id);
            held.is_some_and(|held| checker.has_all(id, held.shard()))
        });
        keeps.map(Running::life).collect()
    }

    /// Whether a process is a copy of a shard.
    pub(super) fn is_copy(&self, life: Life, id: ShardId) -> bool {
        let held = self.process(life).and_then(|up| up.shard(id));
        held.is_some_and(|held| matches!(held.shard().role(), Some(Role::Copy(_))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_servers_come_back() {
        let mut servers = Servers::default();
        servers.enter(4);
        for id in servers.ids() {
            assert!(servers.start(id).is_some() && servers.start(id).is_none());
        }
        assert!(servers.lose(ServerId(3), 2), "three of four are left");
        assert!(!servers.lose(ServerId(2), 2), "it would be half of them");
        let life = servers.end(ServerId(3)).expect("it was up");
        assert!(!servers.is_up(life));
        let next = servers.start(ServerId(3)).expect("it is not up");
        assert!(next.incarnation > life.incarnation);
    }
}
