//! The shard service: the calls that the `.proto` lists, dispatched by hand, because the values of
//! an exchange do not go through prost.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tradewind_common::{Clock, GroupId, ShardId};
use tradewind_proto::convert;
use tradewind_proto::limits::FRAME_BYTES_MAX;
use tradewind_proto::v1::shard_server::SERVICE_NAME;
use tradewind_proto::v1::{DecidedClock, ShardStatusReply, ShardStatusRequest};

use super::exchange::exchange;
use super::replicate::replicate;
use crate::admission::Peer;
use crate::refuse;
use crate::registry::Registry;
use tradewind_core::ReplyTo;

/// The shard service of one server.
#[derive(Clone)]
pub struct ShardService {
    registry: Arc<Registry>,
    streams: Arc<AtomicU64>,
}

impl ShardService {
    /// The service over the shards of `registry`.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            streams: Arc::default(),
        }
    }
}

impl NamedService for ShardService {
    const NAME: &'static str = SERVICE_NAME;
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl tower_service::Service<http::Request<Body>> for ShardService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let peer = Peer::of(request.extensions());
        let method = request.uri().path().rsplit('/').next();
        match method {
            Some("Exchange") => {
                let stream = ReplyTo(self.streams.fetch_add(1, Ordering::Relaxed));
                let body = exchange(self.registry.clone(), peer, stream, request.into_body());
                Box::pin(ready(Ok(respond(body))))
            }
            Some("Replicate") => {
                let body = replicate(self.registry.clone(), peer, request.into_body());
                Box::pin(ready(Ok(respond(body))))
            }
            Some("ShardStatus") => {
                let call = StatusCall(self.registry.clone(), peer);
                Box::pin(async move {
                    let mut grpc =
                        Grpc::new(ProstCodec::default()).max_decoding_message_size(FRAME_BYTES_MAX);
                    Ok(grpc.unary(call, request).await)
                })
            }
            _ => {
                let text = format!("the shard service has no call {}", request.uri().path());
                Box::pin(ready(Ok(Status::unimplemented(text).into_http())))
            }
        }
    }
}

fn respond(body: Body) -> http::Response<Body> {
    let mut response = http::Response::new(body);
    let content_type = tonic::metadata::GRPC_CONTENT_TYPE;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, content_type);
    response
}

struct StatusCall(Arc<Registry>, Peer);

impl UnaryService<ShardStatusRequest> for StatusCall {
    type Response = ShardStatusReply;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ShardStatusReply>, Status>> + Send>>;

    fn call(&mut self, request: Request<ShardStatusRequest>) -> Self::Future {
        Box::pin(status(self.0.clone(), self.1.clone(), request.into_inner()))
    }
}

async fn status(
    registry: Arc<Registry>,
    peer: Peer,
    request: ShardStatusRequest,
) -> Result<Response<ShardStatusReply>, Status> {
    let run = convert::run_id(&request.run).map_err(refuse::malformed)?;
    peer.belongs_to(&run)?;
    let shard = registry.shard(&run, ShardId(request.shard));
    let shard = shard.map_err(refuse::refusal)?;
    let status = shard.status(request.digest).await.map_err(refuse::gone)?;
    let counters = status.counters;
    Ok(Response::new(ShardStatusReply {
        server: registry.server().0,
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
        digest: status
            .digest
            .map(|digest| digest.to_vec())
            .unwrap_or_default()
            .into(),
        primary: status.primary,
        unconfirmed: status.unconfirmed,
        version_sum: status.version_sum,
        lineage: status.lineage.0,
        decided: status.decided.into_iter().map(decided).collect(),
        pushed_bytes: status.moved.pushed,
        pulled_bytes: status.moved.pulled,
        momentum: status.momentum,
    }))
}

fn decided((group, clock): (GroupId, Clock)) -> DecidedClock {
    DecidedClock {
        group: group.0,
        clock: clock.0,
    }
}
