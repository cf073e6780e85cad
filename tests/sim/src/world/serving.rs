//! What servers want done, and what happens to them: they start, connect, are told something, end.

use tradewind_common::{ServerId, ShardId};
use tradewind_core::order::{NotCaptured, Order};

use super::World;
use super::disk::{File, Written};
use super::event::{Done, Event, Life, Process, Told, Up};
use super::orders::Next;
use super::running::{Around, Bond, Out, Outs, Running};
use super::servers::{Ordered, Servers};
use super::twist;
use crate::checker::Violation;
use crate::party::Party;
use crate::scenario::LEASE_MS;

/// Pause before a broken connection is made again.
const RETRY_US: u64 = 100_000;

/// Beats of a server in a lease.
const BEATS: u64 = 5;

/// Pause between two beats of a server.
const BEAT_US: u64 = LEASE_MS * 1000 / BEATS;

impl World {
    pub(super) fn start_server(&mut self, id: ServerId) {
        if let Some(life) = self.servers.start(id) {
            self.connect(life);
        }
    }

    /// A server's process ends.
    pub(super) fn end_server(&mut self, id: ServerId, loud: bool) {
        let Some(life) = self.servers.end(id) else {
            return;
        };
        let now_us = self.agenda.now_us();
        self.witness.ended(life);
        self.checker.dropped(id, None);
        self.server_died(life, loud);
        let quick_us = self.network.notice(now_us);
        let us = if loud {
            quick_us
        } else {
            now_us + LEASE_MS * 2_000
        };
        self.streams_broke(id, us);
    }

    /// The ends of connections to a process that died notice.
    fn server_died(&mut self, life: Life, loud: bool) {
        let now_us = self.agenda.now_us();
        for (primary, id, way) in self.servers.ways_to(life) {
            self.network.end(way, now_us);
            let quick_us = self.network.notice(now_us);
            let us = if loud {
                quick_us
            } else {
                now_us + LEASE_MS * 2_000
            };
            let unlinked = Done::Unlinked(id, life.server, way);
            self.agenda.at(us, Event::Server(primary, unlinked));
        }
        if !loud {
            return;
        }
        for (n, bond) in self.coordinators.bonds_with(life.server) {
            let (here, there) = (Party::Server(life.server), Party::Coordinator);
            if self.network.cut_until(now_us, here, there).is_none() {
                let us = self.network.notice(now_us);
                let lost = Told::ServerLost(life, bond);
                self.agenda.at(us, Event::Coordinator(n, lost));
            }
        }
    }

    /// Something happens to a server's process.
    pub(super) fn server(&mut self, life: Life, done: Done) -> Result<(), Violation> {
        let now_us = self.agenda.now_us();
        match done {
            Done::Connect => self.connect(life),
            Done::Beat(bond) => self.beat(life, bond),
            Done::BondBroke(bond) => self.bond_broke(life, bond),
            Done::Order(bond, n, order) => {
                if self.network.delivers(bond, now_us) {
                    match self.servers.ordered(life, (bond, n), order) {
                        Ordered::Unheard => {}
                        Ordered::Waits => return self.obey_orders(life),
                        Ordered::Refused => self.break_bond(life, bond),
                    }
                }
            }
            Done::Obey => {
                if let Some(process) = self.servers.process_mut(life) {
                    let order = process.orders.read();
                    self.obey(life, &order)?;
                    return self.obey_orders(life);
                }
            }
            Done::Link(id, to, way) => return self.link(life, id, to, way),
            Done::Unlinked(id, to, way) => self.unlinked(life, id, to, way),
            Done::Record(from, id, way, record) => {
                if self.network.delivers(way, now_us) {
                    return self.serve(life, |servers, around| {
                        servers.record(life, (from, id, way), *record, around)
                    });
                }
            }
            Done::Confirm(id, way, confirm) => {
                if self.network.delivers(way, now_us) {
                    return self
                        .process(life, |process, around| process.confirm(id, confirm, around));
                }
            }
            Done::Frame(from, id, stream, push) => {
                if !self.servers.is_up(life) {
                    self.lose_stream(from, id, stream);
                    return Ok(());
                }
                return self.process(life, |process, around| {
                    process.frame((from, id, stream), push, around)
                });
            }
            Done::Timeout(id) => {
                return self.process(life, |process, around| process.timeout(id, around));
            }
            Done::Written(id, number, file) => self.part_written(life, (id, number), *file),
        }
        Ok(())
    }

