//! One task owns the coordinator: mailbox, clock, replies, the streams to the servers, its durable
//! state. Nothing that was decided leaves before it is written down.

mod beats;
mod calls;
mod heard;
mod holdings;
mod message;
mod outbox;
mod saving;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tradewind_common::ServerId;
use tradewind_common::data::FORGOTTEN_MAX;
use tradewind_process::supervise;

use crate::clock::Origin;
use crate::durable::{Disk, Saved};
use crate::telemetry::Members;
use beats::Beats;
pub use beats::Stream;
use heard::Heard;
use holdings::Holdings;
pub use holdings::Published;
pub use message::Message;
use message::Reply;
pub use outbox::{Outbox, Taken, outbox};
use tradewind_core::ReplyTo;
use tradewind_core::answer::{Answer, Refused};
use tradewind_core::coordinator::Coordinator;

/// Messages that wait for the coordinator; senders wait when it is full.
const MAILBOX_MAX: usize = 4096;

/// How often leases are looked at.
const TICK: Duration = Duration::from_millis(20);

/// A coordinator that has not looked at leases for longer than this was not running.
const GAP_MS: u64 = 250;

/// How often it is looked whether another coordinator has followed.
const LOOK: Duration = Duration::from_millis(500);

/// The way to the coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorHandle {
    mailbox: mpsc::Sender<Message>,
    published: watch::Receiver<Published>,
    incarnation: u64,
    streams: Arc<AtomicU64>,
    ends: Arc<Notify>,
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
        let (holdings, published) = Holdings::new();
        let (disk, address) = disk.unzip();
        let incarnation = disk.as_ref().map_or(1, Disk::incarnation);
        let mut task = CoordinatorTask {
            core,
            disk: disk.map(Arc::new),
            address: address.unwrap_or_default(),
            origin,
            own: mailbox.downgrade(),
            waiting: HashMap::new(),
            next_reply: 0,
            servers: HashMap::new(),
            bonds: HashMap::new(),
            next_bond: 0,
            holdings,
            later: VecDeque::new(),
            unsaved: false,
            all_unsaved: false,
            failing: false,
            leases: 0,
            saved_ms: 0,
            ticked_ms: origin.now_ms(),
            heard: Heard::since(origin.now_ms()),
            beats: Beats::default(),
            questions: Vec::new(),
            unsaid: Vec::new(),
            signs: 0,
            members: Members::default(),
        };
        // What was recovered, and is not changed by it, is written down.
        task.unsaved = task.core.take_dirty();
        if !task.unsaved {
            let present = task.present_holdings();
            task.holdings.replace(present);
        }
        // It ends with the process, when another one has followed, or nobody can speak to it any more.
        let ends = Arc::new(Notify::new());
        supervise("the coordinator", task.run(inbox, ends.clone()));
        Self {
            mailbox,
            published,
            incarnation,
            streams: Arc::default(),
            ends,
        }
    }

    /// Ends it, because the process ends: what breaks off from now on is nobody's fault. It returns when it has ended,
    /// which waits for the disk.
    pub async fn end(&self) {
        self.ends.notify_one();
        self.mailbox.closed().await;
    }

    /// A number for a stream; later ones have higher ones.
    pub fn number_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }

    /// Which life of the coordinator it is.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether it has ended, with the process or because another one has followed.
    pub fn is_over(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Who holds the shards of all runs; told when that changes, and nothing else does.
    pub fn published(&self) -> watch::Receiver<Published> {
        self.published.clone()
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

struct CoordinatorTask {
    core: Coordinator,
    disk: Option<Arc<Disk>>,
    address: String,
    origin: Origin,
    own: mpsc::WeakSender<Message>,
    /// Calls that wait; bounded by the ranks of all runs, because a retry replaces what it repeats
    /// and callers that have gone are swept at every tick.
    waiting: HashMap<ReplyTo, Reply<Answer>>,
    next_reply: u64,
    /// Questions about what has been decided, which wait until that is written down, or cannot be.
    questions: Vec<Message>,
    /// Answers to who has left, which wait until that is written down.
    unsaid: Vec<(Reply<()>, Result<(), Refused>)>,
    servers: HashMap<ServerId, Outbox>,
    /// The latest bond with each server: the end of a former one, which may be noticed late, says
    /// nothing.
    bonds: HashMap<ServerId, u64>,
    next_bond: u64,
    /// Who holds the shards, as it is written down: ranks hear of nothing else.
    holdings: Holdings,
    /// What came while the disk was written and has to wait for it.
    later: VecDeque<Message>,
    /// Something was decided that is not written down.
    unsaved: bool,
    /// What was written last may not be there: all of the state has to be written.
    all_unsaved: bool,
    /// The last write failed; that is told once.
    failing: bool,
    /// Leases of data that are not written down.
    leases: u64,
    /// When the state was written last, milliseconds.
    saved_ms: u64,
    /// When leases were looked at last, milliseconds.
    ticked_ms: u64,
    heard: Heard,
    /// The latest streams of ranks' heartbeats.
    beats: Beats,
    /// Signs of life given.
    signs: u64,
    /// How runs stand, for Prometheus.
    members: Members,
}

impl CoordinatorTask {
    async fn run(mut self, mut inbox: mpsc::Receiver<Message>, ends: Arc<Notify>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // At most one at a time: a folder that does not answer holds nobody up.
        let mut looking: Option<JoinHandle<Saved>> = None;
        loop {
            let mut looked = Saved::Yes;
            tokio::select! {
                // However much waits, leases are looked at, and signs of life given.
                biased;
                () = ends.notified() => return,
                _ = ticks.tick() => self.tick(),
                _ = looks.tick(), if looking.is_none() => looking = self.look(),
                found = async { looking.as_mut().expect("it is under way").await },
                    if looking.is_some() =>
                {
                    looking = None;
                    looked = found.unwrap_or_else(|panicked| Saved::NotNow(panicked.to_string()));
                }
                () = std::future::ready(()), if !self.later.is_empty() => {}
                message = inbox.recv() => match message {
                    Some(message) => self.take(message),
                    None => return,
                },
            }
            self.handle_waiting(&mut inbox);
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
            for question in std::mem::take(&mut self.questions) {
                self.handle(question);
            }
        }
    }

    /// Takes all that waits by now: it is written down at once, and answered after that.
    fn handle_waiting(&mut self, inbox: &mut mpsc::Receiver<Message>) {
        for _ in 0..MAILBOX_MAX {
            self.leases += u64::from(self.core.take_leased());
            if self.leases >= FORGOTTEN_MAX {
                return;
            }
            let waiting = self.later.pop_front();
            let Some(message) = waiting.or_else(|| inbox.try_recv().ok()) else {
                return;
            };
            self.take(message);
        }
    }

    /// Decides what a message comes to; one that only looks waits until that is written down.
    fn take(&mut self, message: Message) {
        match message.only_looks() {
            true => self.questions.push(message),
            false => self.handle(message),
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
        self.members.tell(&self.core, now_ms);
        self.waiting.retain(|_, reply| !reply.is_closed());
    }
}
