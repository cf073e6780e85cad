//! Coordinator: the servers of the fleet and the runs on it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tradewind_common::data::Chunk;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ServerId};

use super::ReplyTo;
use super::answer::{Answer, RUNS_MAX, Refused};
use super::refusal::Refusal;
use super::run::{Caller, Join, Run};
use super::view::{Acknowledge, View};

/// A view for one server, with what it needs to hold its shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// For whom.
    pub server: ServerId,
    /// The run.
    pub run: RunId,
    /// Its specification.
    pub spec: Arc<RunSpec>,
    /// Who owns which block.
    pub placement: Placement,
    /// Its membership.
    pub view: View,
}

/// What the coordinator wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Answer a call.
    Reply(ReplyTo, Result<Answer, Refused>),
    /// Tell a server.
    Order(Box<Order>),
}

/// A registered server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Which life of it.
    pub incarnation: Incarnation,
    /// host:port
    pub address: String,
}

/// The servers of the fleet and the runs on it.
#[derive(Debug)]
pub struct Coordinator {
    expected: u32,
    servers: BTreeMap<ServerId, Server>,
    runs: BTreeMap<RunId, Run>,
    outputs: VecDeque<Output>,
}

impl Coordinator {
    /// A coordinator of a fleet of `servers` servers, at least 1, numbered from 0.
    pub fn new(servers: u32) -> Self {
        Self {
            expected: servers,
            servers: BTreeMap::new(),
            runs: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// A server registers, or comes back after a broken connection; it is told all views. One that
    /// comes back as another life has lost its shards, and their runs fail loudly (rule 6).
    pub fn register(&mut self, id: ServerId, server: Server) -> Result<(), Refused> {
        if id.0 >= self.expected {
            return Err(Refused::UnknownServer {
                server: id,
                last: ServerId(self.expected - 1),
            });
        }
        let given = server.incarnation;
        let former = self.servers.get(&id).map(|server| server.incarnation);
        if let Some(current) = former.filter(|former| *former > given) {
            return Err(Refused::StaleServer {
                server: id,
                given,
                current,
            });
        }
        self.servers.insert(id, server);
        if former.is_some_and(|former| former != given) {
            for run in self.runs.values_mut() {
                run.fail(format!("server {id} came back without the run's state"));
            }
        }
        for (name, run) in &self.runs {
            self.outputs.push_back(order(id, name, run));
        }
        self.drain();
        Ok(())
    }

    /// A rank joins a run; the first one creates it.
    pub fn join(&mut self, run: RunId, spec: RunSpec, join: Join, to: ReplyTo, now_ms: u64) {
        match self.run_to_join(&run, spec, now_ms) {
            Ok(run) => run.join(join, to, now_ms),
            Err(refused) => self.outputs.push_back(Output::Reply(to, Err(refused))),
        }
        self.drain();
    }

    fn run_to_join(
        &mut self,
        name: &RunId,
        spec: RunSpec,
        now_ms: u64,
    ) -> Result<&mut Run, Refused> {
        let (registered, expected) = (self.servers.len(), self.expected as usize);
        if registered < expected {
            return Err(Refused::ServersMissing {
                registered,
                expected,
            });
        }
        if !self.runs.contains_key(name) {
            let layout = spec.check()?;
            if self.runs.len() >= RUNS_MAX {
                return Err(Refused::TooManyRuns);
            }
            let servers: Vec<ServerId> = self.servers.keys().copied().collect();
            let placement = Placement::by_bytes(&layout, &servers);
            let run = Run::new(Arc::new(spec), placement, &servers, now_ms);
            return Ok(self.runs.entry(name.clone()).or_insert(run));
        }
        let run = self.runs.get_mut(name).expect("looked up above");
        match run.spec().difference(&spec) {
            None => Ok(run),
            Some(field) => Err(Refused::Differs { field }),
        }
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
        match self.run_mut(run) {
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
        self.run_mut(run)?.heartbeat(caller, clock, now_ms)
    }

    /// Leases a chunk of training data.
    pub fn lease_chunk(
        &mut self,
        run: &RunId,
        owner: (GroupId, Incarnation),
        finished: &[u64],
        holds: &[u64],
    ) -> Result<Chunk, Refused> {
        self.run_mut(run)?.lease_chunk(owner, finished, holds)
    }

    /// A rank is done.
    pub fn leave(&mut self, run: &RunId, caller: Caller, now_ms: u64) -> Result<(), Refused> {
        let left = self.run_mut(run)?.leave(caller, now_ms);
        self.drain();
        left
    }

    /// A server has followed a view, or its shard has become complete.
    pub fn acknowledge(
        &mut self,
        server: ServerId,
        name: &RunId,
        seen: Acknowledge,
        now_ms: u64,
    ) -> Result<(), Refused> {
        let run = self.run_mut(name)?;
        let (given, current) = (seen.generation, run.generation());
        if given > current {
            let run = name.clone();
            return Err(Refused::GenerationAhead {
                run,
                given,
                current,
            });
        }
        run.acknowledge(server, seen, now_ms);
        self.drain();
        Ok(())
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) {
        for run in self.runs.values_mut() {
            run.tick(now_ms);
        }
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

    /// The registered servers.
    pub fn servers(&self) -> &BTreeMap<ServerId, Server> {
        &self.servers
    }

    fn run_mut(&mut self, run: &RunId) -> Result<&mut Run, Refused> {
        self.runs
            .get_mut(run)
            .ok_or_else(|| Refusal::UnknownRun(run.clone()).into())
    }

    fn drain(&mut self) {
        for (name, run) in &mut self.runs {
            self.outputs.extend(
                run.replies
                    .drain(..)
                    .map(|(to, answer)| Output::Reply(to, answer)),
            );
            if std::mem::take(&mut run.view_changed) {
                self.outputs
                    .extend(self.servers.keys().map(|server| order(*server, name, run)));
            }
        }
    }
}

fn order(server: ServerId, name: &RunId, run: &Run) -> Output {
    Output::Order(Box::new(Order {
        server,
        run: name.clone(),
        spec: run.spec().clone(),
        placement: run.placement().clone(),
        view: run.view(),
    }))
}
