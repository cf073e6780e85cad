//! The shard service: frames to shard tasks, answers back.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, RunId};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::v1::{
    self, DType, PullFrame, PushFrame, ShardStatusReply, ShardStatusRequest, push_frame,
};

use super::refuse;
use crate::core::ReplyTo;
use crate::core::block::{Gradient, Verdict};
use crate::core::refusal::Refusal;
use crate::core::shard::{Action, Answer, Push, Reply};
use crate::registry::Registry;
use crate::shard_task::{Answers, Message, ShardHandle};
use crate::telemetry;

/// Unanswered frames of one stream; the stream is not read while there are as many. All groups
/// send blocks in one order, so the first undecided block is in every group's window and `sync`
/// cannot deadlock on it.
pub const FRAMES_IN_FLIGHT_MAX: usize = 256;

/// The shard service of one server.
pub struct ShardService {
    registry: Arc<Registry>,
    streams: AtomicU64,
}

impl ShardService {
    /// The service over the shards of `registry`.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            streams: AtomicU64::new(0),
        }
    }
}

#[tonic::async_trait]
impl v1::shard_server::Shard for ShardService {
    type ExchangeStream = Pin<Box<dyn Stream<Item = Result<PullFrame, Status>> + Send>>;

    async fn exchange(
        &self,
        request: Request<Streaming<PushFrame>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let (answers, replies) = mpsc::unbounded_channel();
        let (ended, end) = oneshot::channel();
        let permits = Arc::new(Semaphore::new(FRAMES_IN_FLIGHT_MAX));
        let mut reader = Reader {
            registry: self.registry.clone(),
            stream: ReplyTo(self.streams.fetch_add(1, Ordering::Relaxed)),
            answers,
            permits: permits.clone(),
            open: HashMap::new(),
        };
        tokio::spawn(async move {
            telemetry::streams(1.0);
            let _ = ended.send(reader.read(request.into_inner()).await);
            telemetry::streams(-1.0);
        });
        let (out, frames) = mpsc::channel(FRAMES_OUT_MAX);
        tokio::spawn(answer(replies, end, permits, out));
        Ok(Response::new(Box::pin(ReceiverStream::new(frames))))
    }

    async fn shard_status(
        &self,
        request: Request<ShardStatusRequest>,
    ) -> Result<Response<ShardStatusReply>, Status> {
        let run = convert::run_id(&request.into_inner().run).map_err(refuse::malformed)?;
        let shard = self.registry.find(&run).map_err(refuse::refusal)?.handle;
        let status = shard.status().await.map_err(refuse::gone)?;
        let counters = status.counters;
        Ok(Response::new(ShardStatusReply {
            server: self.registry.server().0,
            generation: status.generation,
            bytes: status.bytes,
            blocks: status.blocks,
            version_min: status.versions.0,
            version_max: status.versions.1,
            applied: counters.applied,
            skipped: counters.skipped,
            dropped: counters.dropped,
            duplicate: counters.duplicate,
            refused: counters.refused,
            updates: counters.updates,
            delays: counters.delays,
            digest: status.digest.to_vec().into(),
        }))
    }
}

/// Frames out of a stream wait here when the client reads slowly.
const FRAMES_OUT_MAX: usize = 4;

/// Sends answers back until the client is gone, a frame was refused, or the client has ended its
/// side and every frame has its answer.
async fn answer(
    mut replies: mpsc::UnboundedReceiver<Result<Reply, Refusal>>,
    mut end: oneshot::Receiver<Result<(), Status>>,
    permits: Arc<Semaphore>,
    out: mpsc::Sender<Result<PullFrame, Status>>,
) {
    let mut reading = true;
    while reading || permits.available_permits() < FRAMES_IN_FLIGHT_MAX {
        tokio::select! {
            biased;
            () = out.closed() => return,
            Some(reply) = replies.recv() => {
                permits.add_permits(1);
                let refused = reply.is_err();
                let frame = reply.map(encode).map_err(refuse::refusal);
                if out.send(frame).await.is_err() || refused {
                    return;
                }
            }
            ended = &mut end, if reading => match ended {
                Ok(Err(status)) => {
                    let _ = out.send(Err(status)).await;
                    return;
                }
                _ => reading = false,
            },
        }
    }
}

