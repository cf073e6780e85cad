//! Moves blocks between the flat vector and the shards: one stream to every server, all at once;
//! fresh blocks come down while later ones still go up.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tradewind_common::placement::Placement;
use tradewind_common::{BlockId, Clock, Layout, ServerId};
use tradewind_proto::convert::{self, Endpoint, Malformed};
use tradewind_proto::limits::FRAME_BYTES_MAX;
use tradewind_proto::refusal;
use tradewind_proto::v1::shard_client::ShardClient;
use tradewind_proto::v1::{
    Create, DType, Gradient, Pull, PullFrame, PushFrame, Skip, Verdict, push_frame,
};

use crate::core::session::{Answer, Frame, Kind, Purpose, Session, Summary};
use crate::network::{PAUSE, Reach};
use crate::stopwatch::Stopwatch;

/// Frames between the exchange and the connection.
const FRAMES_OUT_MAX: usize = 4;

/// Why an exchange ended without all its blocks.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// A server could not be reached for as long as `exchange.retry_ms` allows.
    #[error("server {server} at {address} cannot be reached: {}", status.message())]
    Unreachable {
        /// Which.
        server: ServerId,
        /// host:port
        address: String,
        /// The last failure.
        status: Status,
    },
    /// A server refused a block.
    #[error("server {server} refused: {}", status.message())]
    Refused {
        /// Which.
        server: ServerId,
        /// What it said.
        status: Status,
    },
    /// A server answered with something that cannot be.
    #[error("server {server} answered block {block} with {problem}")]
    Answer {
        /// Which.
        server: ServerId,
        /// For which block.
        block: BlockId,
        /// What is wrong.
        problem: Malformed,
    },
}

/// Where a block's values to push come from; elements of the flat vector → little-endian bytes.
pub type Source<'a> = &'a dyn Fn(BlockId) -> Bytes;

/// One rank's streams to the shards.
pub struct Exchange {
    layout: Arc<Layout>,
    session: Session,
    links: BTreeMap<ServerId, Link>,
}

/// The way to one server.
struct Link {
    server: ServerId,
    address: String,
    reach: Reach,
    stream: Option<Stream>,
}

struct Stream {
    up: mpsc::Sender<PushFrame>,
    down: Streaming<PullFrame>,
}

impl Exchange {
    /// Streams for `session` to the servers at `endpoints`; they are opened when needed.
    pub fn new(
        layout: Arc<Layout>,
        session: Session,
        endpoints: &[Endpoint],
        reach: &Reach,
    ) -> Self {
        let used = session.servers();
        let link = |endpoint: &Endpoint| Link {
            server: endpoint.server,
            address: endpoint.address.clone(),
            reach: reach.clone(),
            stream: None,
        };
        let links = endpoints.iter().filter(|e| used.contains(&e.server));
        Self {
            layout,
            session,
            links: links.map(|e| (e.server, link(e))).collect(),
        }
    }

    /// The clock of the next contribution.
    pub fn clock(&self) -> Clock {
        self.session.clock()
    }

    /// One exchange of every block of the slice. On return the slice's range of `values` is fresh
    /// (but after `Create`, which leaves it as it is).
    pub async fn run(
        &mut self,
        purpose: Purpose,
        samples_seen: u64,
        source: Source<'_>,
        values: &mut [f32],
    ) -> Result<Summary, ExchangeError> {
        self.session.begin(purpose, samples_seen);
        let shared = Shared {
            layout: &self.layout,
            session: RefCell::new(&mut self.session),
            values: RefCell::new(values),
            source,
        };
        all(self.links.values_mut().map(|link| link.exchange(&shared))).await?;
        Ok(self.session.finish().expect("every link has its answers"))
    }
}

/// Which server owns each block of a slice.
pub fn owners(slice: &[BlockId], placement: &Placement) -> Vec<(BlockId, ServerId)> {
    slice
        .iter()
        .filter_map(|block| Some((*block, placement.owner(*block)?)))
        .collect()
}

/// What the links of one exchange share; they run on one thread.
struct Shared<'a> {
    layout: &'a Layout,
    session: RefCell<&'a mut Session>,
    values: RefCell<&'a mut [f32]>,
    source: Source<'a>,
}

