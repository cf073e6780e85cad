//! The stream of an exchange: frames to shard tasks, answers back. Values are received into the
//! buffer that the shard applies, and sent from the buffer that holds the parameters.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tradewind_common::{BlockId, Compression, GroupId, RunId, ShardId};
use tradewind_proto::convert;
use tradewind_proto::frame::{FrameError, Framed, Outgoing, Part, Reader};
use tradewind_proto::limits::{
    BYTES_IN_FLIGHT_MAX, FRAME_BYTES_MAX, FRAME_HEAD_BYTES_MAX, FRAMES_IN_FLIGHT_MAX,
};
use tradewind_proto::v1::{self, PullFrame, PushFrame};

use super::incoming::Incoming;
use crate::admission::Peer;
use crate::record::verdict_to_wire;
use crate::refuse;
use crate::registry::{Registry, RunEntry};
use crate::shard_task::{Answers, Message, ShardHandle};
use crate::telemetry;
use crate::turn::Turn;
use tradewind_core::ReplyTo;
use tradewind_core::askers::Fresh;
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{Answer, Reply};

/// Serves one stream: reads `body`, and answers with the body that is returned.
pub(super) fn exchange(registry: Arc<Registry>, peer: Peer, stream: ReplyTo, body: Body) -> Body {
    let (answers, replies) = mpsc::unbounded_channel();
    let (ended, end) = oneshot::channel();
    let room = Arc::new(Semaphore::new(ROOM));
    let mut frames = Frames {
        registry,
        peer,
        stream,
        answers,
        room: room.clone(),
        runs: HashMap::new(),
        open: HashMap::new(),
    };
    // Not supervised: what breaks off here breaks this stream, and the client begins another one.
    tokio::spawn(async move {
        let _open = Open::new();
        let _ = ended.send(frames.read(body).await);
    });
    Body::new(Outgoing::response(Answering {
        replies,
        end: Some(end),
        room,
    }))
}

/// What a stream may have in flight, in KiB: gradients that wait or arrive, and values that go out.
/// The stream is not read while it is used up. All groups send blocks in one order, so the first
/// undecided block is in every group's window and `sync` cannot deadlock on it.
const ROOM: usize = BYTES_IN_FLIGHT_MAX / 1024;

/// What the frame of a block of so many values takes of it; as much comes back with its answer.
fn room_of(values: usize) -> u32 {
    let least = ROOM / FRAMES_IN_FLIGHT_MAX;
    (values * 4 / 1024).clamp(least, ROOM) as u32
}

/// Sends answers back until a frame was refused, or the client has ended its side and every frame
/// has its answer.
struct Answering {
    replies: mpsc::UnboundedReceiver<Box<Result<Reply, Refusal>>>,
    /// Resolves when reading has ended.
    end: Option<oneshot::Receiver<Result<(), Status>>>,
    room: Arc<Semaphore>,
}

impl Stream for Answering {
    type Item = Result<Framed, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(Some(reply)) = self.replies.poll_recv(context) {
            let framed = (*reply).map(|reply| {
                self.room.add_permits(room_of(reply.length) as usize);
                encode(reply)
            });
            return Poll::Ready(Some(framed.map_err(refuse::refusal)));
        }
        if let Some(end) = &mut self.end {
            match Pin::new(end).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(Ok(Ok(()))) => self.end = None,
                Poll::Ready(Err(_)) => {
                    let broken = Status::unavailable("the server has broken off this stream");
                    return Poll::Ready(Some(Err(broken)));
                }
            }
        }
        if self.room.available_permits() == ROOM {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }
}

/// A stream that is read.
struct Open;

impl Open {
    fn new() -> Self {
        telemetry::streams(1.0);
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        telemetry::streams(-1.0);
    }
}

struct Frames {
    registry: Arc<Registry>,
    peer: Peer,
    stream: ReplyTo,
    answers: Answers,
    room: Arc<Semaphore>,
    runs: HashMap<String, (RunId, RunEntry)>,
    /// Shards that know this stream.
    open: HashMap<(RunId, ShardId), ShardHandle>,
}

impl Frames {
    async fn read(&mut self, mut body: Body) -> Result<(), Status> {
        let mut reader = Reader::<PushFrame>::new(FRAME_BYTES_MAX);
        let mut arriving = None;
        // There is room already for a frame that is gathered whole before it is taken apart.
        let mut has_room = false;
        let mut turn = Turn::default();
        while let Some(frame) = body.frame().await {
            let Ok(mut bytes) = frame?.into_data() else {
                continue;
            };
            while let Some(part) = reader.next(&mut bytes).map_err(refuse::no_frame)? {
                let (run, entry, incoming) = match part {
                    Part::Head(frame, bulk) => {
                        let (run, entry) = self.run(&frame)?;
                        let block = BlockId(frame.block);
                        let (length, form) = entry.block(block);
                        if !std::mem::take(&mut has_room) && !self.make_room(length).await {
                            return Ok(());
                        }
                        match Incoming::new(frame, bulk, (length, form)) {
                            Ok(incoming) => (run, entry, incoming),
                            // Nothing behind it is read: the stream ends with the refusal.
                            Err(refusal) => return self.refuse(&run, &entry, block, refusal).await,
                        }
                    }
                    Part::Bulk(piece) => {
                        let (run, entry, mut incoming): (RunId, RunEntry, Incoming) =
                            arriving.take().expect("a head came before");
                        incoming.take(&piece);
                        (run, entry, incoming)
                    }
                };
                if !incoming.is_complete() {
                    arriving = Some((run, entry, incoming));
                    continue;
                }
                let (block, bytes) = (incoming.block(), incoming.bulk());
                let message = match incoming.finish() {
                    Ok(push) => Message::Push(push, bytes, self.stream),
                    // The shard counts it, and answers the frames before it first.
                    Err(refusal) => Message::Malformed(refusal, self.stream),
                };
                let shard = self.shard(&run, &entry, block).await?;
                shard.send(message).await.map_err(refuse::gone)?;
                turn.spend(bytes as u64).await;
            }
            if let Some((frame, bytes)) = reader.beginning() {
                let (run, entry) = self.run(&frame)?;
                let block = BlockId(frame.block);
                let (length, form) = entry.block(block);
                if !self.make_room(length).await {
                    return Ok(());
                }
                has_room = true;
                if let Some(refusal) = too_long(block, bytes, (length, form)) {
                    return self.refuse(&run, &entry, block, refusal).await;
                }
            }
        }
        if reader.between_messages() {
            Ok(())
        } else {
            let text = "the stream ended inside a message".into();
            Err(refuse::no_frame(FrameError::Unreadable(text)))
        }
    }

