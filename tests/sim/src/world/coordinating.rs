//! What coordinators want done, and what happens to them: they start, write, look for later ones, end.

use serde_json::Value;
use tradewind_core::coordinator::Coordinator;
use tradewind_core::durable::Durable;
use tradewind_core::event::EventKind;
use tradewind_core::order::Order;
use tradewind_core::saved::ManifestData;

use super::World;
use super::coordinator::{Host, Out};
use super::disk::Written;
use super::event::{Done, Event, Told, Up};
use super::running::plain_report;
use super::twist;
use crate::checker::{Rule, Violation};
use crate::group::Wake;
use crate::party::Party;
use crate::scenario::{LEASE_MS, Sabotage};

/// How often a coordinator looks at leases.
const TICK_US: u64 = 20_000;

/// Pause before a claim is made again that may not last.
const CLAIM_AGAIN_US: u64 = 50_000;

impl World {
    /// The coordinator that is to be found, if it is up.
    pub(super) fn acting(&self) -> Option<u64> {
        let at = self.store.address();
        at.filter(|n| self.coordinators.is_up(*n))
    }

    /// A process begins, claims, and will read what the last one wrote.
    pub(super) fn start_coordinator(&mut self) {
        // Who has claimed and was told that this may not last comes again, with the next number.
        let now_us = self.agenda.now_us();
        let written = self.disk.writes(now_us);
        let claimed = match written {
            Written::No => None,
            Written::Yes | Written::ButFailed => self.store.claim(now_us),
        };
        let Some(n) = claimed.filter(|_| written == Written::Yes) else {
            return self.agenda.after(CLAIM_AGAIN_US, Event::StartCoordinator);
        };
        if n > 1 {
            self.recorder.counts().coordinators_started += 1;
        }
        self.coordinators.claimed(n);
        let takes_us = self.disk.takes_us(now_us);
        self.agenda.after(takes_us, Event::ReadState(n));
    }

    /// One that has claimed has read what the last one wrote, and begins.
    pub(super) fn read_state(&mut self, n: u64) {
        if !self.coordinators.has_read(n) {
            return;
        }
        let (now_us, now_ms) = (self.agenda.now_us(), self.agenda.now_ms());
        let (servers, folder) = (self.servers.count(), self.setup.scenario.folder);
        let run = self.setup.common.run.clone();
        let core = match self.store.read(n) {
            Some(durable) => Coordinator::recover(servers, folder, LEASE_MS, durable, now_ms),
            None => {
                let mut core = Coordinator::new(servers, folder, LEASE_MS);
                if let Some(saved) = self.coordinators.resumes() {
                    let resumed = core.resume(run.clone(), saved.clone());
                    resumed.expect("the run is not there yet");
                }
                core
            }
        };
        self.coordinators.begin(n, Host::new(core, run, now_ms));
        self.witness.listens(now_us);
        self.store.publish(n, now_us);
        let tick = Event::Coordinator(n, Told::Tick);
        self.agenda.after(TICK_US, tick);
        self.go_on(n);
    }

    /// One that has slept goes on, unless another has listened meanwhile.
    pub(super) fn coordinator_wakes(&mut self, n: u64, since_us: u64) {
        let last = self.coordinators.last();
        if last.is_none_or(|(last, _)| last == n) {
            self.witness.was_deaf(since_us, self.agenda.now_us());
        }
    }

    /// A coordinator is told something, if that arrives.
    pub(super) fn coordinator_hears(&mut self, n: u64, told: Told) {
        let now_us = self.agenda.now_us();
        match &told {
            Told::Server(_, bond, _) if !self.network.delivers(*bond, now_us) => return,
            // What else it says may be about what has long been.
            Told::Server(life, _, Up::Register | Up::Beat) => self.witness.hears(*life, now_us),
            Told::Server(life, _, Up::Report(report)) => {
                self.witness.hears_of(*life, report.seen.generation);
            }
            Told::ServerLost(life, _) => self.witness.loses(*life, now_us),
            Told::Server(_, _, Up::Captured(..) | Up::Followed(_))
            | Told::Call(..)
            | Told::RankLost(_)
            | Told::Manifest(..)
            | Told::Attach(_)
            | Told::Drain(_)
            | Told::Tick => {}
        }
        self.tell(n, told);
    }

