//! One stream of an exchange: a connection of its own, frames up, answers down.

use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;
use tradewind_proto::frame::{Framed, Outgoing, Part, Reader};
use tradewind_proto::limits::FRAME_BYTES_MAX;
use tradewind_proto::v1::PullFrame;
use tradewind_proto::v1::shard_server::SERVICE_NAME;

use crate::network::Reach;

/// Frames between the exchange and the connection: one is sent while the next is made, and both
/// are still in the cache when they are.
const FRAMES_OUT_MAX: usize = 2;

/// A stream to a server.
pub(crate) struct Stream {
    /// Where frames go.
    pub(crate) up: mpsc::Sender<Result<Framed, Status>>,
    pub(crate) down: Down,
}

/// The side on which answers come.
pub(crate) struct Down {
    body: Body,
    reader: Reader<PullFrame>,
    bytes: bytes::Bytes,
}

impl Stream {
    /// Connects to host:port and opens the stream.
    pub(crate) async fn open(reach: &Reach, address: &str) -> Result<Self, Status> {
        let mut channel = reach.connect_for_exchanges(address).await?;
        let (up, frames) = mpsc::channel(FRAMES_OUT_MAX);
        let request = http::Request::post(format!("http://{address}/{SERVICE_NAME}/Exchange"))
            .header(
                http::header::CONTENT_TYPE,
                tonic::metadata::GRPC_CONTENT_TYPE,
            )
            .header(http::header::TE, "trailers")
            .body(Body::new(Outgoing::request(ReceiverStream::new(frames))))
            .map_err(|error| Status::internal(error.to_string()))?;
        let failed = |error: tonic::transport::Error| Status::from_error(error.into());
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .map_err(failed)?;
        let response = channel.call(request).await.map_err(failed)?;
        let (head, body) = response.into_parts();
        if let Some(status) = Status::from_header_map(&head.headers) {
            return Err(status);
        }
        if head.status != http::StatusCode::OK {
            let text = format!("the server answered with HTTP status {}", head.status);
            return Err(Status::unavailable(text));
        }
        let down = Down {
            body: Body::new(body),
            reader: Reader::new(FRAME_BYTES_MAX),
            bytes: bytes::Bytes::new(),
        };
        Ok(Self { up, down })
    }
}

impl Down {
    /// The next part of an answer. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Part<PullFrame>, Status> {
        loop {
            let read = self.reader.next(&mut self.bytes);
            if let Some(part) = read.map_err(|error| Status::internal(error.to_string()))? {
                return Ok(part);
            }
            match self.body.frame().await {
                None => return Err(Status::unavailable("the server ended the stream")),
                Some(frame) => match frame?.into_data() {
                    Ok(bytes) => self.bytes = bytes,
                    Err(trailers) => {
                        let trailers = trailers.into_trailers().unwrap_or_default();
                        let status = Status::from_header_map(&trailers);
                        return Err(status
                            .filter(|status| status.code() != Code::Ok)
                            .unwrap_or_else(|| {
                                Status::unavailable("the server ended the stream")
                            }));
                    }
                },
            }
        }
    }
}
