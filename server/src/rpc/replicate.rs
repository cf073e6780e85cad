//! The stream on which a copy takes records: each is handed to its shard, and confirmed when it has
//! been applied. Nothing of a record is kept before its run and shard are known here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tradewind_common::{RunId, ShardId};
use tradewind_proto::convert;
use tradewind_proto::frame::{FrameError, Framed, Outgoing, Part, Reader};
use tradewind_proto::limits::RECORD_BYTES_MAX;
use tradewind_proto::v1;

use crate::admission::Peer;
use crate::budget::{Budget, Taken};
use crate::limits::Limit;
use crate::record::{Incoming, most_of};
use crate::refuse;
use crate::registry::{Registry, RunEntry};
use crate::shard_task::ShardHandle;
use tradewind_core::log::Confirm;

/// Confirmations on their way into the connection.
const CONFIRMS_MAX: usize = 64;

/// A record of which nothing has come between two looks is given up with its stream, and its room comes back. A
/// primary that is there sends all of it at once.
const STALLED: Duration = Duration::from_secs(30);

/// Serves one stream: reads `body`, and answers with the body that is returned.
pub(crate) fn replicate(registry: Arc<Registry>, peer: Peer, body: Body) -> Body {
    let (out, confirms) = mpsc::channel(CONFIRMS_MAX);
    // Not supervised: what breaks off here breaks this stream, and the primary begins another one.
    tokio::spawn(async move {
        let mut records = Records {
            budget: registry.surroundings().arriving.clone(),
            registry,
            peer,
            shards: HashMap::new(),
        };
        if let Err(status) = records.read(body, &out).await {
            let _ = out.send(Err(status)).await;
        }
    });
    Body::new(Outgoing::response(ReceiverStream::new(confirms)))
}

struct Records {
    registry: Arc<Registry>,
    peer: Peer,
    budget: Arc<Budget>,
    shards: HashMap<(String, ShardId), (RunEntry, ShardHandle)>,
}

/// A record on its way in.
struct Arriving {
    incoming: Incoming,
    shard: ShardHandle,
    /// Until it has been applied.
    _room: Taken,
}

impl Records {
    async fn read(
        &mut self,
        mut body: Body,
        out: &mpsc::Sender<Result<Framed, Status>>,
    ) -> Result<(), Status> {
        let mut reader = Reader::<v1::Record>::new(RECORD_BYTES_MAX);
        let mut arriving: Option<Arriving> = None;
        // For a record that is gathered whole before it is taken apart.
        let mut whole: Option<Taken> = None;
        let mut looks = interval(STALLED);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut moved = true;
        loop {
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                _ = looks.tick() => {
                    if !std::mem::take(&mut moved) && !reader.between_messages() {
                        self.budget.notices().reached(Limit::Stalled);
                        return Err(Status::unavailable("nothing more of a record has come"));
                    }
                    continue;
                }
            };
            let Some(frame) = frame else { break };
            moved = true;
            let Ok(mut bytes) = frame?.into_data() else {
                continue;
            };
            while let Some(part) = reader.next(&mut bytes).map_err(refuse::no_frame)? {
                let taken = match part {
                    Part::Head(head, bulk) => self.begin(head, bulk, whole.take()).await?,
                    Part::Bulk(piece) => {
                        let mut taken = arriving.take().expect("a head came before");
                        taken.incoming.take(&piece);
                        taken
                    }
                };
                if !taken.incoming.is_complete() {
                    arriving = Some(taken);
                    continue;
                }
                let record = taken.incoming.finish().map_err(refuse::refusal)?;
                let confirmed = taken.shard.record(record).await.map_err(refuse::gone)?;
                let confirm = encode(confirmed.map_err(refuse::refusal)?);
                if out.send(Ok(confirm)).await.is_err() {
                    return Ok(());
                }
            }
            if let Some((head, length)) = reader.beginning() {
                self.find(&head.run, ShardId(head.shard))?;
                whole = Some(self.budget.take(length).await.map_err(refuse::refusal)?);
            }
        }
        if reader.between_messages() {
            Ok(())
        } else {
            let text = "the stream ended inside a message".into();
            Err(refuse::no_frame(FrameError::Unreadable(text)))
        }
    }

    /// Looks up whom a record is for, and takes room for it.
    async fn begin(
        &mut self,
        head: v1::Record,
        bulk: usize,
        whole: Option<Taken>,
    ) -> Result<Arriving, Status> {
        let (entry, shard) = self.find(&head.run, ShardId(head.shard))?;
        let length = |block| entry.block(block).0;
        most_of(&head, bulk, length).map_err(refuse::refusal)?;
        let shard = shard.clone();
        let room = match whole {
            Some(room) => room,
            None => self.budget.take(bulk).await.map_err(refuse::refusal)?,
        };
        Ok(Arriving {
            shard,
            incoming: Incoming::new(head, bulk),
            _room: room,
        })
    }

    fn find(&mut self, run: &str, shard: ShardId) -> Result<&(RunEntry, ShardHandle), Status> {
        self.peer.is_let_in()?;
        match self.shards.entry((run.to_owned(), shard)) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let id: RunId = convert::run_id(run).map_err(refuse::malformed)?;
                let handle = self.registry.shard(&id, shard).map_err(refuse::refusal)?;
                let entry = self.registry.find(&id).map_err(refuse::refusal)?;
                Ok(new.insert((entry, handle)))
            }
        }
    }
}

fn encode(confirm: Confirm) -> Framed {
    let confirm = v1::Confirm {
        log: confirm.log.0,
        fill: confirm.fill.0,
        seq: confirm.seq,
    };
    Framed::new(&confirm, bytes::Bytes::new())
}