    fn tell(&mut self, n: u64, told: Told) {
        let Some(host) = self.coordinators.get_mut(n) else {
            return;
        };
        if let Told::Tick = told {
            let tick = Event::Coordinator(n, Told::Tick);
            self.agenda.after(TICK_US, tick);
        }
        if let Some(told) = host.hear(told) {
            self.take(n, told);
            self.go_on(n);
        }
    }

    fn take(&mut self, n: u64, told: Told) {
        let now_ms = self.agenda.now_ms();
        let Some(host) = self.coordinators.get_mut(n) else {
            return;
        };
        for out in host.take(told, &self.setup.common, now_ms) {
            self.act(n, out);
        }
    }

    /// Writes what was decided, or does what follows from it; then the next message.
    fn go_on(&mut self, n: u64) {
        while let Some(host) = self.coordinators.get_mut(n) {
            let unsaved = host.has_decided();
            self.look_at(n);
            if unsaved && self.setup.scenario.folder {
                if self.setup.breaks(Sabotage::ActsBeforeWriting) {
                    self.act_on_decided(n);
                }
                let Some(host) = self.coordinators.get_mut(n) else {
                    return;
                };
                host.write();
                let takes_us = self.disk.takes_us(self.agenda.now_us());
                return self.agenda.after(takes_us, Event::Wrote(n));
            }
            self.act_on_decided(n);
            if !self.take_waiting(n) {
                return;
            }
        }
    }

    /// Takes all that waits, which is then written down at once. Whether there was anything.
    fn take_waiting(&mut self, n: u64) -> bool {
        let mut any = false;
        while let Some(told) = self.coordinators.get_mut(n).and_then(Host::next_told) {
            any = true;
            self.take(n, told);
        }
        any
    }

    fn look_at(&mut self, n: u64) {
        let (witness, facts, coordinators) = self.witness();
        if let Some((last, host)) = coordinators.last()
            && last == n
        {
            witness.look_at(n, host.core(), &facts);
        }
    }

    /// The state has been written, or could not be.
    pub(super) fn wrote(&mut self, n: u64) {
        let fate = self.disk.writes(self.agenda.now_us());
        let Some(host) = self.coordinators.get_mut(n) else {
            return;
        };
        let written = host.wrote();
        if fate == Written::Yes {
            host.is_written();
            host.look();
        }
        if fate != Written::No {
            let there = self.store.write(n, written);
            // Nothing was decided since it began to be written.
            if let Some(host) = self.coordinators.get(n)
                && let Err(differs) = is_all(there, host.core())
            {
                self.broken = Some(differs);
            }
        }
        if fate == Written::Yes {
            let looks_us = self.network.between(10, 300);
            return self.agenda.after(looks_us, Event::Looked(n));
        }
        // What was decided waits; messages are taken meanwhile, and it is tried again.
        self.recorder.counts().writes_failed += 1;
        if self.take_waiting(n) {
            self.go_on(n);
        }
    }

    /// It has looked for later claims after its write.
    pub(super) fn looked(&mut self, n: u64) {
        if self.store.later(n).is_some() {
            return self.depose(n);
        }
        let Some(host) = self.coordinators.get_mut(n) else {
            return;
        };
        host.looked();
        self.act_on_decided(n);
        if self.take_waiting(n) {
            self.go_on(n);
        }
    }

