//! World: virtual time, the queue of what will happen, and the actors between which it happens.

mod announce;
mod coordinator;
mod disk;
mod event;
mod faults;
mod groups;
mod links;
mod recording;
mod sabotaged;
mod saboteur;
mod server;
mod shards;
mod store;
mod ways;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use tradewind_common::placement::Placement;
use tradewind_common::{BlockId, GroupId, RunId, ServerId};
use tradewind_core::ReplyTo;
use tradewind_core::mark::Mark;
use tradewind_core::run::Run;
use tradewind_core::saved::Saved;

use crate::checker::{Checker, Rule, Violation};
use crate::group::{Common, Wake};
use crate::net::{Fate, Network};
use crate::party::Party;
use crate::random_stream;
use crate::report::Report;
use crate::scenario::{LEASE_MS, Scenario};
use crate::seeds::{Failure, TRACE_VARIABLE};
use coordinator::Host;
use disk::Disk;
use event::{Address, Done, Event, Process, Told, Up};
use groups::Member;
use links::Links;
use recording::Recording;
use server::Server;
use store::Store;
use witness::Witness;

/// Time without any decision or tick of a clock after which a run is stuck. Leases, graces, the
/// longest time down and the slowest step, one after the other, are all shorter.
const STUCK_US: u64 = 12_000_000;

/// How much longer it may take where messages are later than a lease: then connections break all the
/// time, and many beginnings come to nothing.
const STUCK_LATE: u64 = 3;

/// Virtual time that no run needs.
const END_US: u64 = 600_000_000;

/// Events that no run needs.
const EVENTS_MAX: u64 = 300_000;

