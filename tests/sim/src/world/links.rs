//! Connections that keep their order until they break: a server's bond with the coordinator, a
//! primary's ways to its copies. What was under way on one that broke may still arrive for a while,
//! also when the next one is there.

use std::collections::BTreeMap;

use tradewind_core::order::Order;

use super::World;
use super::event::{Done, Event, Life, Told, Up};
use super::server::Bond;
use crate::checker::Violation;
use crate::party::Party;
use crate::scenario::LEASE_MS;

/// Pause before a broken connection is made again.
pub(super) const RETRY_US: u64 = 100_000;

/// Beats of a server in a lease.
const BEATS: u64 = 5;

/// Pause between two beats of a server.
const BEAT_US: u64 = LEASE_MS * 1000 / BEATS;

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

/// The connections.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: BTreeMap<u64, Link>,
    next: u64,
}

impl Links {
    pub(super) fn open(&mut self) -> u64 {
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

    pub(super) fn end(&mut self, number: u64, until_us: u64) {
        if let Some(link) = self.links.get_mut(&number) {
            let until = link.until_us.unwrap_or(u64::MAX);
            link.until_us = Some(until.min(until_us));
        }
    }
}

impl World {
    /// When a message on a connection arrives; `None` if the connection breaks instead.
    pub(super) fn on_link(
        &mut self,
        number: u64,
        back: bool,
        from: Party,
        to: Party,
    ) -> Option<u64> {
        let now_us = self.now_us;
        let link = *self.links.links.get(&number)?;
        if link.until_us.is_some() {
            return None;
        }
        let mut begins_us = now_us.max(link.held_until_us);
        if let Some(until_us) = self.network.cut_until(now_us, from, to) {
            // Some wait for what is lost to be sent again; others give up.
            if begins_us <= now_us && self.network.coin() {
                return None;
            }
            begins_us = begins_us.max(until_us);
        }
        if self.network.breaks() {
            return None;
        }
        let last_us = link.last_us[usize::from(back)];
        // What is late makes all that follow it on its connection late.
        let delay_us = self.network.draw_us() + self.network.slowed_us(now_us, from, to);
        let at_us = (begins_us + delay_us).max(last_us + 1);
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
        self.after(BEAT_US, Event::Server(life, Done::Beat(number)));
    }

    /// A server tells its coordinator something, if it has one.
    pub(super) fn report_up(&mut self, life: Life, mut up: Up) {
        if let Up::Report(report) = &mut up {
            self.twist_report(report);
            self.stalls(report.shard, &report.seen.stalled);
        }
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
            self.after(BEAT_US, Event::Server(life, Done::Beat(number)));
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
