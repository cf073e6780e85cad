//! A primary's ways to its copies, and what goes over them.

use std::collections::BTreeMap;

use tradewind_common::holders::Role;
use tradewind_common::{Generation, Incarnation, ServerId, ShardId};
use tradewind_core::log::{Confirm, Record};
use tradewind_core::order::Order;

use super::World;
use super::event::{Done, Event, Life};
use super::links::RETRY_US;
use crate::checker::Violation;
use crate::party::Party;

/// A primary's way to a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    since: Generation,
    pub(super) incarnation: Incarnation,
    pub(super) number: u64,
    linked: bool,
}

impl World {
    /// A primary has ways to its copies and no others.
    pub(super) fn follow_ways(&mut self, life: Life, id: ShardId, order: &Order, role: Role) {
        let copies = match role {
            Role::Primary(_) => &order.holders[id.0 as usize].copies[..],
            Role::Copy(_) | Role::Heir(_) | Role::Candidate => &[],
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
}
