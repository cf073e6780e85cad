//! The coordinator's process: it takes one message after the other, writes down what was decided
//! before anybody hears of it, and ends when a later one has claimed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tradewind_common::{Incarnation, ServerId};
use tradewind_core::ReplyTo;
use tradewind_core::coordinator::Coordinator;
use tradewind_core::durable::Durable;
use tradewind_core::order::Server;
use tradewind_core::run::{Beat, Join};
use tradewind_core::saved::ManifestData;

use super::World;
use super::disk::Written;
use super::event::{Address, Done, Event, Life, Told, Up};
use crate::checker::{Rule, Violation};
use crate::group::{Call, Directory, Wake};
use crate::party::Party;
use crate::scenario::{GroupPlan, LEASE_MS, Sabotage};

/// How often a coordinator looks at leases.
const TICK_US: u64 = 20_000;

/// A coordinator that was held up for longer heard nobody meanwhile.
const GAP_MS: u64 = 100;

/// Every so many ticks it looks whether a later one has claimed, though it has nothing to write.
const LOOKS: u64 = 10;

/// A coordinator's process.
pub(super) struct Host {
    pub(super) core: Coordinator,
    pub(super) calls: BTreeMap<ReplyTo, (Address, u64, Incarnation)>,
    /// Groups that a person has asked for.
    pub(super) attaching: BTreeMap<ReplyTo, GroupPlan>,
    /// The bonds on which orders go out.
    pub(super) bonds: BTreeMap<ServerId, u64>,
    inbox: VecDeque<Told>,
    pub(super) unsaved: bool,
    /// What is being written; nothing else is done meanwhile.
    pub(super) writing: Option<Box<Durable>>,
    pub(super) looking: bool,
    ticks: u64,
    ticked_ms: u64,
    /// What ranks are told: nothing that is not written down.
    pub(super) directory: Arc<Directory>,
}

impl World {
    /// A process begins, claims, and will read what the last one wrote.
    pub(super) fn start_coordinator(&mut self) {
        // Who has claimed and was told that this may not last comes again, with the next number.
        let written = self.disk.writes(self.now_us);
        let claimed = match written {
            Written::No => None,
            Written::Yes | Written::ButFailed => self.store.claim(self.now_us),
        };
        let Some(n) = claimed.filter(|_| written == Written::Yes) else {
            return self.after(50_000, Event::StartCoordinator);
        };
        if n > 1 {
            self.report.counts.coordinators_started += 1;
        }
        self.reading.insert(n);
        let takes_us = self.disk.takes_us(self.now_us);
        self.after(takes_us, Event::ReadState(n));
    }

    pub(super) fn read_state(&mut self, n: u64) {
        if !self.reading.remove(&n) {
            return;
        }
        let (servers, folder) = (self.servers.len() as u32, self.scenario.folder);
        let now_ms = self.now_ms();
        let core = match self.store.read(n) {
            Some(durable) => Coordinator::recover(servers, folder, LEASE_MS, durable, now_ms),
            None => {
                let mut core = Coordinator::new(servers, folder, LEASE_MS);
                if let Some(saved) = self.resume.clone() {
                    let resumed = core.resume(self.common.run.clone(), saved);
                    resumed.expect("the run is not there yet");
                }
                core
            }
        };
        let host = Host {
            core,
            calls: BTreeMap::new(),
            attaching: BTreeMap::new(),
            bonds: BTreeMap::new(),
            inbox: VecDeque::new(),
            unsaved: false,
            writing: None,
            looking: false,
            ticks: 0,
            ticked_ms: now_ms,
            directory: Arc::default(),
        };
        self.coordinators.insert(n, host);
        self.listens();
        self.store.publish(n, self.now_us);
        self.after(TICK_US, Event::Coordinator(n, Told::Tick));
        self.go_on(n);
    }

    /// A coordinator is told something.
    pub(super) fn tell(&mut self, n: u64, told: Told) {
        let Some(host) = self.coordinators.get_mut(&n) else {
            return;
        };
        if let Told::Tick = told {
            self.sequence += 1;
            let next = (self.now_us + TICK_US, self.sequence);
            self.queue.insert(next, Event::Coordinator(n, Told::Tick));
            host.ticks += 1;
        }
        if host.writing.is_some() || host.looking {
            if !matches!(told, Told::Tick) {
                host.inbox.push_back(told);
            }
            return;
        }
        self.take(n, told);
        self.go_on(n);
    }

