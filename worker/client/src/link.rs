//! The way of some blocks to their server and back.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use tonic::Status;
use tradewind_common::{BlockId, Clock, Layout, ServerId};
use tradewind_proto::convert::{Endpoint, Malformed};
use tradewind_proto::frame::{Framed, Part};
use tradewind_proto::refusal;
use tradewind_proto::v1::{
    Create, DType, Gradient, Pull, PullFrame, PushFrame, Skip, Verdict, push_frame,
};

use crate::core::session::{Answer, Frame, Kind, Purpose, Session};
use crate::exchange::{ExchangeError, Source};
use crate::network::{PAUSE, Reach};
use crate::stopwatch::Stopwatch;
use crate::stream::Stream;

/// What the links of one exchange share; they run on one thread.
pub(crate) struct Shared<'a, 'v> {
    pub(crate) layout: &'a Layout,
    pub(crate) session: RefCell<&'a mut Session>,
    /// None if no values shall come back.
    pub(crate) values: Option<RefCell<&'a mut [f32]>>,
    pub(crate) source: Source<'a, 'v>,
}

/// Some blocks of one server, and the stream on which they are exchanged.
pub(crate) struct Link {
    server: ServerId,
    address: String,
    reach: Reach,
    /// In flat order.
    blocks: Vec<BlockId>,
    stream: Option<Stream>,
    /// Part of an answer has come; one that nobody waits for may outlast an exchange.
    arriving: Option<Arriving>,
}

impl Link {
    pub(crate) fn new(endpoint: &Endpoint, reach: &Reach, blocks: Vec<BlockId>) -> Self {
        Self {
            server: endpoint.server,
            address: endpoint.address.clone(),
            reach: reach.clone(),
            blocks,
            stream: None,
            arriving: None,
        }
    }

    /// Sends its blocks and takes the answers, on a new stream where one breaks.
    pub(crate) async fn exchange(&mut self, shared: &Shared<'_, '_>) -> Result<(), ExchangeError> {
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

    fn due(&self, shared: &Shared<'_, '_>) -> VecDeque<Frame> {
        let session = shared.session.borrow();
        let frames = self.blocks.iter().filter_map(|block| session.frame(*block));
        frames.collect()
    }

    async fn attempt(&mut self, shared: &Shared<'_, '_>) -> Result<(), Failure> {
        let mut frames = self.due(shared);
        let mut unanswered = frames.len();
        if self.stream.is_none() {
            self.stream = Some(Stream::open(&self.reach, &self.address).await?);
            self.arriving = None;
        }
        let Stream { up, down } = self.stream.as_mut().expect("opened above");
        while unanswered > 0 {
            tokio::select! {
                permit = up.reserve(), if !frames.is_empty() => match permit {
                    Ok(permit) => {
                        let frame = frames.pop_front().expect("not empty");
                        permit.send(Ok(shared.fill(&frame)));
                    }
                    // The stream has ended; its status is on the way down.
                    Err(_) => frames.clear(),
                },
                part = down.next() => {
                    let answer = match part? {
                        Part::Head(frame, bulk) => shared.expect(self.server, &frame, bulk)?,
                        Part::Bulk(piece) => {
                            let mut answer = self.arriving.take().expect("a head came before");
                            shared.take(&mut answer, &piece);
                            answer
                        }
                    };
                    if answer.left > 0 {
                        self.arriving = Some(answer);
                    } else if answer.expected {
                        shared.session.borrow_mut().answer(&answer.answer);
                        unanswered -= 1;
                    }
                },
            }
        }
        Ok(())
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

/// An answer whose values arrive.
struct Arriving {
    answer: Answer,
    /// Nobody waits for the others; their values are passed over.
    expected: bool,
    /// Where the values belong in the flat vector.
    elements: Range<usize>,
    /// Bytes to come.
    left: usize,
}

impl Shared<'_, '_> {
    fn fill(&self, frame: &Frame) -> Framed {
        let dtype = DType::DtypeF32.into();
        let values = || Bytes::copy_from_slice(bytemuck::cast_slice((self.source)(frame.block)));
        let (action, values) = match frame.purpose {
            Purpose::Gradient { samples } => {
                let head = Gradient {
                    samples,
                    pulled_version: frame.pulled_version,
                    samples_seen: frame.samples_seen,
                    dtype,
                    values: Bytes::new(),
                };
                (push_frame::Action::Gradient(head), values())
            }
            Purpose::Skip => (push_frame::Action::Skip(Skip {}), Bytes::new()),
            Purpose::Pull => (push_frame::Action::Pull(Pull {}), Bytes::new()),
            Purpose::Create => {
                let head = Create {
                    dtype,
                    values: Bytes::new(),
                };
                (push_frame::Action::Create(head), values())
            }
        };
        let session = self.session.borrow();
        let identity = session.identity();
        let head = PushFrame {
            run: identity.run.to_string(),
            group: identity.group.0,
            incarnation: identity.incarnation.0,
            clock: frame.clock.0,
            block: frame.block.0,
            without_values: self.values.is_none(),
            holds: None,
            action: Some(action),
        };
        Framed::new(&head, values)
    }

    /// What becomes of an answer, once its `bulk` bytes of values are here.
    fn expect(
        &self,
        server: ServerId,
        frame: &PullFrame,
        bulk: usize,
    ) -> Result<Arriving, Failure> {
        let id = BlockId(frame.block);
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
        let expected = self.session.borrow().expects(&answer);
        let elements = match self.layout.block(id) {
            Some(block) if expected => block.elements.clone(),
            _ => 0..0,
        };
        let wanted = match self.values {
            Some(_) => elements.len() * 4,
            None => 0,
        };
        if expected && bulk != wanted {
            let problem = format!("{bulk} bytes where {wanted} were asked for");
            return Err(Failure::Answer(ExchangeError::Answer {
                server,
                block: id,
                problem: Malformed {
                    field: "values",
                    problem,
                },
            }));
        }
        Ok(Arriving {
            answer,
            expected,
            elements,
            left: bulk,
        })
    }

    fn take(&self, arriving: &mut Arriving, piece: &[u8]) {
        if let (true, Some(values)) = (arriving.expected, &self.values) {
            let mut values = values.borrow_mut();
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values[arriving.elements.clone()]);
            let at = bytes.len() - arriving.left;
            bytes[at..at + piece.len()].copy_from_slice(piece);
        }
        arriving.left -= piece.len();
    }
}