    /// Has the shard count a frame that is refused before its values have come; it answers those before it first.
    async fn refuse(
        &mut self,
        run: &RunId,
        entry: &RunEntry,
        block: BlockId,
        refusal: Refusal,
    ) -> Result<(), Status> {
        let shard = self.shard(run, entry, block).await?;
        let refused = Message::Malformed(refusal, self.stream);
        shard.send(refused).await.map_err(refuse::gone)
    }

    /// Waits until a block of so many values may be in flight; `false` if the client has gone.
    async fn make_room(&self, length: usize) -> bool {
        tokio::select! {
            room = self.room.acquire_many(room_of(length)) => {
                // Given back with the answer.
                room.expect("never closed").forget();
                true
            }
            () = self.answers.closed() => false,
        }
    }

    /// The run of a frame, of which its sender may speak as it does.
    fn run(&mut self, frame: &PushFrame) -> Result<(RunId, RunEntry), Status> {
        let (run, entry) = match self.runs.get(&frame.run) {
            Some(known) => known.clone(),
            None => {
                let run = convert::run_id(&frame.run).map_err(refuse::malformed)?;
                self.peer.belongs_to(&run)?;
                let entry = self.registry.find(&run).map_err(refuse::refusal)?;
                let known = (run, entry);
                self.runs.insert(frame.run.clone(), known.clone());
                known
            }
        };
        // Who only pulls is nobody in particular.
        if frame.incarnation != 0 {
            self.peer.speaks_for(&run, GroupId(frame.group))?;
        }
        Ok((run, entry))
    }

    /// The shard of a block. A block that there is not is refused by whichever shard is here, which
    /// counts it.
    async fn shard(
        &mut self,
        run: &RunId,
        entry: &RunEntry,
        block: BlockId,
    ) -> Result<ShardHandle, Status> {
        let shard = match entry.placement.shard(block) {
            Some(shard) => shard,
            None => {
                let mut held = self.registry.shards(run).into_iter();
                let first = held.next().map(|(shard, _)| shard);
                first.ok_or_else(|| refuse::refusal(Refusal::UnknownBlock(block)))?
            }
        };
        let key = (run.clone(), shard);
        if let Some(handle) = self.open.get(&key) {
            return Ok(handle.clone());
        }
        let handle = self.registry.shard(run, shard).map_err(refuse::refusal)?;
        let open = Message::Open(self.stream, self.answers.clone());
        handle.send(open).await.map_err(refuse::gone)?;
        self.open.insert(key, handle.clone());
        Ok(handle)
    }
}

/// Why a frame of so many bytes is refused that is to be gathered whole: no frame for its block is so long.
fn too_long(block: BlockId, bytes: usize, (length, form): (usize, Compression)) -> Option<Refusal> {
    if length == 0 {
        return Some(Refusal::UnknownBlock(block));
    }
    // Initial values are f32 in every run.
    let values = Compression::None.encoded_max(length);
    let most = values.max(form.encoded_max(length));
    (bytes > most + FRAME_HEAD_BYTES_MAX).then_some(Refusal::WrongBytes {
        block,
        values: length,
        expected: most,
        given: bytes,
    })
}

fn encode(reply: Reply) -> Framed {
    let (verdict, repeated_verdict, delay) = match reply.answer {
        Answer::Decided(decided, repeated) => {
            let verdict = verdict_to_wire(decided.verdict);
            (verdict, repeated, decided.delay)
        }
        Answer::Read => (v1::Verdict::Read, false, 0),
        Answer::Created => (v1::Verdict::Created, false, 0),
    };
    let difference = matches!(reply.fresh, Fresh::Difference(..));
    let (form, values) = match reply.fresh {
        Fresh::Nothing => (Compression::None, Bytes::new()),
        Fresh::Values(values) => (Compression::None, convert::bulk(values)),
        Fresh::Difference(form, encoded) => (form, encoded.into()),
    };
    telemetry::pulled(values.len());
    let head = PullFrame {
        block: reply.block.0,
        clock: reply.clock.0,
        verdict: verdict.into(),
        repeated_verdict,
        version: reply.version,
        delay,
        lag: reply.lag,
        waited_us: reply.waited_us,
        samples_applied: reply.samples_applied,
        stop: reply.stop,
        dtype: convert::dtype(form).into(),
        difference,
        lineage: reply.lineage.0,
        next_clock: reply.next.0,
        values: Bytes::new(),
    };
    Framed::new(&head, values)
}