    fn take(&mut self, n: u64, told: Told) {
        let (now_ms, run) = (self.now_ms(), self.common.run.clone());
        let Some(host) = self.coordinators.get_mut(&n) else {
            return;
        };
        let gap_ms = now_ms - host.ticked_ms;
        if gap_ms > GAP_MS {
            host.core.forgive(gap_ms);
            host.ticked_ms = now_ms;
        }
        match told {
            Told::Call(from, number, call) => self.call(n, from, number, call),
            Told::RankLost(caller) => host.core.rank_lost(&run, caller, now_ms),
            Told::Server(life, bond, up) => self.reported(n, life, bond, up),
            Told::ServerLost(life, bond) => {
                if host.bonds.get(&life.server) == Some(&bond) {
                    host.bonds.remove(&life.server);
                    host.core.server_lost(life.server, life.incarnation, now_ms);
                }
            }
            Told::Attach(plan) => {
                self.arrivals += 1;
                let to = ReplyTo(self.arrivals);
                host.attaching.insert(to, plan);
                host.core.attach(&run, &[plan.size], to, now_ms);
            }
            // Whether it was asked stands in the answers to its beats.
            Told::Drain(group) => {
                self.arrivals += 1;
                let to = ReplyTo(self.arrivals);
                host.core.ask_to_leave(&run, &[group], to, now_ms);
            }
            Told::Manifest(number, result) => {
                host.core.written(&run, number, result, now_ms);
            }
            Told::Tick => {
                host.ticked_ms = now_ms;
                host.core.tick(now_ms);
                let looks = host.ticks.is_multiple_of(LOOKS);
                let later = self.store.later_listed(n, self.now_us);
                if looks && self.scenario.folder && later.is_some() {
                    self.depose(n);
                } else if looks {
                    self.store.publish(n, self.now_us);
                }
            }
        }
    }

    /// A manifest is on disk now, or could not be written; whoever ordered it may be gone.
    pub(super) fn finish_snapshot(&mut self, n: u64, manifest: ManifestData) {
        let number = manifest.number;
        let written = self.disk.writes(self.now_us);
        if written != Written::No {
            self.disk.finish(manifest);
            self.checker.whole(number);
        }
        let result = match written {
            Written::Yes => Ok(()),
            Written::No | Written::ButFailed => Err("the disk fails".to_owned()),
        };
        self.tell(n, Told::Manifest(number, result));
    }

    fn call(&mut self, n: u64, from: Address, number: u64, call: Call) {
        let (now_ms, run) = (self.now_ms(), self.common.run.clone());
        // Every arrival is a call of its own, a duplicate too.
        self.arrivals += 1;
        let to = ReplyTo(self.arrivals);
        let asked_in = call.incarnation();
        let spec = self.common.spec.clone();
        let Some(host) = self.coordinators.get_mut(&n) else {
            return;
        };
        host.calls.insert(to, (from, number, asked_in));
        let core = &mut host.core;
        match call {
            Call::Join { life } => {
                let join = Join {
                    group: from.group,
                    rank: from.rank,
                    life,
                    store_address: String::new(),
                };
                core.join(run, spec, join, to, now_ms);
            }
            Call::AwaitReady(caller, created) => {
                core.await_ready(&run, caller, created, to, now_ms);
            }
            Call::Heartbeat(caller, clock) => {
                let beat = Beat {
                    clock,
                    steps_per_second: 0.0,
                };
                let answer = core.heartbeat(&run, caller, beat, now_ms);
                let leave = answer.as_ref().is_ok_and(|beaten| beaten.leave);
                host.calls.remove(&to);
                if leave {
                    let asked = Event::Wake(from, Wake::Asked(asked_in));
                    self.send(Party::Coordinator, Party::Group(from.group), asked);
                }
                self.answer(n, (from, number, asked_in), answer.map(|_| None));
            }
            Call::Leave(caller) => {
                let answer = core.leave(&run, caller, &[], now_ms);
                host.calls.remove(&to);
                self.answer(n, (from, number, asked_in), answer.map(|()| None));
            }
        }
    }

    fn reported(&mut self, n: u64, life: Life, bond: u64, up: Up) {
        let (now_ms, run, server) = (self.now_ms(), self.common.run.clone(), life.server);
        let Some(host) = self.coordinators.get_mut(&n) else {
            return;
        };
        let core = &mut host.core;
        let refused = match up {
            Up::Register => {
                let about = Server {
                    incarnation: life.incarnation,
                    address: format!("{server}-{}", life.incarnation),
                    host: format!("host{server}"),
                };
                let known = host.bonds.insert(server, bond);
                let registered = core.register(server, about, now_ms);
                if registered.is_err() {
                    host.bonds.remove(&server);
                    host.bonds.extend(known.map(|known| (server, known)));
                }
                registered
            }
            Up::Beat => core.server_beat(server, life.incarnation, now_ms),
            Up::Report(report) => core.report(server, &run, *report, now_ms),
            Up::Captured(shard, number, result) => {
                core.captured(server, &run, shard, number, result, now_ms)
            }
        };
        if refused.is_err() {
            self.break_bond(life, bond);
        }
    }

