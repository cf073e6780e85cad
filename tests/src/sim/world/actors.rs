//! What the actors of the world do when something happens to them.

use rand::Rng;
use rand_distr::{Distribution, LogNormal};
use tradewind_common::{GroupId, Incarnation, ServerId};
use tradewind_server::core::ReplyTo;
use tradewind_server::core::coordinator::{self, Order, Output};
use tradewind_server::core::refusal::Refusal;
use tradewind_server::core::run::Join;
use tradewind_server::core::shard::{self, Push};

use super::World;
use super::event::{Address, Event};
use crate::checker::{Rule, Violation};
use crate::sim::group::{Call, Common, Group, Out, Wake};
use crate::sim::malformed;

/// σ of the logarithm of a step's time.
const STEP_SPREAD: f64 = 0.3;

/// The coordinator.
impl World {
    pub(super) fn call(&mut self, from: Address, number: u64, call: Call) {
        let (now_ms, run) = (self.now_ms(), self.common.run.clone());
        // Every arrival is a call of its own, a duplicate too.
        self.arrivals += 1;
        let to = ReplyTo(self.arrivals);
        self.calls.insert(to, (from, number));
        let done = match call {
            Call::Join { process } => {
                let join = Join {
                    group: from.group,
                    rank: from.rank,
                    life: process,
                    store_address: String::new(),
                };
                let spec = self.common.spec.clone();
                self.coordinator.join(run, spec, join, to, now_ms);
                None
            }
            Call::AwaitReady(caller, created) => {
                self.coordinator
                    .await_ready(&run, caller, created, to, now_ms);
                None
            }
            Call::Heartbeat(caller, clock) => {
                let answer = self.coordinator.heartbeat(&run, caller, clock, now_ms);
                Some(answer.map(|_| None))
            }
            Call::Leave(caller) => {
                Some(self.coordinator.leave(&run, caller, now_ms).map(|()| None))
            }
        };
        if let Some(answer) = done {
            self.calls.remove(&to);
            self.send(None, Event::Answered(from, number, answer));
        }
        self.drain_coordinator();
    }

    pub(super) fn drain_coordinator(&mut self) {
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                Output::Reply(to, answer) => {
                    if let Some((from, number)) = self.calls.remove(&to) {
                        self.send(None, Event::Answered(from, number, answer.map(Some)));
                    }
                }
                Output::Order(order) => self.send(Some(order.server), Event::Order(order)),
            }
        }
    }

    pub(super) fn register(&mut self, id: ServerId) {
        let server = coordinator::Server {
            incarnation: Incarnation(1),
            address: String::new(),
        };
        self.coordinator
            .register(id, server)
            .expect("an expected server");
        self.drain_coordinator();
    }
}

/// The servers.
impl World {
    pub(super) fn order(&mut self, order: Order) -> Result<(), Violation> {
        let (id, view, now_us) = (order.server, order.view.clone(), self.now_us);
        let server = &mut self.servers[id.0 as usize];
        let seen = server.order(order, &self.common.layout, now_us);
        self.send(Some(id), Event::Acknowledge(id, seen));
        self.checker.view(id, &view)?;
        self.drain_server(id)
    }

    pub(super) fn frame(
        &mut self,
        from: Address,
        id: ServerId,
        stream: u64,
        push: Push,
    ) -> Result<(), Violation> {
        let now_us = self.now_us;
        let server = &mut self.servers[id.0 as usize];
        if server.shard().is_none() {
            let unknown = Refusal::UnknownRun(self.common.run.clone());
            self.send(Some(id), Event::Reply(from, id, stream, Err(unknown)));
            return Ok(());
        }
        self.streams.insert(ReplyTo(stream), from);
        self.checker.pushed(ReplyTo(stream), &push);
        server.push(push, ReplyTo(stream), now_us);
        self.drain_server(id)
    }

    fn drain_server(&mut self, id: ServerId) -> Result<(), Violation> {
        let outputs = self.servers[id.0 as usize].outputs();
        if self.checker.answered(id, &outputs)? {
            self.progress_us = self.now_us;
        }
        for output in outputs {
            match output {
                shard::Output::Reply { to, result } => {
                    let from = self.streams[&to];
                    if let Ok(reply) = &result {
                        let waited = self.report.waited_us.entry(from.group).or_default();
                        *waited = (*waited).max(reply.waited_us);
                    }
                    self.send(Some(id), Event::Reply(from, id, to.0, result));
                }
                shard::Output::Complete(seen) => {
                    self.send(Some(id), Event::Acknowledge(id, seen));
                }
            }
        }
        Ok(())
    }

