//! World: virtual time, the queue of what will happen, and the actors between which it happens.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use tradewind_common::placement::Placement;
use tradewind_common::{GroupId, Incarnation, Rank, RunId, ServerId};
use tradewind_server::core::ReplyTo;
use tradewind_server::core::coordinator::{Answer, Coordinator, Order, Output, Refused};
use tradewind_server::core::refusal::Refusal;
use tradewind_server::core::run::Join;
use tradewind_server::core::shard::{self, Push, Reply};
use tradewind_server::core::view::Acknowledge;

use super::group::{Call, Common, Group, Out, Wake};
use super::net::{Fate, Network};
use super::random_stream;
use super::malformed;
use super::scenario::Scenario;
use super::seeds::Failure;
use super::server::Server;
use crate::checker::{Checker, Rule, Violation};

/// How often the coordinator looks at leases.
const TICK_US: u64 = 20_000;

/// σ of the logarithm of a step's time.
const STEP_SPREAD: f64 = 0.3;

/// Time without any decision or tick of a clock after which a run is stuck. Leases, the start
/// grace, the longest time down and the slowest step are all shorter.
const STUCK_US: u64 = 5_000_000;

/// Virtual time that no run needs.
const END_US: u64 = 600_000_000;

/// One rank of one life of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Address {
    group: GroupId,
    process: u64,
    rank: Rank,
}

#[derive(Clone, Debug)]
enum Event {
    Call(Address, u64, Call),
    Answered(Address, u64, Result<Option<Answer>, Refused>),
    Register(ServerId),
    Order(Box<Order>),
    Acknowledge(ServerId, Acknowledge),
    Frame(Address, ServerId, u64, Push),
    Reply(Address, ServerId, u64, Result<Reply, Refusal>),
    Wake(GroupId, u64, Wake),
    Start(GroupId),
    Crash(usize),
    Tick,
    Malformed,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Hash of everything that happened, in order.
    pub trace: u64,
    /// Events.
    pub events: u64,
    /// Virtual time, microseconds.
    pub end_us: u64,
    /// Clocks that each group has finished, over all its lives.
    pub clocks: BTreeMap<GroupId, u64>,
    /// The longest that a shard held a block of each group back, microseconds.
    pub waited_us: BTreeMap<GroupId, u64>,
    /// Groups that started again because they died or were taken for dead.
    pub restarts: u64,
    /// The largest lag that a block held between two of its groups.
    pub lag_max: u64,
    /// Contributions that were decided, and repeats of decided ones.
    pub decided: u64,
    /// Frames whose verdict was repeated.
    pub repeated: u64,
    /// Malformed frames that were refused and changed nothing.
    pub malformed: u64,
}

/// One simulated run.
pub struct World {
    scenario: Scenario,
    common: Common,
    now_us: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Event>,
    coordinator: Coordinator,
    calls: BTreeMap<ReplyTo, (Address, u64)>,
    streams: BTreeMap<ReplyTo, Address>,
    servers: Vec<Server>,
    groups: BTreeMap<GroupId, Member>,
    network: Network,
    pace: ChaCha8Rng,
    mischief: ChaCha8Rng,
    checker: Checker,
    trace: DefaultHasher,
    progress_us: u64,
    report: Report,
}