    /// Writes what was decided, or does what follows from it; then the next message.
    fn go_on(&mut self, n: u64) {
        loop {
            let folder = self.scenario.folder;
            let Some(host) = self.coordinators.get_mut(&n) else {
                return;
            };
            host.unsaved |= host.core.take_dirty();
            self.look_at(n);
            let host = self.coordinators.get_mut(&n).expect("looked up above");
            let waits = self.scenario.sabotage != Some(Sabotage::ActsBeforeWriting);
            if host.unsaved && folder {
                if !waits {
                    self.drain_coordinator(n);
                }
                let Some(host) = self.coordinators.get_mut(&n) else {
                    return;
                };
                host.writing = Some(Box::new(host.core.durable()));
                let takes_us = self.disk.takes_us(self.now_us);
                return self.after(takes_us, Event::Wrote(n));
            }
            self.drain_coordinator(n);
            let Some(host) = self.coordinators.get_mut(&n) else {
                return;
            };
            let Some(told) = host.inbox.pop_front() else {
                return;
            };
            self.take(n, told);
        }
    }

    /// The state has been written, or could not be.
    pub(super) fn wrote(&mut self, n: u64) {
        let fate = self.disk.writes(self.now_us);
        let Some(host) = self.coordinators.get_mut(&n) else {
            return;
        };
        let written = host.writing.take().expect("it was being written");
        if fate == Written::ButFailed {
            self.store.write(n, *written.clone());
        }
        if fate != Written::Yes {
            // What was decided waits; messages are taken meanwhile, and each tries again.
            self.report.counts.writes_failed += 1;
            if let Some(told) = host.inbox.pop_front() {
                self.take(n, told);
                self.go_on(n);
            }
            return;
        }
        self.store.write(n, *written);
        host.looking = true;
        let looks_us = self.network.between(10, 300);
        self.after(looks_us, Event::Looked(n));
    }

    /// It has looked for later claims after its write.
    pub(super) fn looked(&mut self, n: u64) {
        if self.store.later(n).is_some() {
            return self.depose(n);
        }
        let Some(host) = self.coordinators.get_mut(&n) else {
            return;
        };
        (host.looking, host.unsaved) = (false, false);
        self.drain_coordinator(n);
        let next = self
            .coordinators
            .get_mut(&n)
            .and_then(|h| h.inbox.pop_front());
        if let Some(told) = next {
            self.take(n, told);
            self.go_on(n);
        }
    }

    /// A later one has claimed: this one ends.
    fn depose(&mut self, n: u64) {
        self.report.counts.deposed += 1;
        self.end_coordinator(n, true);
    }

    /// A coordinator's process ends; a write that was under way may have been done or not.
    pub(super) fn end_coordinator(&mut self, n: u64, loud: bool) {
        self.reading.remove(&n);
        let Some(host) = self.coordinators.remove(&n) else {
            return;
        };
        self.goes_deaf();
        if let Some(written) = host.writing {
            self.report.counts.writes_torn += 1;
            if self.network.coin() && !self.disk.fails(self.now_us) {
                self.store.write(n, *written);
            }
        }
        let bonds = self.servers.values().filter_map(|server| {
            let bond = server
                .up
                .as_ref()?
                .bond
                .filter(|bond| bond.coordinator == n)?;
            Some((server.up.as_ref()?.life, bond.number))
        });
        for (life, bond) in bonds.collect::<Vec<_>>() {
            let us = if loud {
                self.network.notice(self.now_us)
            } else {
                self.now_us + LEASE_MS * 2_000
            };
            self.at(us, Event::Server(life, Done::BondBroke(bond)));
        }
    }

    /// A run that fails loudly: whether it may.
    pub(super) fn failed(&mut self, reason: String) -> Result<(), Violation> {
        let Some(why) = self.was_needless() else {
            self.report.counts.stopped += 1;
            self.report.failed = Some(reason);
            return Ok(());
        };
        let text = format!("the run failed: {reason}; but {why}");
        Err(Violation::new(Rule::Liveness, text))
    }
}