/// One simulated run.
pub struct World {
    scenario: Scenario,
    common: Common,
    now_us: u64,
    sequence: u64,
    arrivals: u64,
    queue: BTreeMap<(u64, u64), Event>,
    /// Processes that do nothing until then.
    asleep: BTreeMap<Process, (u64, u64)>,
    store: Store,
    disk: Disk,
    coordinators: BTreeMap<u64, Host>,
    /// Coordinators that have claimed and not yet read.
    reading: BTreeSet<u64>,
    /// What the run goes on from, once it has been resumed.
    resume: Option<Saved>,
    /// Ranks by the streams that they opened.
    streams: BTreeMap<ReplyTo, Address>,
    links: Links,
    /// What left of each block, as it is recorded where it survives processes.
    marks: BTreeMap<(ServerId, BlockId), Mark>,
    servers: BTreeMap<ServerId, Server>,
    /// Servers that never come back.
    gone: BTreeSet<ServerId>,
    groups: BTreeMap<GroupId, Member>,
    network: Network,
    pace: ChaCha8Rng,
    mischief: ChaCha8Rng,
    checker: Checker,
    witness: Witness,
    /// What a coordinator has decided breaks a rule.
    broken: Option<Violation>,
    /// When all groups were done.
    ended_us: Option<u64>,
    /// What groups ask and are answered, where values are vector clocks.
    recording: Option<Recording>,
    trace: DefaultHasher,
    progress_us: u64,
    report: Report,
    tells: bool,
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let spec = scenario.spec();
        let layout = spec.check().expect("a specification that can be followed");
        let network = Network::new(scenario.network.clone(), scenario.seed);
        let placement = Arc::new(Placement::by_bytes(&layout, scenario.servers));
        let brought = scenario.brought();
        let checker = Checker::new(&spec, &layout, placement.clone(), brought);
        let recording = scenario
            .clocks
            .then(|| Recording::new(&scenario, &placement));
        let mut world = Self {
            common: Common {
                run: RunId::new("sim").expect("a name"),
                spec,
                layout,
                placement,
                overlap: scenario.overlap,
                brought,
                late_answers: network.late_answers(),
            },
            now_us: 0,
            sequence: 0,
            arrivals: 0,
            queue: BTreeMap::new(),
            asleep: BTreeMap::new(),
            store: Store::default(),
            disk: Disk::new(scenario.seed),
            coordinators: BTreeMap::new(),
            reading: BTreeSet::new(),
            resume: None,
            streams: BTreeMap::new(),
            links: Links::default(),
            marks: BTreeMap::new(),
            servers: BTreeMap::new(),
            gone: BTreeSet::new(),
            groups: BTreeMap::new(),
            network,
            pace: random_stream(scenario.seed, 3),
            mischief: random_stream(scenario.seed, 4),
            checker,
            witness: Witness::default(),
            broken: None,
            ended_us: None,
            recording,
            trace: DefaultHasher::new(),
            progress_us: 0,
            report: Report::default(),
            tells: std::env::var_os(TRACE_VARIABLE).is_some(),
            scenario,
        };
        world.set_up();
        for index in 0..world.scenario.faults.len() {
            world.after(world.scenario.faults[index].at_us, Event::Fault(index));
        }
        if world.scenario.malformed_every_us > 0 {
            world.after(world.scenario.malformed_every_us, Event::Malformed);
        }
        world
    }

    /// The processes of the scenario as it is now begin.
    fn set_up(&mut self) {
        self.after(0, Event::StartCoordinator);
        for id in 0..self.scenario.servers {
            self.servers.entry(ServerId(id)).or_default();
            self.after(0, Event::StartServer(ServerId(id)));
        }
        self.start_groups();
    }

    /// After which time without anything moving the run is stuck.
    fn stuck_us(&self) -> u64 {
        let late = self.scenario.network.hold_us > LEASE_MS * 1_000;
        STUCK_US * if late { STUCK_LATE } else { 1 }
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
        while self.report.failed.is_none()
            && self.broken.is_none()
            && (!self.groups.values().all(Member::done) || self.owes())
        {
            let ((at_us, _), event) = self.queue.pop_first().expect("faults and ticks go on");
            self.now_us = at_us;
            if let Some(until_us) = self.sleeps(&event) {
                self.at(until_us, event);
                continue;
            }
            self.report.events += 1;
            let endless = at_us > END_US || self.report.events > EVENTS_MAX;
            self.say(|| format!("{event:?}"));
            let waits = self.ended_us.is_none();
            if endless || (waits && at_us - self.progress_us > self.stuck_us()) {
                return Err(Violation::new(Rule::Liveness, self.stuck()));
            }
            self.now_us.hash(&mut self.trace);
            event.trace(&mut self.trace);
            self.happen(event)?;
        }
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        if self.report.failed.is_none() {
            self.check_told()?;
            self.checker.end()?;
        }
        self.recording.as_ref().map_or(Ok(()), Recording::check)
    }

    fn stuck(&self) -> String {
        let since_us = self.progress_us;
        let host = self.store.address.and_then(|n| self.coordinators.get(&n));
        let run = host.and_then(|host| host.core.run(&self.common.run).ok());
        let holders = |run: &Run| run.holders().cloned().collect::<Vec<_>>();
        let run = run.map(|run| (run.phase(), holders(run), run.view(), run.rows(0)));
        let ranks = self.groups.iter().flat_map(|(id, member)| {
            let open = member.seats.iter().filter(|(_, seat)| !seat.done);
            open.map(move |(rank, _)| {
                let process = member.group.ranks.get(rank);
                format!("{id}/{}: {:?}", rank.0, process.map(|p| p.stands()))
            })
        });
        let ranks: Vec<String> = ranks.collect();
        format!("nothing has moved since {since_us} µs; ranks {ranks:?}; the coordinator: {run:?}")
    }

    /// Until when the process that something happens to does nothing.
    fn sleeps(&mut self, event: &Event) -> Option<u64> {
        let process = event.whom()?;
        let (since_us, until_us) = *self.asleep.get(&process)?;
        if until_us > self.now_us {
            return Some(until_us);
        }
        self.asleep.remove(&process);
        let last = self.coordinators.last_key_value();
        // Another one may have listened meanwhile.
        if let Process::Coordinator(n) = process
            && last.is_none_or(|(last, _)| *last == n)
        {
            self.was_deaf(since_us);
        }
        None
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Coordinator(n, told) => {
                if let Told::Server(_, bond, _) = &told
                    && !self.links.delivers(*bond, self.now_us)
                {
                    return Ok(());
                }
                match &told {
                    // What else it says may be about what has long been.
                    Told::Server(life, _, Up::Register | Up::Beat) => self.hears(*life),
                    Told::Server(life, _, Up::Report(report)) => {
                        self.hears_of(*life, report.seen.generation);
                    }
                    Told::ServerLost(life, _) => self.loses(*life),
                    _ => {}
                }
                self.tell(n, told);
            }
            Event::Wrote(n) => self.wrote(n),
            Event::Looked(n) => self.looked(n),
            Event::StartCoordinator => self.start_coordinator(),
            Event::ReadState(n) => self.read_state(n),
            Event::Server(life, done) => return self.server(life, done),
            Event::StartServer(id) => self.start_server(id),
            Event::Answered(to, call, answer, directory) => {
                return self.rank(to, |rank, common| {
                    rank.answered(call, answer, directory, common);
                });
            }
            Event::Reply(to, (life, shard), stream, result) => {
                if let (Some(recording), Ok(reply)) = (&mut self.recording, &result) {
                    recording.answered((to, stream), reply, self.now_us);
                }
                let lives = self.running(life).is_some();
                return self.rank(to, |rank, common| {
                    rank.replied((shard, stream, lives), result, common);
                });
            }
            Event::Wake(to, wake) => return self.rank(to, |rank, common| rank.wake(wake, common)),
            Event::StartRank(group, rank) => return self.start_rank(group, rank),
            Event::Finish(n, manifest) => self.finish_snapshot(n, *manifest),
            Event::Delete(number) => self.disk.delete(number),
            Event::Fault(index) => return self.fault(index),
            Event::Malformed => return self.malformed(),
        }
        Ok(())
    }

    fn server(&mut self, life: event::Life, done: Done) -> Result<(), Violation> {
        let delivers = |links: &Links, now_us, number| links.delivers(number, now_us);
        match done {
            Done::Connect => self.connect(life),
            Done::Beat(bond) => self.beat(life, bond),
            Done::BondBroke(bond) => self.bond_broke(life, bond),
            Done::Order(bond, n, order) => return self.ordered(life, (bond, n), order),
            Done::Obey => return self.read_for_order(life),
            Done::Link(shard, to, way) => return self.link(life, shard, to, way),
            Done::Unlinked(shard, to, way) => self.unlinked(life, shard, to, way),
            Done::Record(from, shard, way, record) => {
                if delivers(&self.links, self.now_us, way) {
                    return self.record(life, from, shard, way, *record);
                }
            }
            Done::Confirm(shard, way, confirm) => {
                if delivers(&self.links, self.now_us, way) {
                    return self.confirm(life, shard, confirm);
                }
            }
            Done::Frame(from, shard, stream, push) => {
                if self.running(life).is_none() {
                    self.lose_stream(from, shard, stream);
                    return Ok(());
                }
                return self.frame(life, from, shard, stream, push);
            }
            Done::Timeout(shard) => return self.timeout(life, shard),
            Done::Written(shard, number, file) => self.part_written(life, shard, number, *file),
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

    /// Tells whoever replays a seed what happens.
    fn say(&self, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{:>9} {:.400}", self.now_us, what());
        }
    }

    fn draw_mischief(&mut self, from: u64, to: u64) -> u64 {
        self.mischief.random_range(from..=to)
    }

    /// Sends a message of a rank or to one: a call, a frame, or an answer.
    fn send(&mut self, from: Party, to: Party, message: Event) {
        match self.network.send(self.now_us, from, to) {
            Fate::Arrives(at_us, again) => {
                if let Some(again_us) = again {
                    self.at(again_us, message.clone());
                }
                self.at(at_us, message);
            }
            // Calls are made again after a time; a heartbeat is followed by the next one.
            Fate::Lost(noticed_us) => match message {
                Event::Server(_, Done::Frame(rank, shard, stream, _))
                | Event::Reply(rank, (_, shard), stream, _) => {
                    let broken = Wake::Broken(shard, stream);
                    self.at(noticed_us, Event::Wake(rank, broken));
                }
                _ => {}
            },
        }
    }

    /// A frame reached nobody.
    fn lose_stream(&mut self, rank: Address, shard: tradewind_common::ShardId, stream: u64) {
        let us = self.network.notice(self.now_us);
        self.at(us, Event::Wake(rank, Wake::Broken(shard, stream)));
    }
}