impl Link {
    /// Sends this server's blocks and takes its answers, on a new stream where one breaks.
    async fn exchange(&mut self, shared: &Shared<'_>) -> Result<(), ExchangeError> {
        let mut watch = Stopwatch::start();
        loop {
            let before = self.due(shared).len();
            let status = match self.attempt(shared).await {
                Ok(()) => return Ok(()),
                Err(Failure::Answer(error)) => return Err(error),
                Err(Failure::Stream(status)) => status,
            };
            self.stream = None;
            let server = self.server;
            if !refusal::retryable(&status) {
                return Err(ExchangeError::Refused { server, status });
            }
            if self.due(shared).len() < before {
                watch = Stopwatch::start();
            }
            if watch.elapsed() >= self.reach.retry {
                let address = self.address.clone();
                return Err(ExchangeError::Unreachable {
                    server,
                    address,
                    status,
                });
            }
            tracing::debug!(%server, "stream broke, trying again: {}", status.message());
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn due(&self, shared: &Shared<'_>) -> VecDeque<Frame> {
        shared.session.borrow().frames(self.server).collect()
    }

    async fn attempt(&mut self, shared: &Shared<'_>) -> Result<(), Failure> {
        let mut frames = self.due(shared);
        let mut unanswered = frames.len();
        if self.stream.is_none() {
            self.stream = Some(self.open().await?);
        }
        let stream = self.stream.as_mut().expect("opened above");
        while unanswered > 0 {
            tokio::select! {
                permit = stream.up.reserve(), if !frames.is_empty() => match permit {
                    Ok(permit) => permit.send(shared.fill(&frames.pop_front().expect("not empty"))),
                    // The stream has ended; its status is on the way down.
                    Err(_) => frames.clear(),
                },
                answer = stream.down.message() => match answer? {
                    Some(frame) => unanswered -= usize::from(shared.take(self.server, frame)?),
                    None => return Err(Status::unavailable("the server ended the stream").into()),
                },
            }
        }
        Ok(())
    }

    async fn open(&self) -> Result<Stream, Status> {
        let channel = self.reach.connect(&self.address).await?;
        let mut client = ShardClient::new(channel).max_decoding_message_size(FRAME_BYTES_MAX);
        let (up, frames) = mpsc::channel(FRAMES_OUT_MAX);
        let down = client
            .exchange(ReceiverStream::new(frames))
            .await?
            .into_inner();
        Ok(Stream { up, down })
    }
}

enum Failure {
    Stream(Status),
    Answer(ExchangeError),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Stream(status)
    }
}

impl Shared<'_> {
    fn fill(&self, frame: &Frame) -> PushFrame {
        let dtype = DType::DtypeF32.into();
        let action = match frame.purpose {
            Purpose::Gradient { samples } => push_frame::Action::Gradient(Gradient {
                dtype,
                values: (self.source)(frame.block),
                samples,
                pulled_version: frame.pulled_version,
                samples_seen: frame.samples_seen,
            }),
            Purpose::Skip => push_frame::Action::Skip(Skip {}),
            Purpose::Pull => push_frame::Action::Pull(Pull {}),
            Purpose::Create => push_frame::Action::Create(Create {
                dtype,
                values: (self.source)(frame.block),
            }),
        };
        let session = self.session.borrow();
        let identity = session.identity();
        PushFrame {
            run: identity.run.to_string(),
            group: identity.group.0,
            incarnation: identity.incarnation.0,
            clock: frame.clock.0,
            block: frame.block.0,
            action: Some(action),
        }
    }

    /// Whether the answer was one that is waited for.
    fn take(&self, server: ServerId, frame: PullFrame) -> Result<bool, Failure> {
        let id = BlockId(frame.block);
        let wrong = |problem| {
            Failure::Answer(ExchangeError::Answer {
                server,
                block: id,
                problem,
            })
        };
        let verdict = frame.verdict();
        let answer = Answer {
            block: id,
            clock: Clock(frame.clock),
            kind: match verdict {
                Verdict::Read => Kind::Read,
                Verdict::Created => Kind::Created,
                _ => Kind::Decided,
            },
            version: frame.version,
            delay: (verdict == Verdict::Applied).then_some(frame.delay),
            lag: frame.lag,
            waited_us: frame.waited_us,
            samples_applied: frame.samples_applied,
            stop: frame.stop,
        };
        if !self.session.borrow_mut().answer(&answer) {
            return Ok(false);
        }
        if verdict != Verdict::Created {
            let elements = self
                .layout
                .block(id)
                .expect("the session knows it")
                .elements
                .clone();
            let mut values = self.values.borrow_mut();
            convert::copy_values(&frame.values, &mut values[elements]).map_err(wrong)?;
        }
        Ok(true)
    }
}

/// Runs the futures side by side on this task; the first error ends them all.
async fn all<E>(
    futures: impl Iterator<Item = impl Future<Output = Result<(), E>>>,
) -> Result<(), E> {
    futures_util::future::try_join_all(futures)
        .await
        .map(|_| ())
}