    /// Lets a process act if it is up, and does what it wants done.
    fn process(
        &mut self,
        life: Life,
        act: impl FnOnce(&mut Running, &mut Around<'_>) -> Outs,
    ) -> Result<(), Violation> {
        self.serve(life, |servers, around| match servers.process_mut(life) {
            Some(process) => act(process, around),
            None => Ok(Vec::new()),
        })
    }

    /// Lets servers act, and does what a process of them wants done.
    fn serve(
        &mut self,
        life: Life,
        act: impl FnOnce(&mut Servers, &mut Around<'_>) -> Outs,
    ) -> Result<(), Violation> {
        let (servers, mut around) = self.servers();
        let outs = act(servers, &mut around);
        self.do_all(life, outs)
    }

    fn do_all(&mut self, life: Life, outs: Outs) -> Result<(), Violation> {
        for out in outs? {
            self.do_for_server(life, out);
        }
        Ok(())
    }

    fn do_for_server(&mut self, life: Life, out: Out) {
        let now_us = self.agenda.now_us();
        let here = Party::Server(life.server);
        match out {
            Out::Tell(up) => self.report_up(life, up),
            Out::Reply(to, id, stream, result) => {
                let reply = Event::Reply(to, (life, id), stream, result);
                self.send(here, Party::Group(to.group), reply);
            }
            Out::Record(copy, id, way, record) => {
                let parties = (here, Party::Server(copy.server));
                match self.network.pass((way, false), parties, now_us) {
                    Some(at_us) => {
                        let done = Done::Record(life, id, way, Box::new(record));
                        self.agenda.at(at_us, Event::Server(copy, done));
                    }
                    None => self.break_way(life, id, copy.server, way),
                }
            }
            Out::Confirm(primary, id, way, confirm) => {
                let parties = (here, Party::Server(primary.server));
                match self.network.pass((way, true), parties, now_us) {
                    Some(at_us) => {
                        let done = Done::Confirm(id, way, confirm);
                        self.agenda.at(at_us, Event::Server(primary, done));
                    }
                    None => self.break_way(primary, id, life.server, way),
                }
            }
            Out::Refuse(primary, id, way) => {
                self.network.end(way, now_us);
                let us = self.network.notice(now_us);
                let unlinked = Done::Unlinked(id, life.server, way);
                self.agenda.at(us, Event::Server(primary, unlinked));
            }
            Out::Open(id, to) => {
                let way = self.network.open();
                if let Some(held) = self.servers.held(life, id) {
                    held.ways.opened(to, way);
                }
                let takes_us = self.network.draw_us();
                let link = Done::Link(id, to, way);
                self.agenda.after(takes_us, Event::Server(life, link));
            }
            Out::End(way) => {
                let rest_us = self.network.between(0, 20_000);
                self.network.end(way, now_us + rest_us);
            }
            Out::Timeout(id, at_us) => {
                let timeout = Event::Server(life, Done::Timeout(id));
                self.agenda.at(at_us, timeout);
            }
            Out::Write(id, number, file) => {
                let takes_us = self.disk.takes_us(now_us);
                let written = Done::Written(id, number, file);
                self.agenda.after(takes_us, Event::Server(life, written));
            }
        }
    }

    // Orders and snapshots.

    /// A process obeys the orders that wait; what has to be read takes its time, and later orders wait.
    fn obey_orders(&mut self, life: Life) -> Result<(), Violation> {
        while let Some(next) = self.next_order(life) {
            match next {
                Next::Read => {
                    let takes_us = self.disk.takes_us(self.agenda.now_us());
                    self.agenda.after(takes_us, Event::Server(life, Done::Obey));
                }
                Next::Obey(order) => self.obey(life, &order)?,
            }
        }
        Ok(())
    }

    fn next_order(&mut self, life: Life) -> Option<Next> {
        self.servers.process_mut(life)?.next_order()
    }

    fn obey(&mut self, life: Life, order: &Order) -> Result<(), Violation> {
        self.serve(life, |servers, around| servers.obey(life, order, around))
    }

    /// A part of a snapshot is on disk now, or could not be written.
    fn part_written(&mut self, life: Life, (id, number): (ShardId, u64), file: File) {
        let now_us = self.agenda.now_us();
        let Some(process) = self.servers.process_mut(life) else {
            return self.disk.tear((number, id), file, now_us);
        };
        let result = match self.disk.writes(now_us) {
            Written::Yes => {
                let about = file.about.clone();
                self.disk.write((number, id), file, now_us);
                Ok(about)
            }
            Written::ButFailed | Written::No => Err(NotCaptured::Failed("the disk fails".into())),
        };
        let told = process.captured(id, number, result);
        self.do_for_server(life, told);
    }

    // Connections with the coordinator.

    /// A server looks for the coordinator.
    fn connect(&mut self, life: Life) {
        let process = self.servers.process(life);
        let Some(process) = process.filter(|process| process.bond.is_none()) else {
            return;
        };
        let obeyed = process.orders.obeyed();
        let (here, there) = (Party::Server(life.server), Party::Coordinator);
        let cut = self.network.cut_until(self.agenda.now_us(), here, there);
        let found = self.acting().filter(|n| *n >= obeyed);
        let Some(coordinator) = found.filter(|_| cut.is_none()) else {
            let connect = Event::Server(life, Done::Connect);
            return self.agenda.after(RETRY_US, connect);
        };
        let number = self.network.open();
        let bond = Bond {
            number,
            coordinator,
        };
        self.set_bond(life, Some(bond));
        self.report_up(life, Up::Register);
        let beat = Event::Server(life, Done::Beat(number));
        self.agenda.after(BEAT_US, beat);
    }

    fn set_bond(&mut self, life: Life, bond: Option<Bond>) {
        if let Some(process) = self.servers.process_mut(life) {
            process.bond = bond;
        }
    }

    /// A server tells its coordinator something, if it has one.
    fn report_up(&mut self, life: Life, mut up: Up) {
        if let Up::Report(report) = &mut up {
            twist::report(self.setup.scenario.sabotage, report);
            self.witness.stalls(report.shard, &report.seen.stalled);
        }
        let Some(bond) = self.servers.bond(life) else {
            return;
        };
        let parties = (Party::Server(life.server), Party::Coordinator);
        let now_us = self.agenda.now_us();
        match self.network.pass((bond.number, false), parties, now_us) {
            Some(at_us) => {
                let told = Told::Server(life, bond.number, up);
                let event = Event::Coordinator(bond.coordinator, told);
                self.agenda.at(at_us, event);
            }
            None => self.break_bond(life, bond.number),
        }
    }

    fn beat(&mut self, life: Life, number: u64) {
        let bond = self.servers.bond(life);
        let Some(bond) = bond.filter(|bond| bond.number == number) else {
            return;
        };
        // The folder says where the coordinator is, and it is read with every beat.
        let moved = self.store.address().is_some_and(|n| n > bond.coordinator);
        let slept_us = self.agenda.slept_us(Process::Coordinator(bond.coordinator));
        if moved || slept_us > Some(LEASE_MS * 2_000) {
            self.break_bond(life, number);
        } else {
            let beat = Event::Server(life, Done::Beat(number));
            self.agenda.after(BEAT_US, beat);
            self.report_up(life, Up::Beat);
        }
    }

    pub(super) fn send_order(&mut self, n: u64, bond: u64, order: Box<Order>) {
        let Some(life) = self.servers.life(order.server) else {
            return;
        };
        let parties = (Party::Coordinator, Party::Server(life.server));
        match self
            .network
            .pass((bond, true), parties, self.agenda.now_us())
        {
            Some(at_us) => {
                let order = Done::Order(bond, n, order);
                self.agenda.at(at_us, Event::Server(life, order));
            }
            None => self.break_bond(life, bond),
        }
    }

    /// The connection between a server and a coordinator breaks; each side notices in its own time.
    pub(super) fn break_bond(&mut self, life: Life, number: u64) {
        if !self.network.lives(number) {
            return;
        }
        let now_us = self.agenda.now_us();
        self.recorder.counts().links_broken += 1;
        self.network.end(number, now_us);
        let here_us = self.network.notice(now_us);
        let broke = Event::Server(life, Done::BondBroke(number));
        self.agenda.at(here_us, broke);
        // That of another process of the server may have become the server's meanwhile.
        let up = self.servers.life(life.server);
        let bond = up.and_then(|up| self.servers.bond(up));
        let bond = bond.filter(|bond| bond.number == number);
        let at = bond.map(|bond| bond.coordinator);
        if let Some(n) = at.or_else(|| self.coordinators.of_bond(number)) {
            let there_us = self.network.notice(now_us);
            let lost = Told::ServerLost(life, number);
            self.agenda.at(there_us, Event::Coordinator(n, lost));
        }
    }

    fn bond_broke(&mut self, life: Life, number: u64) {
        let bond = self.servers.bond(life);
        if bond.is_some_and(|bond| bond.number == number) {
            self.set_bond(life, None);
            self.network.end(number, self.agenda.now_us());
            let connect = Event::Server(life, Done::Connect);
            self.agenda.after(RETRY_US, connect);
        }
    }

    // Connections of primaries to their copies.

    /// A connection is tried: it is there if the copy's process is.
    fn link(&mut self, life: Life, id: ShardId, to: ServerId, way: u64) -> Result<(), Violation> {
        let (here, there) = (Party::Server(life.server), Party::Server(to));
        let cut = self.network.cut_until(self.agenda.now_us(), here, there);
        let (servers, mut around) = self.servers();
        match servers.link(life, (id, to, way), cut.is_some(), &mut around) {
            Some(outs) => self.do_all(life, outs),
            None => {
                let link = Event::Server(life, Done::Link(id, to, way));
                self.agenda.after(RETRY_US, link);
                Ok(())
            }
        }
    }

    /// A connection breaks; what is under way may arrive for a while.
    fn break_way(&mut self, primary: Life, id: ShardId, copy: ServerId, way: u64) {
        if !self.network.lives(way) {
            return;
        }
        let now_us = self.agenda.now_us();
        self.recorder.counts().links_broken += 1;
        let rest_us = self.network.between(0, 60_000);
        self.network.end(way, now_us + rest_us);
        let us = self.network.notice(now_us);
        let unlinked = Done::Unlinked(id, copy, way);
        self.agenda.at(us, Event::Server(primary, unlinked));
    }

    /// A primary has noticed that a connection broke, and tries another one.
    fn unlinked(&mut self, life: Life, id: ShardId, to: ServerId, way: u64) {
        let fresh = self.network.open();
        let held = self.servers.held(life, id);
        if held.is_some_and(|held| held.ways.unlink(to, way, fresh)) {
            let takes_us = self.network.between(1_000, RETRY_US);
            let link = Done::Link(id, to, fresh);
            self.agenda.after(takes_us, Event::Server(life, link));
        }
    }
}