    /// A manifest is on disk now, or could not be written; whoever ordered it may be gone.
    pub(super) fn finish_snapshot(&mut self, n: u64, manifest: ManifestData) {
        let number = manifest.number;
        let written = self.disk.writes(self.agenda.now_us());
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

    /// A later one has claimed: this one ends.
    fn depose(&mut self, n: u64) {
        self.recorder.counts().deposed += 1;
        self.end_coordinator(n, true);
    }

    /// A coordinator's process ends; a write that was under way may have been done or not.
    pub(super) fn end_coordinator(&mut self, n: u64, loud: bool) {
        let Some(host) = self.coordinators.end(n) else {
            return;
        };
        let now_us = self.agenda.now_us();
        self.witness.goes_deaf(now_us);
        if let Some(written) = host.torn() {
            self.recorder.counts().writes_torn += 1;
            if self.network.coin() && !self.disk.fails(now_us) {
                self.store.write(n, written);
            }
        }
        for (life, bond) in self.servers.bonds_with(n) {
            let us = if loud {
                self.network.notice(now_us)
            } else {
                now_us + LEASE_MS * 2_000
            };
            let broke = Event::Server(life, Done::BondBroke(bond));
            self.agenda.at(us, broke);
        }
    }

    // What they want done.

    /// Does what follows from what a coordinator has decided.
    fn act_on_decided(&mut self, n: u64) {
        if let Some(host) = self.coordinators.get_mut(n) {
            host.publish_directory();
        }
        while let Some(out) = self.coordinators.get_mut(n).and_then(Host::poll) {
            self.act(n, out);
        }
    }

    fn act(&mut self, n: u64, out: Out) {
        let now_us = self.agenda.now_us();
        match out {
            Out::Answer(asked, answer, directory) => {
                let call = (asked.number, asked.life);
                let answered = Event::Answered(asked.from, call, answer, directory);
                let to = Party::Group(asked.from.group);
                self.send(Party::Coordinator, to, answered);
            }
            Out::Leave(rank, life) => {
                let asked = Event::Wake(rank, Wake::Asked(life));
                self.send(Party::Coordinator, Party::Group(rank.group), asked);
            }
            Out::Attached(id, plan) => {
                self.setup.attach(id.0 as usize, plan);
                self.begin_group(id, plan);
            }
            Out::Order(mut order) => {
                let run = self.coordinators.get(n);
                let run = run.and_then(|host| host.core().run(&self.setup.common.run).ok());
                let view = run.expect("it is ordered").view();
                if let Err(two) = self.witness.orders(view) {
                    self.broken = Some(two);
                }
                twist::order(self.setup.scenario.sabotage, &mut order);
                if self.setup.breaks(Sabotage::FormsWithoutFencing) {
                    self.fake_acknowledgements(n, &order);
                }
                let host = self.coordinators.get(n);
                if let Some(bond) = host.and_then(|host| host.bond(order.server)) {
                    self.send_order(n, bond, order);
                }
            }
            Out::Refuse(life, bond) => self.break_bond(life, bond),
            Out::DropMarks => self.marks.clear(),
            Out::Tell(event) => {
                let text = || format!("coordinator {n}: {}", event.text);
                self.recorder.say(now_us, text);
                self.recorder.told(&event);
                // What is written down holds, whoever hears of it.
                if matches!(event.kind, EventKind::RunStopped | EventKind::RunFailed) {
                    self.broken = self.failed(event.text).err();
                }
            }
            Out::Manifest(manifest) => {
                let takes_us = self.disk.takes_us(now_us);
                self.agenda.after(takes_us, Event::Finish(n, manifest));
            }
            Out::Delete(number) => {
                let takes_us = self.disk.takes_us(now_us);
                self.agenda.after(takes_us, Event::Delete(number));
            }
            Out::Look => {
                let later = self.store.later_listed(n, now_us);
                if self.setup.scenario.folder && later.is_some() {
                    self.depose(n);
                } else {
                    self.store.publish(n, now_us);
                }
            }
        }
    }

    /// Broken on purpose: the servers are taken to know what they have only been sent.
    fn fake_acknowledgements(&mut self, n: u64, order: &Order) {
        let now_ms = self.agenda.now_ms();
        let Some(host) = self.coordinators.get_mut(n) else {
            return;
        };
        for (shard, mut seen) in self.servers.seen(order.server) {
            seen.generation = order.view.generation();
            host.believe(order.server, plain_report(shard, seen), now_ms);
        }
    }
}

/// Whether what is written down is all that a coordinator has decided. That a rank has entered is
/// written with the next thing of its group: its next beat says it again.
fn is_all(written: &Durable, core: &Coordinator) -> Result<(), Violation> {
    let decided = core.durable();
    // Mostly nothing differs, which their texts tell sooner.
    let text = |durable: &Durable| serde_json::to_string(durable).expect("it can be written");
    if text(written) == text(&decided) {
        return Ok(());
    }
    let plain = |durable: &Durable| {
        let mut value = serde_json::to_value(durable).expect("it can be written");
        forget(&mut value, "entered");
        value
    };
    let (written, decided) = (plain(written), plain(&decided));
    if written == decided {
        return Ok(());
    }
    let text = format!("decided was {decided}, but written down {written}");
    Err(Violation::new(Rule::NothingLost, text))
}

fn forget(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove(name);
            fields.values_mut().for_each(|value| forget(value, name));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| forget(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