    /// Hands a shard a frame that it has to refuse, and looks whether anything changed (rule 7).
    pub(super) fn malformed(&mut self) -> Result<(), Violation> {
        let every_us = self.scenario.malformed_every_us;
        let next_us = self.mischief.random_range(1..=2 * every_us);
        self.after(next_us, Event::Malformed);
        let id = ServerId(self.mischief.random_range(0..self.scenario.servers));
        let server = &mut self.servers[id.0 as usize];
        let view = server.view().clone();
        let Some(push) = malformed::draw(&self.checker, id, &view, &mut self.mischief) else {
            return Ok(());
        };
        let Some(shard) = server.shard() else {
            return Ok(());
        };
        let before = shard.digest();
        shard.handle_push(push.clone(), ReplyTo(u64::MAX), self.now_us);
        let outputs: Vec<_> = std::iter::from_fn(|| shard.poll_output()).collect();
        let unchanged = shard.digest() == before;
        self.report.malformed += 1;
        malformed::check(&push, &outputs, unchanged)
    }
}

/// The groups.
impl World {
    pub(super) fn start(&mut self, id: GroupId) -> Result<(), Violation> {
        let member = self.groups.get_mut(&id).expect("a configured group");
        if member.up.is_some() || member.done {
            return Ok(());
        }
        member.lives += 1;
        let group = Group::start(id, member.lives, member.numbers, &self.common);
        member.up = Some(group);
        let process = member.lives;
        self.group(id, process, |_, _| ())
    }

    pub(super) fn crash(&mut self, index: usize) {
        let crash = self.scenario.crashes[index];
        let id = GroupId(crash.group);
        self.stop(id);
        match crash.down_us {
            Some(down_us) => self.after(down_us, Event::Start(id)),
            None => self.groups.get_mut(&id).expect("a configured group").done = true,
        }
    }

    fn stop(&mut self, id: GroupId) {
        let member = self.groups.get_mut(&id).expect("a configured group");
        if let Some(group) = member.up.take() {
            member.numbers = group.numbers();
            self.report.restarts += 1;
        }
    }

    /// Lets a group act, if that life of it still is, and does what it wants done.
    pub(super) fn group(
        &mut self,
        id: GroupId,
        process: u64,
        act: impl FnOnce(&mut Group, &Common),
    ) -> Result<(), Violation> {
        let member = self.groups.get_mut(&id).expect("a configured group");
        let Some(group) = member.up.as_mut().filter(|g| g.process() == process) else {
            return Ok(());
        };
        act(group, &self.common);
        for out in std::mem::take(&mut group.outs) {
            self.perform(id, process, out)?;
        }
        Ok(())
    }

    fn perform(&mut self, id: GroupId, process: u64, out: Out) -> Result<(), Violation> {
        let address = |rank| Address {
            group: id,
            process,
            rank,
        };
        match out {
            Out::Frame(rank, server, stream, push) => {
                self.send(
                    Some(server),
                    Event::Frame(address(rank), server, stream, push),
                );
            }
            Out::Call(rank, number, call) => {
                self.send(None, Event::Call(address(rank), number, call));
            }
            Out::Wake(after_us, wake) => self.after(after_us, Event::Wake(id, process, wake)),
            Out::Compute => {
                let median = self.scenario.groups[id.0 as usize].step_us as f64;
                let step = LogNormal::new(median.ln(), STEP_SPREAD).expect("a finite spread");
                let step_us = step.sample(&mut self.pace) as u64;
                self.after(step_us, Event::Wake(id, process, Wake::Computed));
            }
            Out::Ticked(clock) => {
                self.progress_us = self.now_us;
                *self.report.clocks.entry(id).or_default() += 1;
                self.checker.ticked(id, clock)?;
            }
            Out::Took(life, block, version, values) => {
                self.checker.took(life, block, (version, &values))?;
            }
            Out::Restart => {
                self.stop(id);
                self.after(1_000, Event::Start(id));
            }
            Out::Left => {
                let member = self.groups.get_mut(&id).expect("a configured group");
                member.done = true;
                member.up = None;
            }
            Out::Unexpected(text) => return Err(Violation::new(Rule::Liveness, text)),
        }
        Ok(())
    }
}
