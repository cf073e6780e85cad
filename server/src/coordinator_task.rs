//! One task owns the coordinator: mailbox, clock, replies, the streams to the servers, its durable
//! state. Nothing that was decided leaves before it is written down.

mod heard;
mod message;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tradewind_common::data::FORGOTTEN_MAX;
use tradewind_common::{Generation, RunId, ServerId};
use tradewind_proto::holding::Holding;

use crate::clock::Origin;
use crate::core::ReplyTo;
use crate::core::answer::{Answer, Refused};
use crate::core::coordinator::{Coordinator, Output};
use crate::core::order::Told;
use crate::core::refusal::Refusal;
use crate::core::run::Beaten;
use crate::durable::{Disk, Saved};
use crate::status;
use crate::telemetry;
use heard::Heard;
pub use message::Message;
use message::Reply;

/// Messages that wait for the coordinator; senders wait when it is full.
const MAILBOX_MAX: usize = 4096;

/// How often leases are looked at.
const TICK: Duration = Duration::from_millis(20);

/// A coordinator that has not looked at leases for longer than this was not running.
const GAP_MS: u64 = 250;

/// How long leases of data may stay unwritten, milliseconds.
const LEASES_UNSAVED_MS: u64 = 250;

/// How often it is looked whether another coordinator has followed.
const LOOK: Duration = Duration::from_millis(500);

/// Orders that wait for one server. A server that is this far behind has lost its connection, and
/// it is sent all of them when it comes back.
pub const ORDERS_MAX: usize = 1024;

/// The way to the coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorHandle {
    mailbox: mpsc::Sender<Message>,
    changes: watch::Receiver<u64>,
    incarnation: u64,
}

/// Why a call to the coordinator has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// It refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The process is ending, or another coordinator has followed this one.
    #[error("the coordinator is not here any more")]
    Gone,
}

impl CoordinatorHandle {
    /// Starts the task of a coordinator. If the fleet has a disk, it writes there, and says that it
    /// is reached at host:port.
    pub fn spawn(core: Coordinator, disk: Option<(Disk, String)>, origin: Origin) -> Self {
        let (mailbox, inbox) = mpsc::channel(MAILBOX_MAX);
        let (changed, changes) = watch::channel(0);
        let (disk, address) = disk.unzip();
        let incarnation = disk.as_ref().map_or(1, Disk::incarnation);
        let mut task = Task {
            core,
            disk: disk.map(Arc::new),
            address: address.unwrap_or_default(),
            origin,
            own: mailbox.downgrade(),
            changed,
            waiting: HashMap::new(),
            next_reply: 0,
            servers: HashMap::new(),
            bonds: HashMap::new(),
            next_bond: 0,
            holdings: HashMap::new(),
            later: VecDeque::new(),
            unsaved: false,
            failing: false,
            leases: 0,
            saved_ms: 0,
            ticked_ms: origin.now_ms(),
            heard: Heard::since(origin.now_ms()),
            signs: 0,
        };
        // What was recovered, and is not changed by it, is written down.
        task.unsaved = task.core.take_dirty();
        if !task.unsaved {
            task.holdings = task.present_holdings();
        }
        tokio::spawn(task.run(inbox));
        Self {
            mailbox,
            changes,
            incarnation,
        }
    }

    /// Which life of the coordinator it is.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether it has ended, because another one has followed.
    pub fn is_over(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Told whenever membership or holders of some run have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Asks and waits for the answer.
    pub async fn call<T>(&self, ask: impl FnOnce(Reply<T>) -> Message) -> Result<T, CallError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.mailbox.send(ask(reply)).await;
        sent.map_err(|_| CallError::Gone)?;
        Ok(answer.await.map_err(|_| CallError::Gone)??)
    }

    /// Tells without waiting for what comes of it.
    pub async fn tell(&self, message: Message) {
        let _ = self.mailbox.send(message).await;
    }
}