struct Reader {
    registry: Arc<Registry>,
    stream: ReplyTo,
    answers: Answers,
    permits: Arc<Semaphore>,
    /// Shards that know this stream.
    open: HashMap<RunId, ShardHandle>,
}

impl Reader {
    async fn read(&mut self, mut frames: Streaming<PushFrame>) -> Result<(), Status> {
        while let Some(frame) = frames.message().await.map_err(refuse::unreadable)? {
            // Given back with the answer.
            let permit = tokio::select! {
                permit = self.permits.acquire() => permit.expect("never closed"),
                () = self.answers.closed() => return Ok(()),
            };
            permit.forget();
            let run = convert::run_id(&frame.run).map_err(refuse::malformed)?;
            let shard = self.shard(run).await?;
            let message = match decode(frame) {
                Ok(push) => Message::Push(push, self.stream),
                // The shard counts it, and answers the frames before it first.
                Err(Malformed { field, problem }) => {
                    Message::Malformed(Refusal::Malformed { field, problem }, self.stream)
                }
            };
            shard.send(message).await.map_err(refuse::gone)?;
        }
        Ok(())
    }

    async fn shard(&mut self, run: RunId) -> Result<ShardHandle, Status> {
        if let Some(shard) = self.open.get(&run) {
            return Ok(shard.clone());
        }
        let shard = self.registry.find(&run).map_err(refuse::refusal)?.handle;
        let open = Message::Open(self.stream, self.answers.clone());
        shard.send(open).await.map_err(refuse::gone)?;
        self.open.insert(run, shard.clone());
        Ok(shard)
    }
}

fn decode(frame: PushFrame) -> Result<Push, Malformed> {
    let malformed = |field, problem: &str| Malformed {
        field,
        problem: problem.into(),
    };
    let action = frame
        .action
        .ok_or_else(|| malformed("action", "is missing"))?;
    let clocked = matches!(
        action,
        push_frame::Action::Gradient(_) | push_frame::Action::Skip(_)
    );
    if !clocked && frame.clock != 0 {
        return Err(malformed("clock", "is not 0, as for pulls and creations"));
    }
    let action = match action {
        push_frame::Action::Gradient(gradient) => {
            telemetry::pushed(gradient.values.len());
            Action::Contribute(Some(Gradient {
                values: convert::values(gradient.dtype, &gradient.values)?,
                samples: gradient.samples,
                pulled_version: gradient.pulled_version,
                samples_seen: gradient.samples_seen,
            }))
        }
        push_frame::Action::Skip(_) => Action::Contribute(None),
        push_frame::Action::Pull(_) => Action::Pull,
        push_frame::Action::Create(create) => {
            telemetry::pushed(create.values.len());
            Action::Create(convert::values(create.dtype, &create.values)?)
        }
    };
    Ok(Push {
        group: GroupId(frame.group),
        incarnation: Incarnation(frame.incarnation),
        clock: Clock(frame.clock),
        block: BlockId(frame.block),
        action,
    })
}

fn encode(reply: Reply) -> PullFrame {
    let (verdict, repeated_verdict, delay) = match reply.answer {
        Answer::Decided(decided, repeated) => {
            let verdict = match decided.verdict {
                Verdict::Applied => v1::Verdict::Applied,
                Verdict::Dropped => v1::Verdict::Dropped,
                Verdict::Skipped => v1::Verdict::Skipped,
            };
            (verdict, repeated, decided.delay)
        }
        Answer::Read => (v1::Verdict::Read, false, 0),
        Answer::Created => (v1::Verdict::Created, false, 0),
    };
    telemetry::pulled(reply.values.len() * 4);
    PullFrame {
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
        dtype: DType::DtypeF32.into(),
        values: convert::bulk(reply.values),
    }
}
