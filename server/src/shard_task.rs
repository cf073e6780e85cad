//! One task owns one shard: mailbox, clock, replies.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot};
use tradewind_common::{RunId, ServerId};

use crate::clock::Origin;
use crate::core::ReplyTo;
use crate::core::refusal::Refusal;
use crate::core::shard::{Counters, Output, Push, Reply, Shard};
use crate::core::view::{Acknowledge, View};
use crate::telemetry;

/// Messages that wait for a shard; senders wait when it is full.
pub const MAILBOX_MAX: usize = 1024;

/// Where the answers to one stream's frames go. Unbounded, because a stream sends no more frames
/// than it has permits, and gets a permit back with each answer (`rpc/exchange.rs`).
pub type Answers = mpsc::UnboundedSender<Result<Reply, Refusal>>;

/// What a shard is asked.
pub enum Message {
    /// A stream begins; its answers go there.
    Open(ReplyTo, Answers),
    /// A frame of a stream.
    Push(Push, ReplyTo),
    /// A frame of a stream that is no push.
    Malformed(Refusal, ReplyTo),
    /// A view to follow.
    View(View, oneshot::Sender<Acknowledge>),
    /// Counters and versions.
    Status(oneshot::Sender<Status>),
}

/// What a shard tells about itself.
#[derive(Clone, Debug)]
pub struct Status {
    /// The generation it follows.
    pub generation: u64,
    /// Bytes of parameters.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The lowest and the highest version.
    pub versions: (u64, u64),
    /// What it counted.
    pub counters: Counters,
    /// BLAKE3 over (block, version, values).
    pub digest: [u8; 32],
}

/// The way to a shard.
#[derive(Clone, Debug)]
pub struct ShardHandle(mpsc::Sender<Message>);

/// The shard's task has ended: the server is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is shutting down")]
pub struct Gone;

impl ShardHandle {
    /// Starts the task. `complete` is told when every block has a value.
    pub fn spawn(
        shard: Shard,
        run: RunId,
        server: ServerId,
        origin: Origin,
        complete: mpsc::Sender<(RunId, Acknowledge)>,
    ) -> Self {
        let (mailbox, inbox) = mpsc::channel(MAILBOX_MAX);
        let task = Task {
            shard,
            run,
            server,
            origin,
            complete,
            streams: HashMap::new(),
        };
        tokio::spawn(task.run(inbox));
        Self(mailbox)
    }

    /// Puts a message into the mailbox, waiting while it is full.
    pub async fn send(&self, message: Message) -> Result<(), Gone> {
        self.0.send(message).await.map_err(|_| Gone)
    }

    /// Has the shard follow a view.
    pub async fn follow(&self, view: View) -> Result<Acknowledge, Gone> {
        let (answer, acknowledged) = oneshot::channel();
        self.send(Message::View(view, answer)).await?;
        acknowledged.await.map_err(|_| Gone)
    }

    /// Asks for counters and versions.
    pub async fn status(&self) -> Result<Status, Gone> {
        let (answer, status) = oneshot::channel();
        self.send(Message::Status(answer)).await?;
        status.await.map_err(|_| Gone)
    }
}

struct Task {
    shard: Shard,
    run: RunId,
    server: ServerId,
    origin: Origin,
    complete: mpsc::Sender<(RunId, Acknowledge)>,
    streams: HashMap<ReplyTo, Answers>,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        while let Some(message) = inbox.recv().await {
            let now_us = self.origin.now_us();
            match message {
                Message::Open(stream, answers) => {
                    self.streams.retain(|_, answers| !answers.is_closed());
                    self.streams.insert(stream, answers);
                }
                Message::Push(push, to) => self.shard.handle_push(push, to, now_us),
                Message::Malformed(refusal, to) => self.shard.handle_malformed(refusal, to),
                Message::View(view, answer) => {
                    let _ = answer.send(self.shard.handle_view(view, now_us));
                }
                Message::Status(answer) => {
                    let _ = answer.send(self.status());
                }
            }
            self.drain().await;
            // Counters are published between bursts, not once a frame.
            if inbox.is_empty() {
                telemetry::shard(&self.run, self.server, self.shard.counters());
            }
        }
    }

    async fn drain(&mut self) {
        while let Some(output) = self.shard.poll_output() {
            match output {
                // A stream that has gone asks again on another one.
                Output::Reply { to, result } => {
                    if let Some(answers) = self.streams.get(&to) {
                        let _ = answers.send(result);
                    }
                }
                Output::Complete(acknowledge) => {
                    let _ = self.complete.send((self.run.clone(), acknowledge)).await;
                }
            }
        }
    }

    fn status(&mut self) -> Status {
        let blocks = || self.shard.blocks().map(|(_, block)| block);
        let versions = || blocks().map(|b| b.version());
        Status {
            generation: self.shard.generation().0,
            bytes: blocks().map(|b| b.length() as u64 * 4).sum(),
            blocks: blocks().count() as u64,
            versions: (versions().min().unwrap_or(0), versions().max().unwrap_or(0)),
            counters: self.shard.counters().clone(),
            digest: self.shard.digest(),
        }
    }
}
