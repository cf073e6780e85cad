//! Coordinator: the servers of the fleet and the runs on it.
//!
//! Whoever drives it writes [`Coordinator::durable`] down whenever [`Coordinator::take_dirty`] says
//! so, and only then acts on outputs: nobody hears of what a successor would not know.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tradewind_common::data::Chunk;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ServerId, ShardId};

use super::ReplyTo;
use super::answer::{Answer, RUNS_MAX, Refused};
use super::durable::{Durable, ManifestData, Saved};
use super::event::{EVENTS_MAX, Event, EventKind};
use super::fleet::{Fleet, Presence};
use super::order::{NotCaptured, Order, Server, ShardFile, ShardReport};
use super::refusal::Refusal;
use super::run::{Caller, Join, Run, resume};

/// What the coordinator wants done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Answer a call.
    Reply(ReplyTo, Result<Answer, Refused>),
    /// Tell a server.
    Order(Box<Order>),
    /// Tell people.
    Event(Event),
    /// Write the manifest of a snapshot whose parts are all there, then say so
    /// ([`Coordinator::written`]).
    Manifest(Box<ManifestData>),
    /// Delete a snapshot, or what there is of it.
    Delete {
        /// Of which run.
        run: RunId,
        /// Which.
        number: u64,
    },
}

/// The servers of the fleet and the runs on it.
#[derive(Debug)]
pub struct Coordinator {
    fleet: Fleet,
    /// Whether there is a folder for snapshots.
    snapshots: bool,
    runs: BTreeMap<RunId, Run>,
    /// Runs that go on from a snapshot when they are joined.
    resuming: BTreeMap<RunId, Saved>,
    outputs: VecDeque<Output>,
    recent: VecDeque<Event>,
    events: u64,
    now_ms: u64,
    dirty: bool,
}

impl Coordinator {
    /// A coordinator of a fleet of `servers` servers, at least 1, numbered from 0, whose leases
    /// last `lease_ms`. It takes snapshots if there is a folder for them.
    pub fn new(servers: u32, snapshots: bool, lease_ms: u64) -> Self {
        Self {
            fleet: Fleet::new(servers, lease_ms),
            snapshots,
            runs: BTreeMap::new(),
            resuming: BTreeMap::new(),
            outputs: VecDeque::new(),
            recent: VecDeque::new(),
            events: 0,
            now_ms: 0,
            dirty: true,
        }
    }

    /// Goes on for a coordinator that is no more. Servers and ranks have one lease to show up.
    pub fn recover(
        servers: u32,
        snapshots: bool,
        lease_ms: u64,
        durable: Durable,
        now_ms: u64,
    ) -> Self {
        let mut coordinator = Self {
            fleet: Fleet::recover(servers, lease_ms, durable.servers, now_ms),
            runs: durable.runs,
            resuming: durable.resuming,
            now_ms,
            ..Self::new(servers, snapshots, lease_ms)
        };
        let runs = coordinator.runs.len();
        let text = format!("a coordinator has taken over, with {runs} runs");
        coordinator.tell(Event::new(EventKind::Coordinator, text));
        for run in coordinator.runs.values_mut() {
            run.recover(snapshots, now_ms);
        }
        coordinator.drain();
        coordinator
    }

    /// What has to be written down before outputs are acted on.
    pub fn durable(&self) -> Durable {
        Durable {
            servers: self.fleet.known().clone(),
            runs: self.runs.clone(),
            resuming: self.resuming.clone(),
        }
    }

    /// Whether [`Self::durable`] has changed since this was last asked.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// The next join of the run resumes it.
    pub fn resume(&mut self, run: RunId, saved: Saved) -> Result<(), Refused> {
        if self.runs.contains_key(&run) {
            return Err(Refused::RunExists(run));
        }
        if !self.snapshots {
            return Err(Refused::NoFolder);
        }
        let known = self.resuming.contains_key(&run);
        if !known && self.runs.len() + self.resuming.len() >= RUNS_MAX {
            return Err(Refused::TooManyRuns);
        }
        self.resuming.insert(run, saved);
        self.dirty = true;
        Ok(())
    }

    /// A server registers, or comes back after a broken connection; it is told all runs.
    pub fn register(&mut self, id: ServerId, server: Server, now_ms: u64) -> Result<(), Refused> {
        self.now_ms = now_ms;
        self.fleet.check(id, server.incarnation)?;
        let (given, former) = (server.incarnation, self.fleet.incarnation(id));
        if let Some(former) = former.filter(|former| *former != given) {
            self.lose(id, former, "another life of it has registered");
        }
        let there = matches!(
            self.fleet.presence(id),
            Some(Presence::Up | Presence::Awaited)
        );
        if !self.fleet.is_up(id) {
            let text = format!("server {id} is there, at {}", server.address);
            let event = Event::new(EventKind::ServerUp, text);
            self.tell(event.server(id).life(given.0));
        }
        self.fleet.register(id, server, now_ms);
        self.dirty = true;
        for run in self.runs.values_mut() {
            run.place((!there).then_some(id), &self.fleet, now_ms);
        }
        let same = |run: &&Run| !run.order_due;
        let told_nothing = self.runs.values().filter(same).map(Run::name).cloned();
        let told_nothing: Vec<RunId> = told_nothing.collect();
        self.drain();
        for run in told_nothing {
            let order = self.runs[&run].order(id, &self.fleet);
            self.outputs.push_back(Output::Order(Box::new(order)));
        }
        Ok(())
    }

