//! Traces of steps: ranks, servers and copies each tell a collector of OpenTelemetry what they did of a step, and when.
//!
//! A trace is one step of one group. Nothing of it travels with an exchange: group and clock do in any case, and
//! from them, the run's name and the fleet's token everybody makes the same numbers ([`ids`]).
//!
//! Nobody waits for a collector. What is told goes into a queue; what finds no room there, or cannot be sent, is
//! dropped and counted.

pub mod ids;
mod otlp;
mod send;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tonic::transport::Endpoint;
use tradewind_common::{Clock, GroupId};
use tradewind_process::watched;

use ids::Key;
use send::Sending;

/// Spans that wait to be sent.
const WAITING_MAX: usize = 8192;

/// How long a process that ends waits for what it has told to be sent.
const LAST: Duration = Duration::from_secs(2);

/// Between two looks at that.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a collector may take to be reached.
const CONNECT: Duration = Duration::from_secs(2);

/// Spans of this process that no collector has got.
static LOST: AtomicU64 = AtomicU64::new(0);

/// How many spans of this process no collector has got.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Who did something of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The group, all of it: the step as its first rank sees it.
    Group,
    /// A rank of the group: all of its step.
    Rank(u32),
    /// A rank of the group: a part of its step, such as `forward`.
    Part(u32, &'static str),
    /// The primary of a shard.
    Shard(u32),
    /// A copy of a shard, on this server.
    Copy {
        /// Which shard.
        shard: u32,
        /// On which server.
        server: u32,
    },
}

/// What somebody did of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Whose step.
    pub group: GroupId,
    /// The clock of its exchange.
    pub clock: Clock,
    /// Who.
    pub who: Who,
    /// From when, nanoseconds since the Unix epoch.
    pub begun_ns: u64,
    /// Until when.
    pub ended_ns: u64,
    /// What there is to count, each by a name.
    pub counts: Vec<(&'static str, u64)>,
}

/// Where spans are told.
#[derive(Clone, Debug)]
pub struct Tracer {
    to: mpsc::Sender<Told>,
    /// What was told is to be sent now.
    hurry: Arc<Notify>,
}

/// What waits.
#[derive(Debug)]
enum Told {
    Span(String, Span),
    /// To be answered when all before it has been sent, or is lost.
    All(SyncSender<()>),
}

/// An address that is none of a collector.
#[derive(Debug, thiserror::Error)]
#[error("{0} is no address of a collector, such as http://127.0.0.1:4317")]
pub struct BadCollector(String);

impl Tracer {
    /// Tells a collector that speaks OTLP over gRPC; `process` names this one there. `secret` is that of the run's
    /// servers: with the same one everybody makes the same numbers.
    ///
    /// # Errors
    /// The address is none.
    pub fn start(
        collector: &str,
        process: String,
        secret: &[u8],
        runtime: &Handle,
    ) -> Result<Self, BadCollector> {
        let endpoint = Endpoint::from_shared(collector.to_owned());
        let endpoint = endpoint.map_err(|_| BadCollector(collector.to_owned()))?;
        let (to, told) = mpsc::channel(WAITING_MAX);
        let collector = collector.to_owned();
        let key = Key::new(secret);
        let hurry = Arc::new(Notify::new());
        let hurried = hurry.clone();
        let sending = async move {
            // Within the runtime, as it asks for.
            let channel = endpoint.connect_timeout(CONNECT).connect_lazy();
            Sending::new(channel, collector, process, key)
                .run(told, hurried)
                .await;
        };
        runtime.spawn(watched("the sending of traces".into(), sending));
        Ok(Self { to, hurry })
    }

    /// Tells of what was done for `run`. It never waits.
    pub fn tell(&self, run: &str, span: Span) {
        if self.to.try_send(Told::Span(run.to_owned(), span)).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        if self.to.capacity() < WAITING_MAX / 2 {
            self.hurry.notify_one();
        }
    }

    /// Waits until all that was told has been sent, or is lost; a second or two at most. Not to be called by a task.
    pub fn flush(&self) {
        let (done, sent) = sync_channel(1);
        let mut asking = Some(Told::All(done));
        for _ in 0..LAST.as_millis() / PAUSE.as_millis() {
            if let Some(all) = asking.take() {
                match self.to.try_send(all) {
                    Err(TrySendError::Full(all)) => asking = Some(all),
                    // The runtime has ended.
                    Err(TrySendError::Closed(_)) => return,
                    Ok(()) => self.hurry.notify_one(),
                }
            }
            if sent.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}
