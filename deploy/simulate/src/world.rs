//! The simulation: groups as actors around a real shard and a real coordinator, under a virtual clock.
//!
//! A group computes, reduces, pushes, waits for its answer, gathers. When its gradient has come to the servers,
//! the shard's core is handed a push of one symbolic value, and what it answers, and when, decides how the group
//! goes on. All servers have equal shards, so one stands for all.

use std::collections::BTreeMap;

use tradewind_common::layout::{TensorKind, TensorSpec};
use tradewind_common::mix::mixed;
use tradewind_common::optimizer::Sgd;
use tradewind_common::policy::MomentumSpec;
use tradewind_common::schedule::{Schedule, Seen};
use tradewind_common::spec::{OptimizerSpec, RunSpec};
use tradewind_common::straggler::Stragglers;
use tradewind_common::{BlockId, Clock, Compression, Generation, GroupId};
use tradewind_core::ReplyTo;
use tradewind_core::askers::Wants;
use tradewind_core::block::Gradient;
use tradewind_core::shard::{Action, Answer, Output, Push, Reply, Shard};

use crate::agenda::Agenda;
use crate::legs::{Applying, Legs, Sizes};
use crate::members::Members;
use crate::outcome::{Outcome, Served, Tally};
use crate::plan::Plan;
use crate::resource::Resource;
use crate::slowest::slowest;
use crate::time::{Nanos, SECOND, nanos, seconds};

/// Seconds of a year.
const YEAR: f64 = 365.25 * 86_400.0;

/// What random numbers are for.
#[derive(Clone, Copy)]
enum Stream {
    Machine = 0x5e11,
    Slow,
    Nodes,
    Servers,
}

/// What is to happen. What is of a life of a group that is over is forgotten.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A group's gradient is averaged.
    Computed(usize, u32),
    /// The first block of it has come to the servers.
    Arrived(usize, u32),
    /// A group holds fresh parameters.
    Answered(usize, u32, u64),
    /// The shard has asked to be called at this time.
    Look,
    /// A node of a group fails.
    NodeFails(usize),
    /// That is noticed.
    Noticed(usize),
    /// The group is there again.
    Back(usize),
    /// A server fails.
    ServerFails,
    /// Everything is saved.
    Snapshot,
    /// Groups that have ended leave.
    Leave,
}

/// A gradient that is computed, or was.
#[derive(Clone, Copy, Debug)]
struct Computing {
    began: Nanos,
    takes: Nanos,
    /// Of the values that it is computed on.
    version: u64,
}

/// An exchange under way.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    clock: Clock,
    began: Nanos,
    /// Of the values that its gradient was computed on.
    version: u64,
    /// The last block has come to the servers.
    all_in: Nanos,
    stop: bool,
}

#[derive(Debug)]
struct Group {
    /// Which life of it; counts what it has begun anew.
    life: u32,
    alive: bool,
    ended: bool,
    /// Index of its legs.
    legs: usize,
    samples: u32,
    /// How many times as long its slow nodes take.
    slow: f64,
    /// Of its next push.
    clock: Clock,
    /// Version of the values that it holds.
    version: u64,
    computing: Option<Computing>,
    /// A gradient that waits for the exchange before it.
    computed: Option<Computing>,
    exchange: Option<Exchange>,
    answered: Option<Nanos>,
    failed: u64,
}

/// A server, which stands for all.
#[derive(Debug)]
struct Server {
    receives: Resource,
    sends: Resource,
    cores: Resource,
    applies: Resource,
}

pub(crate) struct World<'a> {
    plan: &'a Plan,
    sizes: &'a Sizes,
    legs: Vec<Legs>,
    applying: Applying,
    /// What makes steps slow by themselves, besides what the run asks for.
    machine: Stragglers,
    members: Members,
    shard: Shard,
    server: Server,
    groups: Vec<Group>,
    /// Groups that are alive and have not ended.
    active: usize,
    agenda: Agenda<Event>,
    now: Nanos,
    /// When the shard is looked at next.
    look: Option<Nanos>,
    /// Whether groups are about to leave.
    leaving: bool,
    /// Nobody steps before.
    still_until: Nanos,
    /// When the whole job was ended last.
    ended_at: Option<Nanos>,
    /// Samples that the last snapshot has.
    saved: u64,
    updates: u64,
    tally: Tally,
}

