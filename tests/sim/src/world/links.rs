//! Connections that keep their order until they break: a server's bond with the coordinator, a
//! primary's ways to its copies. What was under way on one that broke may still arrive for a while,
//! also when the next one is there.

use std::collections::BTreeMap;

use tradewind_common::holders::Role;
use tradewind_common::{Generation, Incarnation, ServerId, ShardId};
use tradewind_server::core::log::{Confirm, Record};
use tradewind_server::core::order::Order;

use super::World;
use super::event::{Done, Event, Life, Told, Up};
use super::server::Bond;
use crate::checker::Violation;
use crate::net::Party;
use crate::scenario::LEASE_MS;

/// Pause before a broken connection is made again.
const RETRY_US: u64 = 100_000;

/// Beats of a server in a lease.
const BEATS: u64 = 5;

/// A connection, or what is left of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// When the last message arrives, one way and back.
    last_us: [u64; 2],
    /// What would arrive later does not.
    until_us: Option<u64>,
    /// Nothing passes while this lasts; it goes on then.
    held_until_us: u64,
}

/// A primary's way to a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    since: Generation,
    incarnation: Incarnation,
    number: u64,
    linked: bool,
}

/// Whether a connection is one to the coordinator.
fn bond(from: Party, to: Party) -> bool {
    from == Party::Coordinator || to == Party::Coordinator
}

/// The connections.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: BTreeMap<u64, Link>,
    next: u64,
}

impl Links {
    fn open(&mut self) -> u64 {
        self.next += 1;
        self.links.insert(self.next, Link::default());
        self.next
    }

    /// Whether a message that arrives now does.
    pub(super) fn delivers(&self, number: u64, now_us: u64) -> bool {
        let link = self.links.get(&number);
        link.is_some_and(|link| link.until_us.is_none_or(|until| now_us <= until))
    }

    /// Whether it has not broken.
    pub(super) fn lives(&self, number: u64) -> bool {
        let link = self.links.get(&number);
        link.is_some_and(|link| link.until_us.is_none())
    }

    fn end(&mut self, number: u64, until_us: u64) {
        if let Some(link) = self.links.get_mut(&number) {
            let until = link.until_us.unwrap_or(u64::MAX);
            link.until_us = Some(until.min(until_us));
        }
    }
}

impl World {
    /// When a message on a connection arrives; `None` if the connection breaks instead.
    fn on_link(&mut self, number: u64, back: bool, from: Party, to: Party) -> Option<u64> {
        let now_us = self.now_us;
        let link = *self.links.links.get(&number)?;
        if link.until_us.is_some() {
            return None;
        }
        // A server whose bond breaks is taken for dead: a fault that comes when it may.
        let spared = self.scenario.promise && bond(from, to);
        let mut begins_us = now_us.max(link.held_until_us);
        if let Some(until_us) = self.network.cut_until(now_us, from, to) {
            // Some wait for what is lost to be sent again; others give up.
            if !spared && begins_us <= now_us && self.network.coin() {
                return None;
            }
            begins_us = begins_us.max(until_us);
        }
        if !spared && self.network.breaks() {
            return None;
        }
        let last_us = link.last_us[usize::from(back)];
        let at_us = (begins_us + self.network.draw_us()).max(last_us + 1);
        let link = self.links.links.get_mut(&number)?;
        link.last_us[usize::from(back)] = at_us;
        link.held_until_us = if begins_us > now_us { begins_us } else { 0 };
        Some(at_us)
    }

    // Bonds.

    /// A server looks for the coordinator.
    pub(super) fn connect(&mut self, life: Life) {
        let at = self.store.address;
        let Some(server) = self.running(life) else {
            return;
        };
        if server.bond.is_some() {
            return;
        }
        let obeyed = server.obeyed;
        let party = Party::Server(life.server);
        let cut = self
            .network
            .cut_until(self.now_us, party, Party::Coordinator);
        let found = at.filter(|n| *n >= obeyed && self.coordinators.contains_key(n));
        let Some(n) = found.filter(|_| cut.is_none()) else {
            return self.after(RETRY_US, Event::Server(life, Done::Connect));
        };
        let number = self.links.open();
        let server = self.running(life).expect("looked up above");
        server.bond = Some(Bond {
            number,
            coordinator: n,
        });
        self.report_up(life, Up::Register);
        let every_us = LEASE_MS * 1000 / BEATS;
        self.after(every_us, Event::Server(life, Done::Beat(number)));
    }

    /// A server tells its coordinator something, if it has one.
    pub(super) fn report_up(&mut self, life: Life, up: Up) {
        let Some(bond) = self.running(life).and_then(|server| server.bond) else {
            return;
        };
        let (from, to) = (Party::Server(life.server), Party::Coordinator);
        match self.on_link(bond.number, false, from, to) {
            Some(at_us) => {
                let told = Told::Server(life, bond.number, up);
                self.at(at_us, Event::Coordinator(bond.coordinator, told));
            }
            None => self.break_bond(life, bond.number),
        }
    }

