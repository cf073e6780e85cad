//! The way of some blocks to their shard and back, wherever it is.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::Bytes;
use tonic::Status;
use tradewind_common::mix::mixed;
use tradewind_common::pieces::Measured;
use tradewind_common::{BlockId, Compression, Layout, ShardId};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::frame::{Framed, Part};
use tradewind_proto::refusal::{self, Reason};
use tradewind_proto::v1::{
    self, Create, DType, Gradient, Pull, PullFrame, PushFrame, Skip, push_frame,
};

use crate::arriving::{self, Arriving};
use crate::away::Away;
use crate::coordinator::seed_of;
use crate::core::session::{Frame, Identity, Purpose, Session};
use crate::destination::Destination;
use crate::directory::{Directory, Primary};
use crate::exchange_error::ExchangeError;
use crate::network::Reach;
use crate::parts::Values;
use crate::pushed::Pushed;
use crate::sender::{Sender, plain};
use crate::stream::Stream;

/// What the links of one exchange share; they run on one thread.
pub(crate) struct Shared<'a, 'v> {
    pub(crate) layout: &'a Layout,
    pub(crate) session: RefCell<&'a mut Session>,
    /// None if no values shall come back.
    pub(crate) values: Option<RefCell<&'a mut dyn Destination>>,
    pub(crate) pushed: Pushed<'a, 'v>,
    /// What a gradient's blocks are pushed with besides, where an optimizer asks for it.
    pub(crate) norms: Option<Measured>,
    pub(crate) sender: RefCell<&'a mut Sender>,
    /// The form in which differences come down.
    pub(crate) down: Compression,
}

/// Some blocks of one shard, and the stream to its primary on which they are exchanged.
pub(crate) struct Link {
    shard: ShardId,
    directory: Directory,
    reach: Reach,
    /// In the order in which all groups send.
    blocks: Vec<BlockId>,
    stream: Option<(Primary, Stream)>,
    /// Part of an answer has come; one that nobody waits for may outlast an exchange.
    arriving: Option<Arriving>,
}

impl Link {
    pub(crate) fn new(
        shard: ShardId,
        directory: &Directory,
        reach: &Reach,
        blocks: Vec<BlockId>,
    ) -> Self {
        Self {
            shard,
            directory: directory.clone(),
            reach: reach.clone(),
            blocks,
            stream: None,
            arriving: None,
        }
    }

    /// Sends its blocks and takes the answers; on a new stream where one breaks, or the directory
    /// names another primary. Gives up when the lease is lost.
    pub(crate) async fn exchange(&mut self, shared: &Shared<'_, '_>) -> Result<(), ExchangeError> {
        let mut directory = self.directory.clone();
        let shard = self.shard;
        let ended = tokio::select! {
            ended = self.follow(shared) => Some(ended),
            () = directory.over() => None,
        };
        ended.unwrap_or_else(|| {
            (self.stream, self.arriving) = (None, None);
            let text = "the lease is lost, so nothing is exchanged any more".to_owned();
            Err(ExchangeError::Refused {
                shard,
                place: place(directory.primary(shard).as_ref()),
                status: refusal::status(Reason::NotLive, text),
            })
        })
    }

    /// Until all is answered, something is refused, or nobody can be reached for too long.
    async fn follow(&mut self, shared: &Shared<'_, '_>) -> Result<(), ExchangeError> {
        let (shard, mut directory) = (self.shard, self.directory.clone());
        let mut away = Away::new(self.seed(shared));
        loop {
            let before = self.due(shared).len();
            let primary = directory.primary(shard);
            let ended = tokio::select! {
                biased;
                ended = self.attempt(shared, primary.as_ref(), &mut away) => ended,
                () = directory.moved(shard, primary.as_ref()) => {
                    Err(Status::unavailable("another server has taken over").into())
                }
            };
            let status = match ended {
                Ok(()) => return Ok(()),
                Err(Failure::Answer(error)) => return Err(error),
                Err(Failure::Stream(status)) => status,
            };
            (self.stream, self.arriving) = (None, None);
            if !passes(&status) {
                let place = place(primary.as_ref());
                return Err(ExchangeError::Refused {
                    shard,
                    place,
                    status,
                });
            }
            if self.due(shared).len() < before {
                away.over();
            }
            away.begin();
            let successor = directory.primary(shard);
            if successor.is_some() && successor != primary {
                // It has not been tried yet.
                continue;
            }
            if away.so_far() >= self.reach.retry {
                let place = place(primary.as_ref());
                return Err(ExchangeError::Unreachable {
                    shard,
                    place,
                    status,
                });
            }
            tracing::debug!(%shard, "stream broke, trying again: {}", status.message());
            tokio::select! {
                () = tokio::time::sleep(away.pause()) => {}
                () = directory.moved(shard, primary.as_ref()) => {}
            }
        }
    }

