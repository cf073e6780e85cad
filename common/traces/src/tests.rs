use std::net::TcpListener;

use prost::Message;
use tokio::runtime::Runtime;

use super::*;
use crate::otlp::{ExportRequest, KeyValue, SpanMessage, Value};
use crate::send::TOGETHER_MAX;
use crate::testing::collect;

fn span(who: Who, clock: u64) -> Span {
    Span {
        group: GroupId(3),
        clock: Clock(clock),
        who,
        begun_ns: 1_700_000_000_000_000_000,
        ended_ns: 1_700_000_000_250_000_000,
        counts: vec![("tradewind.blocks", 7)],
    }
}

fn tracer(collector: &str, process: &str, runtime: &Runtime) -> Tracer {
    Tracer::start(collector, process.into(), b"secret", runtime.handle()).unwrap()
}

#[test]
fn what_two_processes_tell_of_a_step_is_one_trace() {
    let runtime = Runtime::new().unwrap();
    let (address, received) = runtime.block_on(collect()).unwrap();
    let collector = format!("http://{address}");
    let (rank, server) = (
        tracer(&collector, "rank", &runtime),
        tracer(&collector, "server", &runtime),
    );
    for who in [
        Who::Group,
        Who::Rank(1),
        Who::Part(1, "forward"),
        Who::Part(1, "exchange"),
    ] {
        rank.tell("r", span(who, 5));
    }
    let copy = Who::Copy {
        shard: 2,
        server: 0,
    };
    for who in [Who::Shard(2), copy] {
        server.tell("r", span(who, 5));
    }
    server.tell("r", span(Who::Shard(2), 6));
    server.tell("other", span(Who::Shard(2), 5));
    rank.flush();
    server.flush();
    let all = received.lock().unwrap().clone();
    assert_eq!(all.len(), 8);
    let (process, root) = all
        .iter()
        .find(|(_, span)| span.name == "step of group 3")
        .unwrap();
    assert_eq!((process.as_str(), &root.parent_span_id), ("rank", &vec![]));
    let trace: Vec<&SpanMessage> = all
        .iter()
        .map(|(_, span)| span)
        .filter(|span| span.trace_id == root.trace_id)
        .collect();
    let below = |parent: &SpanMessage| {
        let own = trace
            .iter()
            .filter(|span| span.parent_span_id == parent.span_id);
        let mut own: Vec<&SpanMessage> = own.copied().collect();
        own.sort_by(|a, b| a.name.cmp(&b.name));
        own
    };
    let names = |spans: Vec<&SpanMessage>| {
        spans
            .iter()
            .map(|span| span.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(trace.len(), 6, "neither another clock nor another run");
    assert_eq!(names(below(root)), ["rank 1", "shard 2"]);
    assert_eq!(names(below(below(root)[0])), ["exchange", "forward"]);
    assert_eq!(
        names(below(below(root)[1])),
        ["copy of shard 2 on server 0"]
    );
    assert_eq!(root.attributes[3], KeyValue::number("tradewind.blocks", 7));
    assert_eq!(
        root.end_time_unix_nano - root.start_time_unix_nano,
        250_000_000
    );
}

#[test]
fn another_secret_makes_other_numbers() {
    let trace = |secret: &[u8]| Key::new(secret).trace("r", GroupId(0), Clock(0));
    assert_eq!(trace(b"a"), trace(b"a"));
    assert_ne!(trace(b"a"), trace(b"b"));
}

/// Whoever trains goes on, whatever becomes of the collector; what it has not got is counted.
#[test]
fn nobody_waits_for_a_collector_and_what_is_lost_is_counted() {
    let runtime = Runtime::new().unwrap();
    // It takes connections, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let collector = format!("http://{}", silent.local_addr().unwrap());
    let tracer = tracer(&collector, "rank", &runtime);
    let before = lost();
    let told = 3 * WAITING_MAX;
    (0..told).for_each(|clock| tracer.tell("r", span(Who::Group, clock as u64)));
    // Those that wait, and those that are being sent.
    let most = (WAITING_MAX + TOGETHER_MAX) as u64;
    let lost = lost() - before;
    assert!(lost >= told as u64 - most, "{lost}");
    assert!(Tracer::start("no address", String::new(), b"", runtime.handle()).is_err());
}

/// The bytes that OpenTelemetry's own crate makes of the same spans.
#[test]
fn messages_are_those_of_opentelemetry() {
    let golden = include_bytes!("../golden/export.bin");
    let request = ExportRequest::decode(&golden[..]).unwrap();
    assert_eq!(
        request.encode_to_vec(),
        golden,
        "no field is unknown or left out"
    );
    let of = &request.resource_spans[0];
    let attributes = &of.resource.as_ref().unwrap().attributes;
    assert_eq!(attributes[0], KeyValue::text("service.name", "tradewind"));
    let span = &of.scope_spans[0].spans[0];
    assert_eq!(
        (
            span.name.as_str(),
            span.kind,
            span.start_time_unix_nano,
            span.end_time_unix_nano
        ),
        ("shard 2", 2, 11, 12)
    );
    assert_eq!(
        (&span.trace_id[..], &span.span_id[..]),
        (&[1; 16][..], &[2; 8][..])
    );
    assert_eq!(span.parent_span_id, [3; 8]);
    let count = span.attributes[0].value.as_ref().unwrap().value.clone();
    assert_eq!(count, Some(Value::Number(7)));
}