    pub(super) fn beat(&mut self, life: Life, number: u64) {
        let Some(bond) = self.running(life).and_then(|server| server.bond) else {
            return;
        };
        if bond.number != number {
            return;
        }
        // The folder says where the coordinator is, and it is read with every beat.
        let moved = self.store.address.is_some_and(|n| n > bond.coordinator);
        if moved || self.silent(bond.coordinator) {
            self.break_bond(life, number);
        } else {
            let every_us = LEASE_MS * 1000 / BEATS;
            self.after(every_us, Event::Server(life, Done::Beat(number)));
            self.report_up(life, Up::Beat);
        }
    }

    pub(super) fn send_order(&mut self, n: u64, bond: u64, order: Box<Order>) {
        let server = order.server;
        let up = self.servers.get(&server).and_then(|s| s.up.as_ref());
        let Some(life) = up.map(|up| up.life) else {
            return;
        };
        match self.on_link(bond, true, Party::Coordinator, Party::Server(server)) {
            Some(at_us) => self.at(at_us, Event::Server(life, Done::Order(bond, n, order))),
            None => self.break_bond(life, bond),
        }
    }

    /// A bond breaks; each side notices in its own time.
    pub(super) fn break_bond(&mut self, life: Life, number: u64) {
        if !self.links.lives(number) {
            return;
        }
        self.report.counts.links_broken += 1;
        self.links.end(number, self.now_us);
        let here_us = self.network.notice(self.now_us);
        self.at(here_us, Event::Server(life, Done::BondBroke(number)));
        let up = self.servers.get(&life.server).and_then(|s| s.up.as_ref());
        let bond = up
            .and_then(|up| up.bond)
            .filter(|bond| bond.number == number);
        let at = bond.map(|bond| bond.coordinator);
        let at = at.or_else(|| {
            let has = |host: &super::coordinator::Host| host.bonds.values().any(|b| *b == number);
            let hosts = self.coordinators.iter();
            hosts.filter(|(_, host)| has(host)).map(|(n, _)| *n).next()
        });
        if let Some(n) = at {
            let there_us = self.network.notice(self.now_us);
            let told = Told::ServerLost(life, number);
            self.at(there_us, Event::Coordinator(n, told));
        }
    }

    pub(super) fn bond_broke(&mut self, life: Life, number: u64) {
        let Some(server) = self.running(life) else {
            return;
        };
        if server.bond.is_some_and(|bond| bond.number == number) {
            server.bond = None;
            self.links.end(number, self.now_us);
            self.after(RETRY_US, Event::Server(life, Done::Connect));
        }
    }

    /// An order comes on a bond; one of a coordinator that another has followed ends it.
    pub(super) fn ordered(
        &mut self,
        life: Life,
        (bond, n): (u64, u64),
        order: Box<Order>,
    ) -> Result<(), Violation> {
        let delivers = self.links.delivers(bond, self.now_us);
        let Some(server) = self.running(life) else {
            return Ok(());
        };
        if !delivers || server.bond.is_none_or(|own| own.number != bond) {
            return Ok(());
        }
        if n < server.obeyed {
            self.break_bond(life, bond);
            return Ok(());
        }
        server.obeyed = n;
        self.order(life, order)
    }

    // Ways.

    /// A primary has ways to its copies and no others.
    pub(super) fn follow_ways(&mut self, life: Life, id: ShardId, order: &Order, role: Role) {
        let copies = match role {
            Role::Primary(_) => &order.holders[id.0 as usize].copies[..],
            Role::Copy(_) => &[],
        };
        let wanted = copies.iter().filter_map(|copy| {
            let server = order.servers.get(&copy.server)?;
            Some((copy.server, (copy.since, server.incarnation)))
        });
        let wanted: BTreeMap<_, _> = wanted.collect();
        let server = self
            .servers
            .get_mut(&life.server)
            .and_then(|s| s.up.as_mut());
        let held = server.and_then(|up| up.shards.get_mut(&id));
        let held = held.expect("it is held");
        let stays =
            |to: &ServerId, way: &Way| wanted.get(to) == Some(&(way.since, way.incarnation));
        let gone: Vec<_> = held
            .ways
            .extract_if(.., |to, way| !stays(to, way))
            .collect();
        let mut new = Vec::new();
        for (to, (since, incarnation)) in wanted {
            if held.ways.contains_key(&to) {
                continue;
            }
            let number = self.links.open();
            let way = Way {
                since,
                incarnation,
                number,
                linked: false,
            };
            held.ways.insert(to, way);
            new.push((to, number));
        }
        for (_, way) in gone {
            let rest_us = self.network.between(0, 20_000);
            self.links.end(way.number, self.now_us + rest_us);
        }
        for (to, number) in new {
            let takes_us = self.network.draw_us();
            self.after(takes_us, Event::Server(life, Done::Link(id, to, number)));
        }
    }