/// What the cores need to know of the run: one value a shard, which plain SGD moves.
fn symbolic(plan: &Plan, samples: u64) -> RunSpec {
    let config = &plan.config;
    let value = TensorSpec {
        name: "value".into(),
        shape: vec![1],
        kind: TensorKind::Parameter,
    };
    let mut spec = config.spec(vec![value], samples);
    spec.group_sizes = vec![1; config.cluster.groups.len()];
    spec.policies.momentum = MomentumSpec::default();
    spec.optimizer = OptimizerSpec::Sgd(Sgd {
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    });
    spec.schedule = Schedule::constant(0.0);
    spec.samples = samples;
    spec.batch_ramp = Vec::new();
    spec.local = false;
    spec.local_steps = 1;
    spec.chunk_samples = samples;
    spec.sets = Default::default();
    spec.milestone_samples = 0;
    spec.up = Compression::None;
    spec.down = Compression::None;
    spec.faults.replication = 1;
    spec
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, sizes: &'a Sizes) -> Self {
        let config = &plan.config;
        let group_sizes = &config.cluster.groups;
        let local_steps = config.local.as_ref().map_or(1, |local| local.steps);
        let mut legs = Vec::new();
        let mut of_size = BTreeMap::new();
        let mut groups = Vec::with_capacity(group_sizes.len());
        for (number, size) in group_sizes.iter().enumerate() {
            let index = *of_size.entry(*size).or_insert_with(|| {
                legs.push(sizes.legs(plan, *size));
                legs.len() - 1
            });
            let samples = plan.batch(number) * f64::from(*size) * f64::from(local_steps);
            groups.push(Group {
                life: 0,
                alive: true,
                ended: false,
                legs: index,
                samples: samples.round().max(1.0) as u32,
                slow: slow(plan, number, *size),
                clock: Clock(0),
                version: 0,
                computing: None,
                computed: None,
                exchange: None,
                answered: None,
                failed: 0,
            });
        }
        let each: u64 = groups.iter().map(|group| u64::from(group.samples)).sum();
        let samples = match plan.extent.clocks {
            0 => config.train.samples,
            clocks => clocks.saturating_mul(each),
        };
        let (members, shard) = Members::begin(config.name.clone(), symbolic(plan, samples));
        let step = nanos(typical_step(plan, 0));
        let resource = || Resource::new(step);
        Self {
            plan,
            sizes,
            legs,
            applying: sizes.applying(plan),
            machine: Stragglers {
                dials: plan.machine.dials(),
                ..Stragglers::none(
                    mixed(config.seed, [Stream::Machine as u64]),
                    group_sizes.clone(),
                )
            },
            members,
            shard,
            server: Server {
                receives: resource(),
                sends: resource(),
                cores: resource(),
                applies: resource(),
            },
            active: groups.len(),
            groups,
            agenda: Agenda::default(),
            now: 0,
            look: None,
            leaving: false,
            still_until: 0,
            ended_at: None,
            saved: 0,
            updates: 0,
            tally: Tally::new(samples),
        }
    }

    /// Runs to the end.
    pub(crate) fn run(mut self) -> Outcome {
        self.plan_failures();
        for group in 0..self.groups.len() {
            self.compute(group);
        }
        while self.active > 0 || self.tally.applied < self.tally.budget {
            let (at, event) = self.agenda.next().expect("somebody goes on");
            self.now = at;
            self.happen(event);
        }
        self.outcome()
    }

    fn happen(&mut self, event: Event) {
        let lives = |world: &Self, group: usize, life| world.groups[group].life == life;
        match event {
            Event::Computed(group, life) if lives(self, group, life) => self.computed(group),
            Event::Arrived(group, life) if lives(self, group, life) => self.arrived(group),
            Event::Answered(group, life, version) if lives(self, group, life) => {
                self.answered(group, version);
            }
            Event::Computed(..) | Event::Arrived(..) | Event::Answered(..) => {}
            Event::Look => {
                self.look = None;
                self.shard.handle_timeout(self.now / 1_000);
                self.decided();
            }
            Event::NodeFails(group) => self.node_fails(group),
            Event::Noticed(group) => {
                let group_id = GroupId(group as u32);
                self.members.lose(&[group_id], &mut self.shard, self.now);
                self.decided();
                let back = nanos(self.plan.failures.recover_seconds);
                self.agenda.put(self.now + back, Event::Back(group));
            }
            Event::Back(group) => self.back(group),
            Event::ServerFails => self.server_fails(),
            Event::Snapshot => {
                let failures = &self.plan.failures;
                self.saved = self.tally.applied;
                let still = self.now + nanos(failures.snapshot_seconds);
                self.still_until = self.still_until.max(still);
                let every = nanos(failures.snapshot_every_seconds);
                self.agenda.put(self.now + every, Event::Snapshot);
            }
            Event::Leave => self.leave(),
        }
    }

    /// A group begins its next step, or the steps up to its next exchange.
    fn compute(&mut self, group: usize) {
        let takes = self.step(group);
        let this = &mut self.groups[group];
        let began = self.now.max(self.still_until);
        this.computing = Some(Computing {
            began,
            takes,
            version: this.version,
        });
        let computed = Event::Computed(group, this.life);
        self.agenda.put(began + takes, computed);
    }

    /// How long that takes, reductions included.
    fn step(&mut self, group: usize) -> Nanos {
        let (config, machine) = (&self.plan.config, &self.plan.machine);
        let this = &self.groups[group];
        let (id, legs) = (GroupId(group as u32), &self.legs[this.legs]);
        let steps = u64::from(config.local.as_ref().map_or(1, |local| local.steps));
        let computes = machine.computes(self.plan.batch(group)) * this.slow;
        let mut all = 0;
        for nth in 0..steps {
            let step = this.clock.0 * steps + nth;
            let paced = config.step_seconds * slowest(&config.stragglers, id, step);
            let own = computes * slowest(&self.machine, id, step);
            let computing = nanos(paced.max(own));
            let hidden = (computing as f64 * machine.reduce_hidden) as Nanos;
            let reducing = legs.reduce.saturating_sub(hidden);
            self.tally.computing += seconds(computing);
            self.tally.reducing += seconds(reducing);
            all += computing + reducing + nanos(machine.overhead_seconds);
        }
        all
    }

    fn computed(&mut self, group: usize) {
        let this = &mut self.groups[group];
        let computing = this.computing.take().expect("a group that has computed");
        // The job was ended meanwhile, and goes on from its snapshot.
        if self
            .ended_at
            .is_some_and(|at| computing.began <= at && at < self.now)
        {
            let again = Computing {
                began: self.still_until,
                ..computing
            };
            this.computing = Some(again);
            let computed = Event::Computed(group, this.life);
            self.agenda.put(again.began + again.takes, computed);
            return;
        }
        this.computed = Some(computing);
        self.exchange(group);
    }

    /// Begins the exchange of what a group has computed, if the one before is over.
    fn exchange(&mut self, group: usize) {
        let this = &mut self.groups[group];
        if this.exchange.is_some() {
            return;
        }
        let Some(computed) = this.computed.take() else {
            return;
        };
        let legs = &self.legs[this.legs];
        let latency = self.plan.machine.latency();
        let server = &mut self.server;
        let (begins, received) = server
            .receives
            .serve(self.now + latency, legs.server_receives);
        let received = received.max(self.now + latency + legs.rank_sends);
        let (taken, done) = server.cores.serve(begins, legs.cores);
        let all_in = received.max(done);
        let first = taken + ((all_in - taken) as f64 * legs.first_block) as Nanos;
        this.exchange = Some(Exchange {
            clock: this.clock,
            began: self.now,
            version: computed.version,
            all_in,
            stop: false,
        });
        this.clock = this.clock.tick();
        self.agenda.put(first, Event::Arrived(group, this.life));
        if self.plan.config.train.overlap {
            self.compute(group);
        }
    }

    /// The shard's core is handed a group's gradient.
    fn arrived(&mut self, group: usize) {
        let this = &self.groups[group];
        let exchange = this.exchange.expect("a group that exchanges");
        let gradient = Gradient {
            values: vec![0.0],
            samples: this.samples,
            pulled_version: exchange.version,
            lineage: Generation(0),
            seen: Seen {
                samples: self.tally.applied,
                updates: exchange.version,
            },
            norms: Vec::new(),
        };
        let push = Push {
            group: GroupId(group as u32),
            incarnation: self.members.life(GroupId(group as u32)),
            clock: exchange.clock,
            block: BlockId(0),
            wants: Wants::Nothing,
            action: Action::Contribute(Some(gradient)),
        };
        let to = ReplyTo(group as u64);
        self.tally.waits(1);
        self.shard.handle_push(push, to, self.now / 1_000);
        self.decided();
    }

    /// Takes in what the shard has decided, and sends its answers on their way.
    fn decided(&mut self) {
        let mut replies: Vec<(usize, Reply)> = Vec::new();
        while let Some(output) = self.shard.poll_output() {
            match output {
                Output::Reply { to, result } => {
                    self.tally.waits(-1);
                    let group = to.0 as usize;
                    match result {
                        Ok(reply) => replies.push((group, reply)),
                        // A group that is dead waits for nothing.
                        Err(_) if !self.groups[group].alive => {}
                        Err(refusal) => unreachable!("group {group} is refused: {refusal}"),
                    }
                }
                Output::Report(_)
                | Output::Record { .. }
                | Output::Captured { .. }
                | Output::Milestone { .. } => {}
            }
        }
        if !replies.is_empty() {
            self.answer(&replies);
        }
        if let Some(at_us) = self.shard.poll_timeout() {
            let at = (at_us * 1_000).max(self.now);
            if self.look.is_none_or(|look| at < look) {
                self.look = Some(at);
                self.agenda.put(at, Event::Look);
            }
        }
    }

    /// Answers of contributions that were decided at once.
    fn answer(&mut self, replies: &[(usize, Reply)]) {
        let updates = self.shard.counters().updates
            - std::mem::replace(&mut self.updates, self.shard.counters().updates);
        let contributions = replies.len() as u64;
        let further = contributions.saturating_sub(updates.max(1));
        let takes = match updates {
            0 => 0,
            updates => updates * self.applying.first + further * self.applying.further,
        };
        let (begins, _) = self.server.applies.serve(self.now, takes);
        // Copies confirm before an answer leaves.
        let copied = match self.plan.config.faults.replication {
            1 => 0,
            _ => 2 * self.plan.machine.latency(),
        };
        for (nth, (group, reply)) in replies.iter().enumerate() {
            let decided = matches!(reply.answer, Answer::Decided(..));
            debug_assert!(decided, "only contributions are pushed");
            self.tally.answered(reply, self.now);
            let this = &mut self.groups[*group];
            let Some(exchange) = this.exchange.as_mut().filter(|_| this.alive) else {
                continue;
            };
            exchange.stop = reply.stop;
            this.clock = this.clock.max(reply.next);
            let legs = &self.legs[this.legs];
            // Of several updates each answer waits for its own.
            let part = ((nth as u64 + 1) * updates.max(1)).div_ceil(contributions);
            let applied = begins + takes * part / updates.max(1);
            let ready = applied.max(exchange.all_in) + copied;
            let server = &mut self.server;
            let (begun, sent) = server.sends.serve(begins + copied, legs.server_sends);
            let latency = self.plan.machine.latency();
            let last = ready.max(sent) + latency;
            let received = last.max(begun + latency + legs.rank_receives);
            let answered = Event::Answered(*group, this.life, reply.version);
            self.agenda.put(received + legs.gather, answered);
        }
    }

    fn answered(&mut self, group: usize, version: u64) {
        let now = self.now;
        let this = &mut self.groups[group];
        let exchange = this.exchange.take().expect("a group that exchanges");
        this.version = version;
        self.tally.exchanging += seconds(now - exchange.began);
        if let Some(before) = this.answered.replace(now) {
            self.tally.intervals.add(seconds(now - before));
        }
        self.tally.ended = self.tally.ended.max(now);
        if exchange.stop {
            this.ended = true;
            this.life += 1;
            (this.computing, this.computed) = (None, None);
            self.active -= 1;
            // Those that end at about the same time leave together.
            let soon = nanos(typical_step(self.plan, group) / 10.0);
            if !std::mem::replace(&mut self.leaving, true) {
                self.agenda.put(now + soon, Event::Leave);
            }
            return;
        }
        self.exchange(group);
        let this = &self.groups[group];
        if this.computing.is_none() && this.computed.is_none() {
            self.compute(group);
        }
    }

    /// Groups that have ended leave, so that nobody waits for them.
    fn leave(&mut self) {
        self.leaving = false;
        let ended = self.groups.iter_mut().enumerate();
        let ended = ended.filter(|(_, group)| group.ended && group.alive);
        let leaving: Vec<GroupId> = ended
            .map(|(number, group)| {
                group.alive = false;
                GroupId(number as u32)
            })
            .collect();
        self.members.lose(&leaving, &mut self.shard, self.now);
        self.decided();
    }

    fn plan_failures(&mut self) {
        let failures = self.plan.failures;
        if failures.node_years > 0.0 {
            for group in 0..self.groups.len() {
                self.plan_failure(group);
            }
        }
        self.plan_server_failure(0);
        if failures.snapshot_every_seconds > 0.0 {
            let every = nanos(failures.snapshot_every_seconds);
            self.agenda.put(every, Event::Snapshot);
        }
    }

    /// The next failure of a node of a group.
    fn plan_failure(&mut self, group: usize) {
        let size = self.plan.config.cluster.groups[group];
        let nodes = f64::from(size.div_ceil(self.plan.machine.ranks_per_node));
        let this = &mut self.groups[group];
        this.failed += 1;
        let parts = [Stream::Nodes as u64, group as u64, this.failed];
        let mean = self.plan.failures.node_years * YEAR / nodes;
        let after = exponential(self.plan.config.seed, parts, mean);
        self.agenda
            .put(self.now.saturating_add(after), Event::NodeFails(group));
    }

    fn plan_server_failure(&mut self, failed: u64) {
        if self.plan.failures.server_years > 0.0 {
            let parts = [Stream::Servers as u64, failed, 0];
            let servers = f64::from(self.sizes.servers);
            let mean = self.plan.failures.server_years * YEAR / servers;
            let after = exponential(self.plan.config.seed, parts, mean);
            self.agenda
                .put(self.now.saturating_add(after), Event::ServerFails);
        }
    }

    fn node_fails(&mut self, group: usize) {
        let failures = self.plan.failures;
        if !self.groups[group].alive || self.groups[group].ended {
            return;
        }
        self.tally.node_failures += 1;
        let noticed = self.now + nanos(failures.detect_seconds);
        if failures.restart {
            self.tally.lost += self.tally.applied - self.saved;
            self.saved = self.tally.applied;
            self.ended_at = Some(self.now);
            let goes_on = noticed + nanos(failures.recover_seconds);
            self.still_until = self.still_until.max(goes_on);
            self.plan_failure(group);
            return;
        }
        self.active -= 1;
        let this = &mut self.groups[group];
        this.alive = false;
        this.life += 1;
        (this.computing, this.computed, this.exchange) = (None, None, None);
        this.answered = None;
        self.agenda.put(noticed, Event::Noticed(group));
    }

    fn back(&mut self, group: usize) {
        if self.tally.applied >= self.tally.budget {
            return;
        }
        self.active += 1;
        let id = GroupId(group as u32);
        let start = self.members.come_back(id, &mut self.shard, self.now);
        self.decided();
        let version = self.version();
        let this = &mut self.groups[group];
        this.alive = true;
        this.clock = start;
        this.version = version;
        self.compute(group);
        self.plan_failure(group);
    }

    fn server_fails(&mut self) {
        let failures = self.plan.failures;
        self.tally.server_failures += 1;
        let until = self.now + nanos(failures.detect_seconds + failures.failover_seconds);
        let server = &mut self.server;
        for resource in [
            &mut server.receives,
            &mut server.sends,
            &mut server.cores,
            &mut server.applies,
        ] {
            resource.stand_still(until);
        }
        if self.plan.config.faults.replication == 1 {
            // Of one shard of all.
            self.tally.lost += (self.tally.applied - self.saved) / u64::from(self.sizes.servers);
        }
        self.plan_server_failure(self.tally.server_failures);
    }

    /// Version of the values at the servers.
    fn version(&self) -> u64 {
        self.shard
            .blocks()
            .next()
            .map_or(0, |(_, block)| block.version())
    }

    fn outcome(self) -> Outcome {
        let served = |resource: &Resource| Served {
            busy: seconds(resource.busy()),
            waited_max: seconds(resource.waited_max()),
            saturated: resource.saturated().map(seconds),
        };
        let ideal = |(number, group): (usize, &Group)| {
            let local = self
                .plan
                .config
                .local
                .as_ref()
                .map_or(1, |local| local.steps);
            f64::from(group.samples) / (typical_step(self.plan, number) * f64::from(local))
        };
        let rank = |group: &Group| {
            let legs = &self.legs[group.legs];
            seconds(legs.rank_sends.max(legs.rank_receives))
        };
        Outcome {
            ideal: self.groups.iter().enumerate().map(ideal).sum(),
            rank_busy: self.groups.iter().map(rank).fold(0.0, f64::max),
            receives: served(&self.server.receives),
            sends: served(&self.server.sends),
            cores: served(&self.server.cores),
            applies: served(&self.server.applies),
            updates: self.shard.counters().updates,
            dropped: self.shard.counters().dropped,
            delays: self.shard.counters().delays.clone(),
            tally: self.tally,
            legs: self.legs,
        }
    }
}

/// Seconds of a step that nothing slows down.
fn typical_step(plan: &Plan, group: usize) -> f64 {
    plan.config
        .step_seconds
        .max(plan.machine.computes(plan.batch(group)))
}

/// How many times as long the slow nodes of a group take, if it has any.
fn slow(plan: &Plan, group: usize, size: u32) -> f64 {
    let nodes = f64::from(size.div_ceil(plan.machine.ranks_per_node));
    let none = (1.0 - plan.machine.slow_part).powf(nodes);
    match uniform(plan.config.seed, [Stream::Slow as u64, group as u64, 0]) < none {
        true => 1.0,
        false => plan.machine.slow_factor,
    }
}

/// In 0..1, never an end of it.
fn uniform(seed: u64, parts: [u64; 3]) -> f64 {
    ((mixed(seed, parts) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Until the next event of many that have nothing to do with each other.
fn exponential(seed: u64, parts: [u64; 3], mean_seconds: f64) -> Nanos {
    let seconds = -uniform(seed, parts).ln() * mean_seconds;
    (seconds * SECOND).min(9e18) as Nanos
}

#[cfg(test)]
mod tests;
