//! One task owns the coordinator: mailbox, clock, replies, the streams to the servers.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};
use tradewind_common::data::Chunk;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ServerId};
use tradewind_proto::convert::Endpoint;

use crate::clock::Origin;
use crate::core::ReplyTo;
use crate::core::answer::{Answer, Refused};
use crate::core::coordinator::{Coordinator, Order, Output, Server};
use crate::core::run::{Caller, GroupRow, Join, Phase};
use crate::core::view::Acknowledge;

/// Messages that wait for the coordinator; senders wait when it is full.
const MAILBOX_MAX: usize = 4096;

/// How often leases are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Orders that wait for one server. Orders are views, so a server that is this far behind has lost
/// its connection, and it is sent all views when it comes back.
pub const ORDERS_MAX: usize = 1024;

type Reply<T> = oneshot::Sender<Result<T, Refused>>;

/// What the coordinator is asked.
pub enum Message {
    /// A server registers; its orders go there.
    Register(ServerId, Server, mpsc::Sender<Box<Order>>, Reply<()>),
    /// A server has followed a view.
    Acknowledge(ServerId, RunId, Acknowledge, Reply<()>),
    /// A rank joins.
    Join(RunId, Box<RunSpec>, Join, Reply<Answer>),
    /// A rank asks to push; whether it has created its slice.
    AwaitReady(RunId, Caller, bool, Reply<Answer>),
    /// A rank is alive.
    Heartbeat(RunId, Caller, Clock, Reply<Generation>),
    /// A group asks for data: finished chunks, held chunks.
    LeaseChunk(
        RunId,
        (GroupId, Incarnation),
        Vec<u64>,
        Vec<u64>,
        Reply<Chunk>,
    ),
    /// A rank is done.
    Leave(RunId, Caller, Reply<()>),
    /// The status page.
    Status(RunId, Reply<Status>),
}

/// A run as the status page shows it.
#[derive(Clone, Debug)]
pub struct Status {
    /// The present generation.
    pub generation: Generation,
    /// Where the run stands.
    pub phase: Phase,
    /// Its groups.
    pub groups: Vec<GroupRow>,
    /// Who owns which block.
    pub placement: Placement,
    /// Where the servers are.
    pub servers: Vec<Endpoint>,
    /// Samples of finished chunks that filled no batch.
    pub samples_unused: u64,
}

/// The way to the coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorHandle(mpsc::Sender<Message>);

/// Why a call to the coordinator has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// It refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The process is ending.
    #[error("the coordinator is shutting down")]
    Gone,
}

impl CoordinatorHandle {
    /// Starts the task of a coordinator for a fleet of `servers`.
    pub fn spawn(servers: u32, origin: Origin) -> Self {
        let (mailbox, inbox) = mpsc::channel(MAILBOX_MAX);
        let task = Task {
            core: Coordinator::new(servers),
            origin,
            waiting: HashMap::new(),
            next_reply: 0,
            servers: HashMap::new(),
        };
        tokio::spawn(task.run(inbox));
        Self(mailbox)
    }

    /// Asks and waits for the answer.
    pub async fn call<T>(&self, ask: impl FnOnce(Reply<T>) -> Message) -> Result<T, CallError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(ask(reply)).await.map_err(|_| CallError::Gone)?;
        Ok(answer.await.map_err(|_| CallError::Gone)??)
    }
}

struct Task {
    core: Coordinator,
    origin: Origin,
    /// Calls that wait; bounded by the ranks of all runs, because a retry replaces what it repeats
    /// and callers that have gone are swept at every tick.
    waiting: HashMap<ReplyTo, Reply<Answer>>,
    next_reply: u64,
    servers: HashMap<ServerId, mpsc::Sender<Box<Order>>>,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
                _ = ticks.tick() => {
                    self.core.tick(self.origin.now_ms());
                    self.waiting.retain(|_, reply| !reply.is_closed());
                }
            }
            self.drain();
        }
    }

    fn handle(&mut self, message: Message) {
        let now_ms = self.origin.now_ms();
        match message {
            Message::Register(id, server, orders, reply) => {
                let registered = self.core.register(id, server);
                if registered.is_ok() {
                    self.servers.insert(id, orders);
                }
                let _ = reply.send(registered);
            }
            Message::Acknowledge(server, run, seen, reply) => {
                let _ = reply.send(self.core.acknowledge(server, &run, seen, now_ms));
            }
            Message::Join(run, spec, join, reply) => {
                let to = self.wait(reply);
                self.core.join(run, *spec, join, to, now_ms);
            }
            Message::AwaitReady(run, caller, created, reply) => {
                let to = self.wait(reply);
                self.core.await_ready(&run, caller, created, to, now_ms);
            }
            Message::Heartbeat(run, caller, clock, reply) => {
                let _ = reply.send(self.core.heartbeat(&run, caller, clock, now_ms));
            }
            Message::LeaseChunk(run, owner, finished, holds, reply) => {
                let _ = reply.send(self.core.lease_chunk(&run, owner, &finished, &holds));
            }
            Message::Leave(run, caller, reply) => {
                let _ = reply.send(self.core.leave(&run, caller, now_ms));
            }
            Message::Status(run, reply) => {
                let _ = reply.send(self.status(&run, now_ms));
            }
        }
    }

    fn wait(&mut self, reply: Reply<Answer>) -> ReplyTo {
        self.next_reply += 1;
        let to = ReplyTo(self.next_reply);
        self.waiting.insert(to, reply);
        to
    }

    fn drain(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Reply(to, answer) => {
                    if let Some(reply) = self.waiting.remove(&to) {
                        let _ = reply.send(answer);
                    }
                }
                Output::Order(order) => {
                    let server = order.server;
                    let sent = self
                        .servers
                        .get(&server)
                        .map(|orders| orders.try_send(order).is_ok());
                    if sent != Some(true) {
                        // Its stream ends with the sender; it registers anew and is told all views.
                        self.servers.remove(&server);
                    }
                }
            }
        }
    }

    fn status(&self, run: &RunId, now_ms: u64) -> Result<Status, Refused> {
        let run = self.core.run(run)?;
        let endpoint = |(id, server): (&ServerId, &Server)| Endpoint {
            server: *id,
            incarnation: server.incarnation,
            address: server.address.clone(),
        };
        Ok(Status {
            generation: run.generation(),
            phase: run.phase().clone(),
            groups: run.rows(now_ms),
            placement: run.placement().clone(),
            servers: self.core.servers().iter().map(endpoint).collect(),
            samples_unused: run.samples_unused(),
        })
    }
}