    /// A way is tried: it is there if the copy's process is.
    pub(super) fn link(
        &mut self,
        life: Life,
        id: ShardId,
        to: ServerId,
        number: u64,
    ) -> Result<(), Violation> {
        let (here, there) = (Party::Server(life.server), Party::Server(to));
        let cut = self.network.cut_until(self.now_us, here, there).is_some();
        let up = self.servers.get(&to).and_then(|s| s.up.as_ref());
        let up = up.map(|up| up.life.incarnation);
        let Some(server) = self.running(life) else {
            return Ok(());
        };
        let Some(held) = server.shards.get_mut(&id) else {
            return Ok(());
        };
        let Some(way) = held.ways.get_mut(&to).filter(|way| way.number == number) else {
            return Ok(());
        };
        if cut || up != Some(way.incarnation) {
            self.after(RETRY_US, Event::Server(life, Done::Link(id, to, number)));
            return Ok(());
        }
        way.linked = true;
        held.shard.handle_link(to);
        self.drain_shard(life, id, &[])
    }

    /// A record leaves, if there is a way.
    pub(super) fn send_record(&mut self, life: Life, id: ShardId, to: ServerId, record: Record) {
        let Some(server) = self.running(life) else {
            return;
        };
        let way = server.shards.get(&id).and_then(|held| held.ways.get(&to));
        let Some(way) = way.copied().filter(|way| way.linked) else {
            return;
        };
        let copy = Life {
            server: to,
            incarnation: way.incarnation,
        };
        let (here, there) = (Party::Server(life.server), Party::Server(to));
        match self.on_link(way.number, false, here, there) {
            Some(at_us) => {
                let done = Done::Record(life, id, way.number, Box::new(record));
                self.at(at_us, Event::Server(copy, done));
            }
            None => self.break_way(life, id, to, way.number),
        }
    }

    pub(super) fn send_confirm(
        &mut self,
        copy: Life,
        primary: Life,
        id: ShardId,
        way: u64,
        confirm: Confirm,
    ) {
        let (here, there) = (Party::Server(copy.server), Party::Server(primary.server));
        match self.on_link(way, true, here, there) {
            Some(at_us) => {
                let done = Done::Confirm(id, way, confirm);
                self.at(at_us, Event::Server(primary, done));
            }
            None => self.break_way(primary, id, copy.server, way),
        }
    }

    /// A copy refuses what comes on a way, and ends it.
    pub(super) fn refuse_way(&mut self, primary: Life, id: ShardId, copy: ServerId, way: u64) {
        self.links.end(way, self.now_us);
        let us = self.network.notice(self.now_us);
        self.at(us, Event::Server(primary, Done::Unlinked(id, copy, way)));
    }

    /// A way breaks; what is under way may arrive for a while.
    pub(super) fn break_way(&mut self, primary: Life, id: ShardId, copy: ServerId, way: u64) {
        if !self.links.lives(way) {
            return;
        }
        self.report.counts.links_broken += 1;
        let rest_us = self.network.between(0, 60_000);
        self.links.end(way, self.now_us + rest_us);
        let us = self.network.notice(self.now_us);
        self.at(us, Event::Server(primary, Done::Unlinked(id, copy, way)));
    }

    /// A primary has noticed that a way broke, and tries again.
    pub(super) fn unlinked(&mut self, life: Life, id: ShardId, to: ServerId, number: u64) {
        let fresh = self.links.open();
        let Some(server) = self.running(life) else {
            return;
        };
        let way = server.shards.get_mut(&id).and_then(|h| h.ways.get_mut(&to));
        let Some(way) = way.filter(|way| way.number == number) else {
            return;
        };
        (way.number, way.linked) = (fresh, false);
        let takes_us = self.network.between(1_000, RETRY_US);
        self.after(takes_us, Event::Server(life, Done::Link(id, to, fresh)));
    }

    /// The ends of connections to a process that died notice.
    pub(super) fn server_died(&mut self, life: Life, loud: bool) {
        let after_us = |world: &mut Self| {
            let quick = world.network.notice(world.now_us) - world.now_us;
            if loud { quick } else { LEASE_MS * 2_000 }
        };
        // Primaries whose copy it was.
        let mut noticed = Vec::new();
        for server in self
            .servers
            .values()
            .filter_map(|server| server.up.as_ref())
        {
            for (id, held) in &server.shards {
                let way = held.ways.get(&life.server);
                let way = way.filter(|way| way.incarnation == life.incarnation);
                noticed.extend(way.map(|way| (server.life, *id, way.number)));
            }
        }
        for (primary, id, way) in noticed {
            self.links.end(way, self.now_us);
            let us = after_us(self);
            let unlinked = Done::Unlinked(id, life.server, way);
            self.after(us, Event::Server(primary, unlinked));
        }
        if loud {
            let bonds = self.coordinators.iter().filter_map(|(n, host)| {
                let bond = host.bonds.get(&life.server)?;
                Some((*n, *bond))
            });
            for (n, bond) in bonds.collect::<Vec<_>>() {
                let party = Party::Server(life.server);
                if self
                    .network
                    .cut_until(self.now_us, party, Party::Coordinator)
                    .is_none()
                {
                    let us = after_us(self);
                    self.after(us, Event::Coordinator(n, Told::ServerLost(life, bond)));
                }
            }
        }
    }
}