struct Task {
    core: Coordinator,
    disk: Option<Arc<Disk>>,
    address: String,
    origin: Origin,
    own: mpsc::WeakSender<Message>,
    changed: watch::Sender<u64>,
    /// Calls that wait; bounded by the ranks of all runs, because a retry replaces what it repeats
    /// and callers that have gone are swept at every tick.
    waiting: HashMap<ReplyTo, Reply<Answer>>,
    next_reply: u64,
    servers: HashMap<ServerId, mpsc::Sender<Told>>,
    /// The latest bond with each server: the end of a former one, which may be noticed late, says
    /// nothing.
    bonds: HashMap<ServerId, u64>,
    next_bond: u64,
    /// Who holds the shards, as it is written down: ranks hear of nothing else.
    holdings: HashMap<RunId, Holding>,
    /// What came while the disk was written and has to wait for it.
    later: VecDeque<Message>,
    /// Something was decided that is not written down.
    unsaved: bool,
    /// The last write failed; that is told once.
    failing: bool,
    /// Leases of data that are not written down.
    leases: u64,
    /// When the state was written last, milliseconds.
    saved_ms: u64,
    /// When leases were looked at last, milliseconds.
    ticked_ms: u64,
    heard: Heard,
    /// Signs of life given.
    signs: u64,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut looked = Saved::Yes;
            if let Some(message) = self.later.pop_front() {
                self.handle(message);
            } else {
                tokio::select! {
                    message = inbox.recv() => match message {
                        Some(message) => self.handle(message),
                        None => return,
                    },
                    _ = ticks.tick() => self.tick(),
                    _ = looks.tick() => looked = self.look().await,
                }
            }
            let saved = match looked {
                Saved::Deposed(_) => looked,
                Saved::Yes | Saved::NotNow(_) => self.save(&mut inbox, &mut ticks).await,
            };
            match saved {
                Saved::Yes => {
                    if std::mem::take(&mut self.failing) {
                        let text = "the coordinator's state can be written again";
                        self.core.disk(text.into());
                    }
                    self.drain();
                }
                // What was decided waits, and so does whoever asked for it.
                Saved::NotNow(why) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        let text = format!(
                            "{why}; training goes on, but nobody can join, and nothing can be \
                             failed over, until there is room"
                        );
                        tracing::error!("{text}");
                        self.core.disk(text);
                    }
                }
                Saved::Deposed(by) => {
                    tracing::error!("coordinator incarnation {by} has followed this one; it ends");
                    return;
                }
            }
        }
    }

    fn tick(&mut self) {
        let now_ms = self.origin.now_ms();
        let gap_ms = now_ms - std::mem::replace(&mut self.ticked_ms, now_ms);
        if gap_ms > GAP_MS {
            tracing::warn!("held up for {gap_ms} ms; leases are that much longer");
            self.core.forgive(gap_ms);
        }
        self.core.tick(now_ms);
        self.waiting.retain(|_, reply| !reply.is_closed());
    }

    fn handle(&mut self, message: Message) {
        let now_ms = self.origin.now_ms();
        let core = &mut self.core;
        match message {
            Message::Register(id, server, orders, reply) => {
                let registered = core.register(id, server, now_ms);
                if registered.is_ok() {
                    self.servers.insert(id, orders);
                    self.next_bond += 1;
                    self.bonds.insert(id, self.next_bond);
                }
                let _ = reply.send(registered.map(|()| self.next_bond));
            }
            Message::ServerBeat(id, incarnation, reply) => {
                self.heard.server(id, now_ms);
                let _ = reply.send(core.server_beat(id, incarnation, now_ms));
            }
            Message::ServerLost(id, incarnation, bond) => {
                if self.bonds.get(&id) == Some(&bond) {
                    core.server_lost(id, incarnation, now_ms);
                }
            }
            Message::Report(server, run, report, reply) => {
                let _ = reply.send(core.report(server, &run, *report, now_ms));
            }
            Message::Captured(server, (run, shard, number), result, reply) => {
                let taken = core.captured(server, &run, shard, number, result, now_ms);
                let _ = reply.send(taken);
            }
            Message::Written(run, number, result) => core.written(&run, number, result, now_ms),
            Message::Join(run, spec, join, reply) => {
                let to = self.wait(reply);
                self.core.join(run, *spec, join, to, now_ms);
            }
            Message::AwaitReady(run, caller, created, reply) => {
                let to = self.wait(reply);
                self.core.await_ready(&run, caller, created, to, now_ms);
            }
            Message::Heartbeat(run, caller, beat, reply) => {
                self.heard.rank(now_ms);
                let beaten = core.heartbeat(&run, caller, beat, now_ms);
                let _ = reply.send(beaten.map(|present| Beaten {
                    generation: self.written(&run, present.generation),
                    ..present
                }));
            }
            Message::Check(run, caller, reply) => {
                let checked = core.check(&run, caller);
                let _ = reply.send(checked.map(|present| self.written(&run, present)));
            }
            Message::RankLost(run, caller) => core.rank_lost(&run, caller, now_ms),
            Message::Holding(run, reply) => {
                let known = self.holdings.get(&run).cloned();
                let _ = reply.send(known.ok_or_else(|| Refusal::UnknownRun(run).into()));
            }
            Message::Placement(run, reply) => {
                let placement = core.run(&run).map(|run| run.placement().clone());
                let holding = status::holding(core, &run);
                let both = placement.and_then(|placement| Ok((placement, holding?)));
                let _ = reply.send(both);
            }
            Message::LeaseChunk(run, owner, finished, holds, reply) => {
                let _ = reply.send(core.lease_chunk(&run, owner, &finished, &holds));
            }
            Message::Leave(run, caller, finished, reply) => {
                let _ = reply.send(core.leave(&run, caller, &finished, now_ms));
            }
            Message::Attach(run, sizes, reply) => {
                let to = self.wait(reply);
                self.core.attach(&run, &sizes, to, now_ms);
            }
            Message::Drain(run, groups, reply) => {
                let to = self.wait(reply);
                self.core.ask_to_leave(&run, &groups, to, now_ms);
            }
            Message::Remove(run, reply) => {
                let to = self.wait(reply);
                self.core.remove(&run, to, now_ms);
            }
            Message::Resume(run, saved, reply) => {
                let to = self.wait(reply);
                self.core.ask_to_resume(run, *saved, to);
            }
            Message::Snapshot(run, reply) => {
                let to = self.wait(reply);
                self.core.snapshot(&run, to, now_ms);
            }
            Message::Status(run, reply) => {
                let _ = reply.send(status::status(core, &run, now_ms));
            }
            Message::Idle(reply) => {
                let _ = reply.send(Ok(core.is_idle()));
            }
            Message::Fleet(reply) => {
                let runs = core.runs().map(|run| run.name().clone());
                let _ = reply.send(Ok((runs.collect(), core.fleet().rows(now_ms))));
            }
        }
    }

    fn wait(&mut self, reply: Reply<Answer>) -> ReplyTo {
        self.next_reply += 1;
        let to = ReplyTo(self.next_reply);
        self.waiting.insert(to, reply);
        to
    }

    /// Looks whether this is still the coordinator, which one that decides nothing would not hear.
    async fn look(&mut self) -> Saved {
        let Some(disk) = self.disk.clone() else {
            return Saved::Yes;
        };
        let address = self.address.clone();
        let fleet = self.core.fleet();
        let heard = (self.heard).anybody(fleet.expected(), fleet.lease_ms(), self.ticked_ms);
        self.signs += u64::from(heard);
        let sign = heard.then_some(self.signs);
        let look = move || {
            if let Some(sign) = sign {
                disk.give_sign(sign);
            }
            disk.look(&address)
        };
        let looked = tokio::task::spawn_blocking(look).await;
        looked.unwrap_or_else(|panicked| Saved::NotNow(panicked.to_string()))
    }

    /// Writes down what was decided, before anybody hears of it. Leases of data alone are written
    /// now and then: a successor asks groups for the last of them.
    ///
    /// Beats, and what else needs nothing written down, are answered meanwhile: a slow disk is no
    /// reason to take anybody for dead.
    async fn save(&mut self, inbox: &mut mpsc::Receiver<Message>, ticks: &mut Interval) -> Saved {
        loop {
            let saved = self.save_once(inbox, ticks).await;
            self.unsaved |= self.core.take_dirty();
            if saved != Saved::Yes || !self.unsaved {
                return saved;
            }
        }
    }

    async fn save_once(
        &mut self,
        inbox: &mut mpsc::Receiver<Message>,
        ticks: &mut Interval,
    ) -> Saved {
        self.unsaved |= self.core.take_dirty();
        self.leases += u64::from(self.core.take_leased());
        let now_ms = self.origin.now_ms();
        let late = now_ms.saturating_sub(self.saved_ms) >= LEASES_UNSAVED_MS;
        let leases = self.leases > 0 && (late || self.leases >= FORGOTTEN_MAX);
        let due = self.unsaved || leases;
        let Some(disk) = self.disk.clone().filter(|_| due) else {
            if std::mem::take(&mut self.unsaved) {
                self.holdings = self.present_holdings();
            }
            return Saved::Yes;
        };
        (self.leases, self.saved_ms) = (0, now_ms);
        let (durable, holdings) = (self.core.durable(), self.present_holdings());
        let mut saving = tokio::task::spawn_blocking(move || disk.save(&durable));
        let saved = loop {
            tokio::select! {
                saved = &mut saving => break saved,
                // What runs out meanwhile is written next.
                _ = ticks.tick() => self.tick(),
                Some(message) = inbox.recv(), if self.later.len() < MAILBOX_MAX => {
                    let lease = matches!(message, Message::LeaseChunk(..));
                    let too_many = lease && self.leases >= FORGOTTEN_MAX;
                    if message.needs_no_disk() && !too_many {
                        self.handle(message);
                        self.leases += u64::from(self.core.take_leased());
                    } else {
                        self.later.push_back(message);
                    }
                }
            }
        };
        let saved = saved.unwrap_or_else(|panicked| Saved::NotNow(panicked.to_string()));
        self.unsaved |= matches!(saved, Saved::NotNow(_));
        if saved == Saved::Yes {
            (self.unsaved, self.holdings) = (false, holdings);
        }
        saved
    }

    fn present_holdings(&self) -> HashMap<RunId, Holding> {
        let runs = self.core.runs().map(|run| run.name());
        let holding = |run: &RunId| Some((run.clone(), status::holding(&self.core, run).ok()?));
        runs.filter_map(holding).collect()
    }

    /// The generation that others may hear of.
    fn written(&self, run: &RunId, present: Generation) -> Generation {
        let written = self.holdings.get(run).map(|holding| holding.generation);
        written.unwrap_or_default().min(present)
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
                    self.changed.send_modify(|changes| *changes += 1);
                    self.order(order.server, Told::Order(order));
                }
                Output::Runs(server, runs) => self.order(server, Told::Runs(runs)),
                Output::Event(event) => {
                    telemetry::event(event.kind.word());
                    tracing::info!(kind = event.kind.word(), "{}", event.text);
                    if let Some(disk) = &self.disk {
                        disk.event(&event);
                    }
                }
                Output::Manifest(manifest) => {
                    let (Some(disk), own) = (self.disk.clone(), self.own.clone()) else {
                        continue;
                    };
                    tokio::spawn(async move {
                        let (run, number) = (manifest.run.clone(), manifest.number);
                        let write = move || disk.write_manifest(*manifest);
                        let written = tokio::task::spawn_blocking(write).await;
                        let written = written.unwrap_or_else(|error| Err(error.to_string()));
                        if let Some(own) = own.upgrade() {
                            let _ = own.send(Message::Written(run, number, written)).await;
                        }
                    });
                }
                Output::Delete { run, number } => {
                    if let Some(disk) = self.disk.clone() {
                        tokio::task::spawn_blocking(move || disk.delete(&run, number));
                    }
                }
            }
        }
    }

    fn order(&mut self, server: ServerId, told: Told) {
        let sent = self
            .servers
            .get(&server)
            .map(|orders| orders.try_send(told).is_ok());
        if sent != Some(true) {
            // Its stream ends with the sender; it registers anew and is told everything.
            self.servers.remove(&server);
        }
    }
}
