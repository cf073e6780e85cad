//! A collector that keeps what it is sent, for tests.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::otlp::{ExportRequest, ExportResponse};
pub use crate::otlp::{KeyValue, SpanMessage, Value};

/// What a collector was sent: of each span the process, and the span.
pub type Received = Arc<Mutex<Vec<(String, SpanMessage)>>>;

/// Serves OTLP on a free port of this machine, for as long as its runtime is there.
///
/// # Errors
/// It cannot listen.
pub async fn collect() -> std::io::Result<(SocketAddr, Received)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let received = Received::default();
    let service = Collector(received.clone());
    let serving = Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(serving);
    Ok((address, received))
}

#[derive(Clone)]
struct Collector(Received);

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let export = Export(self.0.clone());
        Box::pin(async move {
            let codec = ProstCodec::<ExportResponse, ExportRequest>::default();
            Ok(Grpc::new(codec).unary(export, request).await)
        })
    }
}

struct Export(Received);

impl UnaryService<ExportRequest> for Export {
    type Response = ExportResponse;
    type Future = Ready<Result<Response<ExportResponse>, Status>>;

    fn call(&mut self, request: Request<ExportRequest>) -> Self::Future {
        let mut received = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for of in request.into_inner().resource_spans {
            let attributes = of.resource.unwrap_or_default().attributes;
            let process = attributes.iter().find(|of| of.key == "service.instance.id");
            let process = process.and_then(|of| of.value.clone()?.value);
            let Some(Value::Text(process)) = process else {
                return ready(Err(Status::invalid_argument("a process without a name")));
            };
            let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.extend(spans.map(|span| (process.clone(), span)));
        }
        ready(Ok(Response::new(ExportResponse::default())))
    }
}
