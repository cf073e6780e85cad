//! Sends what was told, many spans at once.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::ids::Key;
use crate::otlp::{
    ExportRequest, ExportResponse, KeyValue, PATH, Resource, ResourceSpans, Scope, ScopeSpans,
    SpanKind, SpanMessage,
};
use crate::{LOST, Span, Told, Who};

/// Spans of a message: with some 200 bytes each a tenth of what collectors take unless told otherwise, 4 MiB.
pub(crate) const TOGETHER_MAX: usize = 2048;

/// How long the first of them waits for others.
const TOGETHER: Duration = Duration::from_secs(2);

/// How long a collector may take to take them.
const PATIENCE: Duration = Duration::from_secs(5);

/// The way to a collector.
pub(crate) struct Sending {
    grpc: Grpc<Channel>,
    collector: String,
    process: String,
    key: Key,
    /// The last ones could not be sent, which was told.
    failing: bool,
}

impl Sending {
    pub(crate) fn new(channel: Channel, collector: String, process: String, key: Key) -> Self {
        Self {
            grpc: Grpc::new(channel),
            collector,
            process,
            key,
            failing: false,
        }
    }

    /// Until nobody can tell anything any more. `hurry` ends the wait for further spans.
    pub(crate) async fn run(mut self, mut told: mpsc::Receiver<Told>, hurry: Arc<Notify>) {
        while let Some(first) = told.recv().await {
            if matches!(first, Told::Span(..)) {
                // Nobody waits for the channel meanwhile: a span wakes no thread, which would cost more than all else of it.
                tokio::select! {
                    () = hurry.notified() => {}
                    () = sleep(TOGETHER) => {}
                }
            }
            let mut spans = Vec::new();
            let mut waiting = Vec::new();
            let mut next = Some(first);
            while let Some(this) = next {
                match this {
                    Told::Span(run, span) => spans.push(message(&self.key, &run, &span)),
                    Told::All(done) => waiting.push(done),
                }
                if spans.len() == TOGETHER_MAX {
                    self.send(mem::take(&mut spans)).await;
                }
                next = told.try_recv().ok();
            }
            if !spans.is_empty() {
                self.send(spans).await;
            }
            for done in waiting {
                let _ = done.send(());
            }
        }
    }

    async fn send(&mut self, spans: Vec<SpanMessage>) {
        let count = spans.len() as u64;
        let sent = timeout(PATIENCE, self.export(spans)).await;
        let sent = sent.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        let (lost, why) = match sent {
            Ok(response) => match response.partial_success {
                Some(part) if part.rejected_spans > 0 => (
                    part.rejected_spans.unsigned_abs().min(count),
                    part.error_message,
                ),
                _ => (0, String::new()),
            },
            Err(status) => (count, status.message().to_owned()),
        };
        LOST.fetch_add(lost, Ordering::Relaxed);
        match (lost > 0, self.failing) {
            (true, false) => tracing::warn!(
                "traces cannot be sent to {} ({why}); training goes on without them",
                self.collector
            ),
            (false, true) => tracing::info!(
                "traces are sent to {} again; {} parts of steps are missing so far",
                self.collector,
                crate::lost()
            ),
            _ => {}
        }
        self.failing = lost > 0;
    }

    async fn export(&mut self, spans: Vec<SpanMessage>) -> Result<ExportResponse, Status> {
        let request = ExportRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource {
                    attributes: vec![
                        KeyValue::text("service.name", "tradewind"),
                        KeyValue::text("service.instance.id", &self.process),
                        KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
                    ],
                }),
                scope_spans: vec![ScopeSpans {
                    scope: Some(Scope {
                        name: "tradewind".into(),
                        version: env!("CARGO_PKG_VERSION").into(),
                    }),
                    spans,
                }],
            }],
        };
        let ready = self.grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(PATH);
        let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
        let answered = self.grpc.unary(Request::new(request), path, codec).await?;
        Ok(answered.into_inner())
    }
}

/// A span as it is sent.
fn message(key: &Key, run: &str, span: &Span) -> SpanMessage {
    let trace = key.trace(run, span.group, span.clock);
    let group = span.group;
    let name = match span.who {
        Who::Group => format!("step of group {group}"),
        Who::Rank(rank) => format!("rank {rank}"),
        Who::Part(_, part) => part.to_owned(),
        Who::Shard(shard) => format!("shard {shard}"),
        Who::Copy { shard, server } => format!("copy of shard {shard} on server {server}"),
    };
    let kind = match span.who {
        Who::Group | Who::Rank(_) | Who::Part(..) => SpanKind::Internal,
        Who::Shard(_) | Who::Copy { .. } => SpanKind::Server,
    };
    let mut attributes = vec![
        KeyValue::text("tradewind.run", run),
        KeyValue::number("tradewind.group", group.0.into()),
        KeyValue::number("tradewind.clock", span.clock.0),
    ];
    let counts = span.counts.iter();
    attributes.extend(counts.map(|(name, count)| KeyValue::number(name, *count)));
    SpanMessage {
        trace_id: trace.into(),
        span_id: key.span(&trace, span.who, span.begun_ns).into(),
        parent_span_id: key.parent(&trace, span.who).map_or(Vec::new(), Into::into),
        name,
        kind: kind.into(),
        start_time_unix_nano: span.begun_ns,
        end_time_unix_nano: span.ended_ns.max(span.begun_ns),
        attributes,
    }
}