    /// Renews a server's lease.
    pub fn server_beat(
        &mut self,
        id: ServerId,
        incarnation: Incarnation,
        now_ms: u64,
    ) -> Result<(), Refused> {
        self.now_ms = now_ms;
        self.fleet.beat(id, incarnation, now_ms)
    }

    /// The connection of a server has broken. Of another life of it this says nothing.
    pub fn server_lost(&mut self, id: ServerId, incarnation: Incarnation, now_ms: u64) {
        self.now_ms = now_ms;
        self.lose(id, incarnation, "its connection broke");
        self.drain();
    }

    fn lose(&mut self, id: ServerId, incarnation: Incarnation, reason: &str) {
        if !self.fleet.lose(id, incarnation, self.now_ms) {
            return;
        }
        self.dirty = true;
        let text = format!("server {id} is gone: {reason}");
        let event = Event::new(EventKind::ServerLost, text);
        self.tell(event.server(id).life(incarnation.0));
        for run in self.runs.values_mut() {
            run.server_lost(id, incarnation, &self.fleet, self.now_ms);
        }
        self.collect();
    }

    /// A rank joins a run; the first one creates it, or resumes it.
    pub fn join(&mut self, run: RunId, spec: RunSpec, join: Join, to: ReplyTo, now_ms: u64) {
        self.now_ms = now_ms;
        match self.run_to_join(&run, spec) {
            Ok(run) => run.join(join, to, now_ms),
            Err(refused) => self.outputs.push_back(Output::Reply(to, Err(refused))),
        }
        self.drain();
    }

    fn run_to_join(&mut self, name: &RunId, spec: RunSpec) -> Result<&mut Run, Refused> {
        if !self.runs.contains_key(name) {
            let run = self.create(name, spec)?;
            return Ok(self.runs.entry(name.clone()).or_insert(run));
        }
        let run = self.runs.get_mut(name).expect("looked up above");
        match run.spec().difference(&spec) {
            None => Ok(run),
            Some(field) => Err(Refused::Differs { field }),
        }
    }

    fn create(&mut self, name: &RunId, spec: RunSpec) -> Result<Run, Refused> {
        let (registered, servers) = (self.fleet.up().count(), self.fleet.expected());
        if registered < servers as usize {
            return Err(Refused::ServersMissing {
                registered,
                expected: servers as usize,
            });
        }
        let layout = spec.check()?;
        let replication = spec.faults.replication;
        if replication > servers {
            return Err(Refused::Replication {
                replication,
                servers,
            });
        }
        let saved = self.resuming.get(name);
        if let Some(field) = saved.and_then(|s| resume::differs(&s.manifest.spec, &spec)) {
            return Err(Refused::ResumeDiffers { field });
        }
        let others = self.resuming.len() - usize::from(saved.is_some());
        if self.runs.len() + others >= RUNS_MAX {
            return Err(Refused::TooManyRuns);
        }
        let (spec, placement) = (Arc::new(spec), Placement::by_bytes(&layout, servers));
        let (fleet, snapshots, now_ms) = (&self.fleet, self.snapshots, self.now_ms);
        let run = match saved {
            Some(saved) => Run::resumed(saved, spec, placement, fleet, snapshots, now_ms),
            None => Run::new(name.clone(), spec, placement, fleet, snapshots, now_ms),
        };
        self.resuming.remove(name);
        Ok(run)
    }

    /// A rank asks to push.
    pub fn await_ready(
        &mut self,
        run: &RunId,
        caller: Caller,
        created: bool,
        to: ReplyTo,
        now_ms: u64,
    ) {
        match self.run_mut(run, now_ms) {
            Ok(run) => run.await_ready(caller, created, to, now_ms),
            Err(refused) => self.outputs.push_back(Output::Reply(to, Err(refused))),
        }
        self.drain();
    }

    /// Renews a rank's lease; answers the present generation.
    pub fn heartbeat(
        &mut self,
        run: &RunId,
        caller: Caller,
        clock: Clock,
        now_ms: u64,
    ) -> Result<Generation, Refused> {
        self.run_mut(run, now_ms)?.heartbeat(caller, clock, now_ms)
    }

    /// The connection that held a rank's lease has broken.
    pub fn rank_lost(&mut self, run: &RunId, caller: Caller, now_ms: u64) {
        if let Ok(run) = self.run_mut(run, now_ms) {
            run.rank_lost(caller, now_ms);
        }
        self.drain();
    }

