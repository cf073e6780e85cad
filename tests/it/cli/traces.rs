//! Traces of steps, as a collector of OpenTelemetry gets them from the processes of a run.

use std::collections::{BTreeMap, BTreeSet};

use tokio::runtime::Runtime;
use tradewind_tests::cluster::run::Run;
use tradewind_traces::testing::{KeyValue, SpanMessage, Value, collect};

/// A number that is told of a span.
fn number(span: &SpanMessage, name: &str) -> i64 {
    let found = span.attributes.iter().find(|of| of.key == name);
    match found.and_then(|KeyValue { value, .. }| value.clone()?.value) {
        Some(Value::Number(number)) => number,
        other => panic!("{name} of {span:?} is {other:?}"),
    }
}

#[test]
fn a_step_is_one_trace_over_rank_server_and_copy() {
    let runtime = Runtime::new().unwrap();
    let (address, received) = runtime.block_on(collect()).unwrap();
    let run = Run::new()
        .key("cluster.servers", "2")
        .key("servers.replication", "2")
        .key("cluster.groups", "[2, 1]")
        .key("train.samples", "160")
        .key("telemetry.otlp", format!("\"http://{address}\""));
    let ended = run.complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    let mut traces: BTreeMap<Vec<u8>, Vec<(String, SpanMessage)>> = BTreeMap::new();
    for (process, span) in received.lock().unwrap().iter().cloned() {
        traces
            .entry(span.trace_id.clone())
            .or_default()
            .push((process, span));
    }
    let records = ended.records();
    assert!(!records.is_empty());
    // Those of other steps are of exchanges that began when the budget was applied.
    for record in &records {
        let of = |(_, span): &&(String, SpanMessage)| {
            let step = (
                number(span, "tradewind.group"),
                number(span, "tradewind.clock"),
            );
            step == (i64::from(record.group), record.clock as i64)
        };
        let own: Vec<_> = traces
            .values()
            .filter(|trace| trace.iter().any(|of_it| of(&of_it)))
            .collect();
        assert_eq!(
            own.len(),
            1,
            "one trace of group {} at {}",
            record.group,
            record.clock
        );
        let trace = own[0];
        assert!(trace.iter().all(|of_it| of(&of_it)));
        let root = trace
            .iter()
            .find(|(_, span)| span.parent_span_id.is_empty());
        let (process, root) = root.unwrap_or_else(|| panic!("no step in {trace:?}"));
        assert_eq!(*process, format!("group {} rank 0", record.group));
        let below = |parent: &SpanMessage| -> BTreeMap<String, (String, SpanMessage)> {
            let own = trace
                .iter()
                .filter(|(_, span)| span.parent_span_id == parent.span_id);
            own.map(|(process, span)| (span.name.clone(), (process.clone(), span.clone())))
                .collect()
        };
        let parts = below(root);
        let ranks = if record.group == 0 { 2 } else { 1 };
        let names: BTreeSet<&str> = parts.keys().map(String::as_str).collect();
        let wanted = ["rank 0", "rank 1", "shard 0", "shard 1"];
        let wanted: BTreeSet<&str> = wanted
            .into_iter()
            .filter(|name| *name != "rank 1" || ranks == 2)
            .collect();
        assert_eq!(names, wanted, "{trace:#?}");
        for rank in 0..ranks {
            let (process, span) = &parts[&format!("rank {rank}")];
            assert_eq!(*process, format!("group {} rank {rank}", record.group));
            let parts: BTreeSet<String> = below(span).into_keys().collect();
            for part in ["data", "forward", "backward", "reduce", "exchange"] {
                assert!(parts.contains(part), "{part} is not in {parts:?}");
            }
        }
        for shard in 0..2 {
            let (process, span) = &parts[&format!("shard {shard}")];
            let copies = below(span);
            assert_eq!(copies.len(), 1, "{copies:?}");
            let (name, (copy, of_copy)) = copies.first_key_value().unwrap();
            assert!(
                name.starts_with(&format!("copy of shard {shard} on server ")),
                "{name}"
            );
            assert!(
                process.starts_with("server ") && copy.starts_with("server ") && process != copy
            );
            // The copy had it before the primary had answered the last of it.
            assert!(of_copy.start_time_unix_nano >= root.start_time_unix_nano);
            assert!(number(span, "tradewind.blocks") > 0);
            assert_eq!(
                number(span, "tradewind.blocks"),
                number(of_copy, "tradewind.blocks")
            );
        }
    }
}
