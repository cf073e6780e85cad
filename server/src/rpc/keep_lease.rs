//! The stream of a rank's heartbeats. When it breaks, the coordinator hears of it at once; when this
//! incarnation of the group is over, the rank does.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Status, Streaming};
use tradewind_common::{GroupId, Incarnation, Rank, RunId};
use tradewind_proto::convert;
use tradewind_proto::holding::Holding;
use tradewind_proto::v1;

use crate::admission::Peer;
use crate::coordinator_task::{CoordinatorHandle, Message, Stream as BeatStream};
use crate::limits::Notices;
use crate::refuse;
use tradewind_core::run::{Beat, Beaten, Caller};

/// Replies on their way into a connection.
const REPLIES_MAX: usize = 4;

/// Boxed, because a channel keeps room for 32 of them, for each rank.
type Reply = Result<Box<v1::BeatReply>, Status>;

/// Holds the lease of the rank that speaks first on the stream.
pub(super) async fn keep_lease(
    coordinator: CoordinatorHandle,
    notices: Arc<Notices>,
    request: Request<Streaming<v1::Beat>>,
) -> Result<impl Stream<Item = Result<v1::BeatReply, Status>> + Send + use<>, Status> {
    let peer = Peer::of(request.extensions());
    let mut beats = request.into_inner();
    let first = beats.message().await.map_err(refuse::unreadable)?;
    let first = first.ok_or_else(|| Status::invalid_argument("a stream without a beat"))?;
    let run = convert::run_id(&first.run).map_err(refuse::malformed)?;
    peer.speaks_as(&run, GroupId(first.group), Rank(first.rank))?;
    let mut keeper = Keeper {
        stream: BeatStream {
            number: coordinator.number_stream(),
            look: Arc::new(Notify::new()),
        },
        run,
        caller: Caller {
            group: GroupId(first.group),
            incarnation: Incarnation(first.incarnation),
            rank: Rank(first.rank),
        },
        coordinator,
        notices,
        renewals_failed: 0,
    };
    // A refusal of the first beat is the answer of the call.
    let beaten = keeper.beat(&first).await?;
    let (out, replies) = mpsc::channel(REPLIES_MAX);
    // Not supervised: what breaks off here breaks this stream, and the rank begins another one.
    tokio::spawn(async move {
        if let Err(status) = keeper.keep(beats, beaten, &out).await {
            let _ = out.send(Err(status)).await;
        }
        let Keeper {
            stream,
            run,
            caller,
            coordinator,
            ..
        } = keeper;
        let lost = Message::RankLost(run, caller, stream.number);
        coordinator.tell(lost).await;
    });
    Ok(ReceiverStream::new(replies).map(|reply| reply.map(|reply| *reply)))
}

struct Keeper {
    stream: BeatStream,
    run: RunId,
    caller: Caller,
    coordinator: CoordinatorHandle,
    notices: Arc<Notices>,
    /// As the last beat says it.
    renewals_failed: u32,
}

impl Keeper {
    async fn beat(&mut self, beat: &v1::Beat) -> Result<Beaten, Status> {
        let speed = beat.steps_per_second;
        if !(speed.is_finite() && speed >= 0.0) {
            let text = format!("steps_per_second is {speed}, not a finite number of at least 0");
            return Err(Status::invalid_argument(text));
        }
        let failed = beat.renewals_failed;
        if failed > self.renewals_failed {
            let Caller { group, rank, .. } = self.caller;
            self.notices.not_renewed(&format!(
                "the certificate of rank {rank} of group {group} was not renewed, {failed} times in all; its log says why"
            ));
        }
        self.renewals_failed = failed;
        let beat = Beat {
            clock: convert::clock("clock", beat.clock).map_err(refuse::malformed)?,
            steps_per_second: speed,
        };
        let (run, caller) = (self.run.clone(), self.caller);
        let stream = self.stream.clone();
        let ask = |reply| Message::Heartbeat(run, caller, (stream, beat), reply);
        self.coordinator.call(ask).await.map_err(refuse::call)
    }

    async fn keep(
        &mut self,
        mut beats: Streaming<v1::Beat>,
        mut beaten: Beaten,
        out: &mpsc::Sender<Reply>,
    ) -> Result<(), Status> {
        let mut published = self.coordinator.published();
        let mut told: Option<Arc<Holding>> = None;
        // Every beat is answered: the rank counts its lease from there.
        let mut owed = true;
        loop {
            let holding = published.borrow_and_update().get(&self.run).cloned();
            let news = match (&told, &holding) {
                (Some(told), Some(holding)) => !Arc::ptr_eq(told, holding),
                (None, holding) => holding.is_some(),
                (Some(_), None) => false,
            };
            if owed || news {
                let reply = v1::BeatReply {
                    generation: beaten.generation.0,
                    holding: holding.as_deref().filter(|_| news).map(Into::into),
                    steps_per_second_max: beaten.steps_per_second_max,
                    leave: beaten.leave,
                };
                if out.send(Ok(Box::new(reply))).await.is_err() {
                    break;
                }
                told = holding;
            }
            owed = false;
            tokio::select! {
                beat = beats.message() => match beat {
                    Ok(Some(beat)) => {
                        beaten = self.beat(&beat).await?;
                        owed = true;
                    }
                    // It has ended its side, or the connection broke.
                    Ok(None) | Err(_) => break,
                },
                // Somebody else holds a shard.
                changed = published.changed() => if changed.is_err() {
                    return Err(Status::unavailable("the coordinator is shutting down"));
                },
                // Is this incarnation still the group's?
                () = self.stream.look.notified() => {
                    let (run, caller) = (self.run.clone(), self.caller);
                    let ask = |reply| Message::Check(run, caller, reply);
                    beaten.generation = self.coordinator.call(ask).await.map_err(refuse::call)?;
                }
                () = out.closed() => break,
            }
        }
        Ok(())
    }
}

/// What the service trait calls it.
pub(super) type KeepLeaseStream =
    std::pin::Pin<Box<dyn Stream<Item = Result<v1::BeatReply, Status>> + Send>>;
