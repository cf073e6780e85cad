//! World: virtual time, the queue of what will happen, and the actors between which it happens.

mod actors;
mod event;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rand_chacha::ChaCha8Rng;
use tradewind_common::placement::Placement;
use tradewind_common::{GroupId, RunId, ServerId};
use tradewind_server::core::ReplyTo;
use tradewind_server::core::coordinator::Coordinator;

use super::group::{Common, Group, Wake};
use super::net::{Fate, Network};
use super::random_stream;
use super::scenario::Scenario;
use super::seeds::Failure;
use super::server::Server;
use crate::checker::{Checker, Rule, Violation};
use event::{Address, Event};

/// How often the coordinator looks at leases.
const TICK_US: u64 = 20_000;

/// Time without any decision or tick of a clock after which a run is stuck. Leases, the start
/// grace, the longest time down and the slowest step are all shorter.
const STUCK_US: u64 = 5_000_000;

/// Virtual time that no run needs.
const END_US: u64 = 600_000_000;

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
    /// Answers that were differences to what their group holds.
    pub differences: u64,
    /// Malformed frames that were refused and changed nothing.
    pub malformed: u64,
}

/// One simulated run.
pub struct World {
    scenario: Scenario,
    common: Common,
    now_us: u64,
    sequence: u64,
    arrivals: u64,
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
                overlap: scenario.overlap,
                skip_one_in: scenario.skip_one_in,
                late_answers: network.late_answers(),
            },
            now_us: 0,
            sequence: 0,
            arrivals: 0,
            queue: BTreeMap::new(),
            coordinator: Coordinator::new(scenario.servers),
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            servers: ids
                .iter()
                .map(|id| Server::new(*id, scenario.sabotage))
                .collect(),
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
            let member = Member {
                up: None,
                lives: 0,
                numbers: 0,
                done: false,
            };
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
            self.now_us.hash(&mut self.trace);
            event.trace(&mut self.trace);
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
                self.coordinator
                    .acknowledge(server, &self.common.run, seen, now_ms)
                    .expect("a server acknowledges what it was told");
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
        let sender = match &message {
            Event::Call(from, ..) | Event::Frame(from, ..) => Some(from.group),
            _ => None,
        };
        match self.network.send(self.now_us, server, sender) {
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
}
