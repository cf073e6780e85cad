//! A primary's ways to the copies of its shard: a connection and a task each, which send records and
//! take confirmations for as long as the copy is one.

use std::collections::HashMap;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tower_service::Service;
use tradewind_common::{Generation, RunId, ServerId, ShardId};
use tradewind_process::supervise;
use tradewind_proto::auth::Credentials;
use tradewind_proto::frame::{Outgoing, Part, Reader};
use tradewind_proto::limits::{HTTP2_FRAME_BYTES, WINDOW_BYTES};
use tradewind_proto::v1;
use tradewind_proto::v1::shard_server::SERVICE_NAME;

use super::Message;
use crate::record::encode;
use tradewind_core::log::{Confirm, Record};

/// Pause before a copy is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// How long a connection to a copy may take.
const CONNECT: Duration = Duration::from_secs(2);

/// A copy, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Its server.
    pub server: ServerId,
    /// Since when it is a copy.
    pub since: Generation,
    /// host:port
    pub address: String,
}

/// The ways to the copies of one shard. They end when it is dropped.
pub(crate) struct Copies {
    name: (RunId, ShardId),
    credentials: Credentials,
    /// Weak, so that a shard that nobody speaks to any more ends.
    mailbox: mpsc::WeakSender<Message>,
    ways: HashMap<ServerId, Way>,
}

struct Way {
    copy: Copy,
    task: AbortHandle,
    /// Where records go while the connection is there.
    records: Option<mpsc::UnboundedSender<Record>>,
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Copies {
    pub(crate) fn new(
        name: (RunId, ShardId),
        credentials: Credentials,
        mailbox: mpsc::WeakSender<Message>,
    ) -> Self {
        Self {
            name,
            credentials,
            mailbox,
            ways: HashMap::new(),
        }
    }

    /// Has ways to these copies and no others.
    pub(crate) fn follow(&mut self, copies: Vec<Copy>) {
        self.ways.retain(|_, way| copies.contains(&way.copy));
        for copy in copies {
            if self.ways.contains_key(&copy.server) {
                continue;
            }
            let way = keep(
                self.name.clone(),
                copy.clone(),
                self.credentials.clone(),
                self.mailbox.clone(),
            );
            let (run, shard) = &self.name;
            let what = format!(
                "the way to copy {} of shard {shard} of run {run}",
                copy.server
            );
            // It ends with the shard, or when it is not wanted any more.
            let task = supervise(what, way).abort_handle();
            let way = Way {
                copy: copy.clone(),
                task,
                records: None,
            };
            self.ways.insert(copy.server, way);
        }
    }

    /// A way has been made anew. `false` if it is not wanted any more.
    pub(crate) fn linked(
        &mut self,
        copy: ServerId,
        since: Generation,
        records: mpsc::UnboundedSender<Record>,
    ) -> bool {
        match self.ways.get_mut(&copy) {
            Some(way) if way.copy.since == since => {
                way.records = Some(records);
                true
            }
            _ => false,
        }
    }

    /// Sends a record, if the way is there; whoever makes it anew asks for what is missing. The
    /// queue is bounded by what the shard leaves unconfirmed.
    pub(crate) fn send(&mut self, to: ServerId, record: Record) {
        if let Some(way) = self.ways.get_mut(&to)
            && let Some(records) = &way.records
            && records.send(record).is_err()
        {
            way.records = None;
        }
    }
}

/// Keeps the way to one copy for ever.
async fn keep(
    name: (RunId, ShardId),
    copy: Copy,
    credentials: Credentials,
    mailbox: mpsc::WeakSender<Message>,
) {
    loop {
        let Err(status) = replicate(&name, &copy, &credentials, &mailbox).await else {
            return;
        };
        tracing::debug!(
            run = %name.0, shard = %name.1, copy = %copy.server,
            "no way to the copy: {}; trying again", status.message()
        );
        tokio::time::sleep(RETRY).await;
    }
}

/// One connection, until it breaks; `Ok` when the shard has ended.
async fn replicate(
    name: &(RunId, ShardId),
    copy: &Copy,
    credentials: &Credentials,
    mailbox: &mpsc::WeakSender<Message>,
) -> Result<(), Status> {
    let failed = |error: tonic::transport::Error| Status::from_error(error.into());
    let channel = Endpoint::try_from(format!("http://{}", copy.address))
        .map_err(failed)?
        .connect_timeout(CONNECT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(HTTP2_FRAME_BYTES)
        .connect_with_connector(credentials.connector())
        .await
        .map_err(failed)?;
    let mut channel = InterceptedService::new(channel, credentials.show());
    let (records, queue) = mpsc::unbounded_channel::<Record>();
    let (run, shard) = name.clone();
    let frames =
        UnboundedReceiverStream::new(queue).map(move |record| Ok(encode((&run, shard), record)));
    let uri = format!("http://{}/{SERVICE_NAME}/Replicate", copy.address);
    let request = http::Request::post(uri)
        .header(
            http::header::CONTENT_TYPE,
            tonic::metadata::GRPC_CONTENT_TYPE,
        )
        .header(http::header::TE, "trailers")
        .body(Body::new(Outgoing::request(frames)))
        .map_err(|error| Status::internal(error.to_string()))?;
    std::future::poll_fn(|context| channel.poll_ready(context))
        .await
        .map_err(failed)?;
    let Some(own) = mailbox.upgrade() else {
        return Ok(());
    };
    let linked = Message::Linked(copy.server, copy.since, records);
    if own.send(linked).await.is_err() {
        return Ok(());
    }
    drop(own);
    let response = channel.call(request).await.map_err(failed)?;
    let (head, body) = response.into_parts();
    if let Some(status) = Status::from_header_map(&head.headers)
        && status.code() != Code::Ok
    {
        return Err(status);
    }
    confirmations(Body::new(body), copy, mailbox).await
}

/// Hands confirmations over until the stream ends, which is an error unless the shard has ended.
async fn confirmations(
    mut body: Body,
    copy: &Copy,
    mailbox: &mpsc::WeakSender<Message>,
) -> Result<(), Status> {
    let mut reader = Reader::<v1::Confirm>::new(1024);
    while let Some(frame) = body.frame().await {
        let mut bytes = match frame?.into_data() {
            Ok(bytes) => bytes,
            Err(trailers) => {
                let trailers = trailers.into_trailers().unwrap_or_default();
                let status = Status::from_header_map(&trailers);
                return Err(
                    status.unwrap_or_else(|| Status::unavailable("the copy ended the stream"))
                );
            }
        };
        let unreadable =
            |error: tradewind_proto::frame::FrameError| Status::internal(error.to_string());
        while let Some(part) = reader.next(&mut bytes).map_err(unreadable)? {
            let Part::Head(confirm, _) = part else {
                continue;
            };
            let confirm = Confirm {
                copy: copy.server,
                log: Generation(confirm.log),
                fill: Generation(confirm.fill),
                seq: confirm.seq,
            };
            let Some(own) = mailbox.upgrade() else {
                return Ok(());
            };
            if own.send(Message::Confirm(confirm)).await.is_err() {
                return Ok(());
            }
        }
    }
    Err(Status::unavailable("the copy ended the stream"))
}