/// A group through its lives.
#[derive(Debug)]
struct Member {
    up: Option<Group>,
    lives: u64,
    numbers: u64,
    /// It has left, or died for good.
    done: bool,
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let spec = scenario.spec();
        let layout = spec.check().expect("a specification that can be followed");
        let ids: Vec<ServerId> = (0..scenario.servers).map(ServerId).collect();
        let network = Network::new(scenario.network.clone(), scenario.seed);
        let placement = Placement::by_bytes(&layout, &ids);
        let checker = Checker::new(&spec, &layout, &placement, scenario.skip_one_in);
        let mut world = Self {
            common: Common {
                run: RunId::new("sim").expect("a name"),
                spec,
                layout,
                placement,
                skip_one_in: scenario.skip_one_in,
                late_answers: network.late_answers(),
            },
            now_us: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            coordinator: Coordinator::new(scenario.servers),
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            servers: ids.iter().map(|id| Server::new(*id, scenario.sabotage)).collect(),
            groups: BTreeMap::new(),
            network,
            pace: random_stream(scenario.seed, 3),
            mischief: random_stream(scenario.seed, 4),
            checker,
            trace: DefaultHasher::new(),
            progress_us: 0,
            report: Report::default(),
            scenario,
        };
        world.set_up(&ids);
        world
    }

    fn set_up(&mut self, servers: &[ServerId]) {
        for id in servers {
            self.after(0, Event::Register(*id));
        }
        for (index, plan) in self.scenario.groups.clone().iter().enumerate() {
            let member = Member { up: None, lives: 0, numbers: 0, done: false };
            self.groups.insert(GroupId(index as u32), member);
            self.after(plan.start_us, Event::Start(GroupId(index as u32)));
        }
        for index in 0..self.scenario.crashes.len() {
            self.after(self.scenario.crashes[index].at_us, Event::Crash(index));
        }
        self.after(TICK_US, Event::Tick);
        if self.scenario.malformed_every_us > 0 {
            self.after(self.scenario.malformed_every_us, Event::Malformed);
        }
    }

    /// Lets everything happen until all groups are done, or a rule is broken.
    pub fn run(mut self) -> Result<Report, Failure> {
        match self.run_to_end() {
            Ok(()) => {
                self.report.end_us = self.now_us;
                self.report.trace = self.trace.finish();
                self.checker.totals(&mut self.report);
                Ok(self.report)
            }
            Err(violation) => Err(Failure {
                seed: self.scenario.seed,
                at_us: self.now_us,
                violation,
            }),
        }
    }

    fn run_to_end(&mut self) -> Result<(), Violation> {
        while !self.groups.values().all(|member| member.done) {
            let ((at_us, _), event) = self.queue.pop_first().expect("the coordinator ticks on");
            self.now_us = at_us;
            self.report.events += 1;
            if at_us > END_US || at_us - self.progress_us > STUCK_US {
                let text = format!("nothing has moved since {} µs", self.progress_us);
                return Err(Violation::new(Rule::Liveness, text));
            }
            self.remember(&event);
            self.happen(event)?;
        }
        self.checker.end()
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Call(from, number, call) => self.call(from, number, call),
            Event::Answered(to, number, answer) => {
                return self.group(to.group, to.process, |group, common| {
                    group.answered(to.rank, number, answer, common);
                });
            }
            Event::Register(id) => self.register(id),
            Event::Order(order) => return self.order(*order),
            Event::Acknowledge(server, seen) => {
                let now_ms = self.now_ms();
                self.coordinator.acknowledge(server, &self.common.run, seen, now_ms);
                self.drain_coordinator();
            }
            Event::Frame(from, server, stream, push) => {
                return self.frame(from, server, stream, push);
            }
            Event::Reply(to, server, stream, result) => {
                return self.group(to.group, to.process, |group, common| {
                    group.replied(to.rank, (server, stream), result, common);
                });
            }
            Event::Wake(id, process, wake) => {
                return self.group(id, process, |group, common| group.wake(wake, common));
            }
            Event::Start(id) => return self.start(id),
            Event::Crash(index) => self.crash(index),
            Event::Tick => {
                self.coordinator.tick(self.now_ms());
                self.drain_coordinator();
                self.after(TICK_US, Event::Tick);
            }
            Event::Malformed => return self.malformed(),
        }
        Ok(())
    }

    // The coordinator.

    fn call(&mut self, from: Address, number: u64, call: Call) {
        let (now_ms, run) = (self.now_ms(), self.common.run.clone());
        // Every arrival is a call of its own, a duplicate too.
        let to = ReplyTo(self.sequence);
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
                self.coordinator.await_ready(&run, caller, created, to, now_ms);
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

    fn drain_coordinator(&mut self) {
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

    fn register(&mut self, id: ServerId) {
        let server = tradewind_server::core::coordinator::Server {
            incarnation: Incarnation(1),
            address: String::new(),
        };
        self.coordinator.register(id, server).expect("an expected server");
        self.drain_coordinator();
    }

    // The servers.

    fn order(&mut self, order: Order) -> Result<(), Violation> {
        let (id, view, now_us) = (order.server, order.view.clone(), self.now_us);
        let server = &mut self.servers[id.0 as usize];
        let seen = server.order(order, &self.common.layout, now_us);
        self.send(Some(id), Event::Acknowledge(id, seen));
        self.checker.view(id, &view)?;
        self.drain_server(id)
    }

    fn frame(
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
    fn malformed(&mut self) -> Result<(), Violation> {
        let every_us = self.scenario.malformed_every_us;
        let next_us = self.mischief.random_range(1..=2 * every_us);
        self.after(next_us, Event::Malformed);
        let id = ServerId(self.mischief.random_range(0..self.scenario.servers));
        let server = &mut self.servers[id.0 as usize];
        let view = server.view().clone();
        let Some(push) = malformed::draw(&self.checker, id, &view, &mut self.mischief) else {
            return Ok(());
        };
        let Some(shard) = server.shard() else { return Ok(()) };
        let before = shard.digest();
        shard.handle_push(push.clone(), ReplyTo(u64::MAX), self.now_us);
        let outputs: Vec<_> = std::iter::from_fn(|| shard.poll_output()).collect();
        let unchanged = shard.digest() == before;
        self.report.malformed += 1;
        malformed::check(&push, &outputs, unchanged)
    }

    // The groups.

    fn start(&mut self, id: GroupId) -> Result<(), Violation> {
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

    fn crash(&mut self, index: usize) {
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
    fn group(
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
        let address = |rank| Address { group: id, process, rank };
        match out {
            Out::Frame(rank, server, stream, push) => {
                self.send(Some(server), Event::Frame(address(rank), server, stream, push));
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

    // Time and the network.

    fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    fn after(&mut self, after_us: u64, event: Event) {
        self.at(self.now_us + after_us, event);
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((at_us, self.sequence), event);
    }

    /// Sends a message to or from a server, or between a rank and the coordinator.
    fn send(&mut self, server: Option<ServerId>, message: Event) {
        match self.network.send(self.now_us, server) {
            Fate::Arrives(at_us, again) => {
                if let Some(again_us) = again {
                    self.at(again_us, message.clone());
                }
                self.at(at_us, message);
            }
            Fate::Lost(noticed_us) => match message {
                Event::Frame(rank, server, stream, _) | Event::Reply(rank, server, stream, _) => {
                    let broken = Wake::Broken(rank.rank, server, stream);
                    self.at(noticed_us, Event::Wake(rank.group, rank.process, broken));
                }
                // The server's bond is broken; it registers again and is told all views.
                Event::Order(order) => self.at(noticed_us, Event::Register(order.server)),
                Event::Acknowledge(server, _) => self.at(noticed_us, Event::Register(server)),
                // Calls are made again after a time; a heartbeat is followed by the next one.
                _ => {}
            },
        }
    }

    fn remember(&mut self, event: &Event) {
        (self.now_us, std::mem::discriminant(event)).hash(&mut self.trace);
        match event {
            Event::Frame(from, server, stream, push) => {
                (from, server, stream, push.clock, push.block).hash(&mut self.trace);
            }
            Event::Reply(to, server, stream, Ok(reply)) => {
                (to, server, stream, reply.clock, reply.version).hash(&mut self.trace);
                (reply.block, reply.lag, reply.waited_us).hash(&mut self.trace);
            }
            Event::Call(from, number, _) => (from, number).hash(&mut self.trace),
            Event::Acknowledge(server, seen) => {
                (server, seen.generation, seen.clock_seen).hash(&mut self.trace);
            }
            _ => {}
        }
    }
}
