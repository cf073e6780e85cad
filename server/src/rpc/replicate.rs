//! The stream on which a copy takes records: each is handed to its shard, and confirmed when it has
//! been applied.

use std::collections::HashMap;
use std::sync::Arc;

use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tradewind_common::{RunId, ShardId};
use tradewind_proto::convert;
use tradewind_proto::frame::{FrameError, Framed, Outgoing, Part, Reader};
use tradewind_proto::limits::RECORD_BYTES_MAX;
use tradewind_proto::v1;

use crate::record::Incoming;
use crate::refuse;
use crate::registry::Registry;
use crate::shard_task::ShardHandle;
use tradewind_core::log::Confirm;

/// Confirmations on their way into the connection.
const CONFIRMS_MAX: usize = 64;

/// Serves one stream: reads `body`, and answers with the body that is returned.
pub fn replicate(registry: Arc<Registry>, body: Body) -> Body {
    let (out, confirms) = mpsc::channel(CONFIRMS_MAX);
    // Not supervised: what breaks off here breaks this stream, and the primary begins another one.
    tokio::spawn(async move {
        if let Err(status) = read(&registry, body, &out).await {
            let _ = out.send(Err(status)).await;
        }
    });
    Body::new(Outgoing::response(ReceiverStream::new(confirms)))
}

async fn read(
    registry: &Registry,
    mut body: Body,
    out: &mpsc::Sender<Result<Framed, Status>>,
) -> Result<(), Status> {
    let mut reader = Reader::<v1::Record>::new(RECORD_BYTES_MAX);
    let mut shards = HashMap::new();
    let mut arriving: Option<Incoming> = None;
    while let Some(frame) = body.frame().await {
        let Ok(mut bytes) = frame?.into_data() else {
            continue;
        };
        while let Some(part) = reader.next(&mut bytes).map_err(refuse::no_frame)? {
            let incoming = match part {
                Part::Head(head, bulk) => Incoming::new(head, bulk),
                Part::Bulk(piece) => {
                    let mut incoming = arriving.take().expect("a head came before");
                    incoming.take(&piece);
                    incoming
                }
            };
            if !incoming.is_complete() {
                arriving = Some(incoming);
                continue;
            }
            let (run, shard) = incoming.shard();
            let handle = find(registry, &mut shards, run, shard)?;
            let record = incoming.finish().map_err(refuse::refusal)?;
            let confirmed = handle.record(record).await.map_err(refuse::gone)?;
            let confirm = encode(confirmed.map_err(refuse::refusal)?);
            if out.send(Ok(confirm)).await.is_err() {
                return Ok(());
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

fn find(
    registry: &Registry,
    known: &mut HashMap<(String, ShardId), ShardHandle>,
    run: &str,
    shard: ShardId,
) -> Result<ShardHandle, Status> {
    if let Some(handle) = known.get(&(run.to_owned(), shard)) {
        return Ok(handle.clone());
    }
    let id: RunId = convert::run_id(run).map_err(refuse::malformed)?;
    let handle = registry.shard(&id, shard).map_err(refuse::refusal)?;
    known.insert((run.to_owned(), shard), handle.clone());
    Ok(handle)
}

fn encode(confirm: Confirm) -> Framed {
    let confirm = v1::Confirm {
        log: confirm.log.0,
        fill: confirm.fill.0,
        seq: confirm.seq,
    };
    Framed::new(&confirm, bytes::Bytes::new())
}