    /// A number that is another one for each rank's link.
    fn seed(&self, shared: &Shared<'_, '_>) -> u64 {
        let session = shared.session.borrow();
        let Identity { run, group, .. } = session.identity();
        // Ranks of a group have other blocks.
        let first = self.blocks.first().map_or(0, |block| block.0);
        let parts = [group.0, self.shard.0, first].map(u64::from);
        mixed(seed_of(run), parts)
    }

    fn due(&self, shared: &Shared<'_, '_>) -> VecDeque<Frame> {
        let session = shared.session.borrow();
        let frames = self.blocks.iter().filter_map(|block| session.frame(*block));
        frames.collect()
    }

    /// May be dropped; the stream is of no use then.
    async fn attempt(
        &mut self,
        shared: &Shared<'_, '_>,
        primary: Option<&Primary>,
        away: &mut Away,
    ) -> Result<(), Failure> {
        let mut frames = self.due(shared);
        let mut unanswered = frames.len();
        let nobody = || Status::unavailable("nobody answers for the shard at the moment");
        let primary = primary.ok_or_else(nobody)?;
        if self.stream.as_ref().is_none_or(|(at, _)| at != primary) {
            (self.stream, self.arriving) = (None, None);
            away.begin();
            let stream = Stream::open(&self.reach, &primary.endpoint.address).await?;
            self.stream = Some((primary.clone(), stream));
        }
        away.end();
        let (_, Stream { up, down }) = self.stream.as_mut().expect("opened above");
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
                        let place = place(Some(primary));
                        Failure::Answer(ExchangeError::Answer { place, block, problem })
                    })?);
                },
            }
        }
        Ok(())
    }
}

/// Whether the same frames may be answered later. A server that was restarted knows nothing of what
/// it has to hold until the coordinator tells it.
fn passes(status: &Status) -> bool {
    const UNTOLD: [Reason; 3] = [Reason::UnknownRun, Reason::UnknownBlock, Reason::NotReady];
    let word = refusal::reason(status);
    refusal::retryable(status) || UNTOLD.iter().any(|reason| word == Some(reason.word()))
}

/// Who does not answer, for people.
fn place(primary: Option<&Primary>) -> String {
    primary.map_or_else(
        || "no server".into(),
        |Primary { endpoint, .. }| format!("server {} at {}", endpoint.server, endpoint.address),
    )
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
    fn values(&self, block: BlockId) -> Option<Values<'_>> {
        match self.pushed {
            Pushed::Whole(source) => Some(Values::F32(source(block))),
            Pushed::Parts(parts) => parts.values(block),
        }
    }

    fn norms(&self, block: BlockId) -> Vec<v1::Norms> {
        let norms = self.norms.iter().flat_map(|norms| norms.of_block(block));
        norms.copied().map(Into::into).collect()
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
                    samples_seen: frame.seen.samples,
                    updates_seen: frame.seen.updates,
                    norms: self.norms(frame.block),
                    dtype: convert::dtype(form).into(),
                    lineage: frame.lineage.0,
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
                let Some(Values::F32(values)) = self.values(frame.block) else {
                    unreachable!("creations skip nothing and are whole");
                };
                (push_frame::Action::Create(head), plain(&values))
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
        let mut none: [f32; 0] = [];
        let mut nowhere: &mut [f32] = &mut none;
        let mut destination = self.values.as_ref().map(RefCell::borrow_mut);
        let destination: &mut dyn Destination = match &mut destination {
            Some(destination) => &mut **destination,
            None => &mut nowhere,
        };
        arriving.take(piece, destination.values());
        if !arriving.is_complete() {
            return Ok(false);
        }
        let finished = arriving.finish(destination.values());
        finished.map_err(|problem| (arriving.answer.block, problem))?;
        if let Some(elements) = arriving.written() {
            destination.arrived(elements);
        }
        Ok(self.session.borrow_mut().answer(&arriving.answer))
    }
}

#[cfg(test)]
mod tests;