    /// Leases a chunk of training data.
    pub fn lease_chunk(
        &mut self,
        run: &RunId,
        owner: (GroupId, Incarnation),
        finished: &[u64],
        holds: &[u64],
    ) -> Result<Chunk, Refused> {
        let leased = self
            .run_mut(run, self.now_ms)?
            .lease_chunk(owner, finished, holds);
        self.drain();
        leased
    }

    /// A rank is done.
    pub fn leave(&mut self, run: &RunId, caller: Caller, now_ms: u64) -> Result<(), Refused> {
        let left = self.run_mut(run, now_ms)?.leave(caller, now_ms);
        self.drain();
        left
    }

    /// A server that holds a shard has followed an order, or has got further.
    pub fn report(
        &mut self,
        server: ServerId,
        name: &RunId,
        report: ShardReport,
        now_ms: u64,
    ) -> Result<(), Refused> {
        let up = self.fleet.is_up(server);
        let run = self.run_mut(name, now_ms)?;
        if !up {
            return Err(Refused::NotRegistered(server));
        }
        let (given, current) = (report.seen.generation, run.generation());
        if given > current {
            let run = name.clone();
            return Err(Refused::GenerationAhead {
                run,
                given,
                current,
            });
        }
        run.report(server, report, now_ms);
        self.drain();
        Ok(())
    }

    /// A server has written its part of a snapshot, or could not.
    pub fn captured(
        &mut self,
        server: ServerId,
        run: &RunId,
        shard: ShardId,
        number: u64,
        result: Result<ShardFile, NotCaptured>,
        now_ms: u64,
    ) -> Result<(), Refused> {
        if !self.fleet.is_up(server) {
            return Err(Refused::NotRegistered(server));
        }
        let run = self.run_mut(run, now_ms)?;
        run.captured(server, shard, number, result, now_ms);
        self.drain();
        Ok(())
    }

    /// Somebody asks for a snapshot; answered when it is whole.
    pub fn snapshot(&mut self, run: &RunId, to: ReplyTo, now_ms: u64) {
        match self.run_mut(run, now_ms) {
            Ok(run) => run.snapshot(to, now_ms),
            Err(refused) => self.outputs.push_back(Output::Reply(to, Err(refused))),
        }
        self.drain();
    }

    /// The manifest of a snapshot is on disk, or why it is not.
    pub fn written(&mut self, run: &RunId, number: u64, result: Result<(), String>, now_ms: u64) {
        if let Ok(run) = self.run_mut(run, now_ms) {
            run.written(number, result, now_ms);
        }
        self.drain();
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        let elapsed = self.fleet.elapse(now_ms);
        for (server, incarnation) in elapsed.lost {
            self.lose(server, incarnation, "its lease ran out");
        }
        for run in self.runs.values_mut() {
            if elapsed.given_up {
                run.place(None, &self.fleet, now_ms);
            }
            run.tick(now_ms);
        }
        self.dirty |= elapsed.given_up;
        self.drain();
    }

    /// The next thing to do, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A run, for the status page.
    pub fn run(&self, run: &RunId) -> Result<&Run, Refused> {
        self.runs
            .get(run)
            .ok_or_else(|| Refusal::UnknownRun(run.clone()).into())
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// The servers.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// What happened last, oldest first; at most [`EVENTS_MAX`].
    pub fn recent_events(&self) -> impl Iterator<Item = &Event> {
        self.recent.iter()
    }

    fn run_mut(&mut self, run: &RunId, now_ms: u64) -> Result<&mut Run, Refused> {
        self.now_ms = now_ms;
        self.runs
            .get_mut(run)
            .ok_or_else(|| Refusal::UnknownRun(run.clone()).into())
    }

    fn tell(&mut self, mut event: Event) {
        self.events += 1;
        event.number = self.events;
        event.at_ms = self.now_ms;
        if self.recent.len() == EVENTS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(event.clone());
        self.outputs.push_back(Output::Event(event));
    }

    /// Collects what runs want done, in the order in which it came up.
    fn collect(&mut self) {
        let mut runs = std::mem::take(&mut self.runs);
        for run in runs.values_mut() {
            self.dirty |= std::mem::take(&mut run.dirty);
            for output in std::mem::take(&mut run.outputs) {
                match output {
                    Output::Event(event) => self.tell(event),
                    output => self.outputs.push_back(output),
                }
            }
        }
        self.runs = runs;
    }

    /// Collects what runs want done, and tells servers what has come of it.
    fn drain(&mut self) {
        self.collect();
        for run in self.runs.values_mut() {
            if std::mem::take(&mut run.order_due) {
                let orders = self.fleet.up().map(|server| run.order(server, &self.fleet));
                let orders = orders.map(|order| Output::Order(Box::new(order)));
                self.outputs.extend(orders);
            }
        }
    }
}
