//! HTTP/2 on every connection that is accepted. Most connections of a server are idle, and what they keep is what its ranks cost it.
//! So it is hyper's HTTP/2 and nothing around it, such as tonic's own server has for what other servers need:
//!
//! - No header is remembered from one call to the next. HTTP/2's library would remember it as a part of the buffer of 4 KiB that it
//!   decodes into, and so keep that buffer and make another. A rank makes a few calls in its life.
//! - A connection is one task, which holds its state: no other version of HTTP, no timers, no boxed service.

use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::Either;
use futures_util::{Stream, StreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper_util::rt::TokioIo;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;
use tradewind_proto::limits::{HTTP2_FRAME_BYTES, WINDOW_BYTES};
use tradewind_proto::v1::coordinator_server::{self, CoordinatorServer};
use tradewind_proto::v1::host_server::{self, HostServer};
use tradewind_proto::v1::shard_server;

use crate::admission::{Admitted, Connection, Standing};
use crate::rpc::coordinator::CoordinatorService;
use crate::rpc::host::HostService;
use crate::rpc::shard::ShardService;

/// Bytes of headers that are remembered of a connection.
const HEADERS_BYTES: u32 = 0;

/// What a server can be called for, each behind what is asked of callers.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) shards: Admitted<ShardService>,
    pub(crate) coordinator: Admitted<CoordinatorServer<CoordinatorService>>,
    pub(crate) host: Admitted<HostServer<HostService>>,
}

/// Of any of the services.
type Answering = <Admitted<ShardService> as Service<Request<Body>>>::Future;

impl Services {
    fn call(&self, request: Request<Body>) -> Answering {
        // As in /tradewind.v1.Shard/Exchange.
        match request.uri().path().split('/').nth(1) {
            Some(shard_server::SERVICE_NAME) => self.shards.clone().call(request),
            Some(coordinator_server::SERVICE_NAME) => self.coordinator.clone().call(request),
            Some(host_server::SERVICE_NAME) => self.host.clone().call(request),
            _ => {
                let text = format!("there is no call {}", request.uri().path());
                Either::Right(ready(Ok(Status::unimplemented(text).into_http())))
            }
        }
    }
}

/// What is called on one connection.
struct Calls {
    services: Arc<Services>,
    standing: Standing,
}

impl hyper::service::Service<Request<Incoming>> for Calls {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.standing.clone());
        self.services.call(request)
    }
}

/// Each call is a task.
#[derive(Clone, Copy)]
struct Tasks;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, call: F) {
        // Not supervised: what breaks off ends this call alone, and its caller hears of it.
        tokio::spawn(call);
    }
}

/// Serves those who connect, for as long as they come.
pub(crate) async fn serve(incoming: impl Stream<Item = Connection>, services: Services) {
    let services = Arc::new(services);
    let mut http2 = Builder::new(Tasks);
    http2
        .max_frame_size(HTTP2_FRAME_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(None)
        .header_table_size(HEADERS_BYTES)
        .auto_date_header(false);
    let mut incoming = pin!(incoming);
    while let Some(connection) = incoming.next().await {
        let calls = Calls {
            services: services.clone(),
            standing: connection.standing(),
        };
        let served = http2.serve_connection(TokioIo::new(connection), calls);
        // Not supervised: what breaks off ends this connection alone, and its peer makes another one.
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!("a connection ends: {error}");
            }
        });
    }
}
