//! The way of some blocks to their server and back.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::Bytes;
use tonic::Status;
use tradewind_common::{BlockId, Compression, Layout, ServerId};
use tradewind_proto::convert::{self, Endpoint, Malformed};
use tradewind_proto::frame::{Framed, Part};
use tradewind_proto::refusal;
use tradewind_proto::v1::{Create, DType, Gradient, Pull, PullFrame, PushFrame, Skip, push_frame};

use crate::arriving::{self, Arriving};
use crate::core::session::{Frame, Purpose, Session};
use crate::exchange::{ExchangeError, Pushed};
use crate::network::{PAUSE, Reach};
use crate::sender::{Sender, plain};
use crate::stopwatch::Stopwatch;
use crate::stream::Stream;

/// What the links of one exchange share; they run on one thread.
pub(crate) struct Shared<'a, 'v> {
    pub(crate) layout: &'a Layout,
    pub(crate) session: RefCell<&'a mut Session>,
    /// None if no values shall come back.
    pub(crate) values: Option<RefCell<&'a mut [f32]>>,
    pub(crate) pushed: Pushed<'a, 'v>,
    pub(crate) sender: RefCell<&'a mut Sender>,
    /// The form in which differences come down.
    pub(crate) down: Compression,
}

/// Some blocks of one server, and the stream on which they are exchanged.
pub(crate) struct Link {
    server: ServerId,
    address: String,
    reach: Reach,
    /// In the order in which all groups send.
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
            let next = frames.front().map(|frame| frame.block);
            let permit = async {
                if let Some(block) = next {
                    shared.ready(block).await;
                }
                up.reserve().await
            };
            tokio::select! {
                permit = permit, if next.is_some() => match permit {
                    Ok(permit) => {
                        let frame = frames.pop_front().expect("not empty");
                        permit.send(Ok(shared.fill(&frame)));
                    }
                    // The stream has ended; its status is on the way down.
                    Err(_) => frames.clear(),
                },
                part = down.next() => {
                    let (begun, piece) = match part? {
                        Part::Head(frame, bulk) => (shared.begin(&frame, bulk), Bytes::new()),
                        Part::Bulk(piece) => {
                            let begun = self.arriving.take().expect("a head came before");
                            (Ok(begun), piece)
                        }
                    };
                    let taken = begun.and_then(|mut arriving| {
                        let counts = shared.take(&mut arriving, &piece)?;
                        self.arriving = Some(arriving).filter(|a| !a.is_complete());
                        Ok(counts)
                    });
                    unanswered -= usize::from(taken.map_err(|(block, problem)| {
                        let server = self.server;
                        Failure::Answer(ExchangeError::Answer { server, block, problem })
                    })?);
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

impl Shared<'_, '_> {
    /// Waits until a block may be sent.
    async fn ready(&self, block: BlockId) {
        if let Pushed::Parts(parts) = self.pushed {
            parts.ready(block).await;
        }
    }

    /// `None` for a block that is skipped though others are not.
    fn values(&self, block: BlockId) -> Option<&[f32]> {
        match self.pushed {
            Pushed::Whole(source) => Some(source(block)),
            Pushed::Parts(parts) => parts.values(block),
        }
    }

    fn fill(&self, frame: &Frame) -> Framed {
        let skip = || (push_frame::Action::Skip(Skip {}), Bytes::new());
        let (action, values) = match frame.purpose {
            Purpose::Gradient { samples } => self.values(frame.block).map_or_else(skip, |values| {
                let block = self
                    .layout
                    .block(frame.block)
                    .expect("a block of the slice");
                let (form, values) = self.sender.borrow_mut().gradient(block, values);
                let head = Gradient {
                    samples,
                    pulled_version: frame.pulled_version,
                    samples_seen: frame.samples_seen,
                    dtype: convert::dtype(form).into(),
                    values: Bytes::new(),
                };
                (push_frame::Action::Gradient(head), values)
            }),
            Purpose::Skip => skip(),
            Purpose::Pull => (push_frame::Action::Pull(Pull {}), Bytes::new()),
            Purpose::Create => {
                let head = Create {
                    dtype: DType::DtypeF32.into(),
                    values: Bytes::new(),
                };
                let values = self.values(frame.block).expect("creations skip nothing");
                (push_frame::Action::Create(head), plain(values))
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
            holds: frame.holds,
            action: Some(action),
        };
        Framed::new(&head, values)
    }

    /// The beginning of an answer, of which `bulk` bytes of values follow.
    fn begin(&self, frame: &PullFrame, bulk: usize) -> Result<Arriving, (BlockId, Malformed)> {
        let answer = arriving::answer(frame, self.values.is_some());
        let block = self.layout.block(answer.block);
        match block.filter(|_| self.session.borrow().expects(&answer)) {
            None => Ok(Arriving::unexpected(answer, bulk)),
            Some(block) => {
                let elements = block.elements.clone();
                let arriving = Arriving::expected((answer, frame), elements, bulk, self.down);
                arriving.map_err(|problem| (block.id, problem))
            }
        }
    }

    /// Takes a piece of an answer in. Once all of it is here the answer counts; `true` if it was
    /// one that is waited for.
    fn take(&self, arriving: &mut Arriving, piece: &[u8]) -> Result<bool, (BlockId, Malformed)> {
        let mut none = [];
        let mut values = self.values.as_ref().map(RefCell::borrow_mut);
        let values = values.as_deref_mut().map_or(&mut none[..], |values| values);
        arriving.take(piece, values);
        if !arriving.is_complete() {
            return Ok(false);
        }
        let finished = arriving.finish(values);
        finished.map_err(|problem| (arriving.answer.block, problem))?;
        Ok(self.session.borrow_mut().answer(&arriving.answer))
    }
}
