//! Metrics for Prometheus. Labelled by run, and by shard or group, never by rank.

mod folder;
mod members;
mod table;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{counter, describe_counter, describe_gauge, gauge};
use tradewind_common::{RunId, ShardId};

use tradewind_core::shard::Counters;
use tradewind_traces::Tracer;

pub(crate) use folder::watch_room;
pub(crate) use members::Members;
pub use table::{ALL, Kind, Metric, markdown};
use table::{
    BARE, CALLERS_REFUSED, CONNECTIONS, CONTRIBUTIONS, EVENTS, LIMITS, LOG_LOST, LOST, MOMENTUM,
    NOT_RENEWED, PULLED, PUSHED, REFUSALS, RUNS, STREAMS, TRACES_LOST, UPDATES,
};

/// Whether anybody is told of metrics: what costs time to find out is not looked at for nobody.
static ARE_SERVED: AtomicBool = AtomicBool::new(false);

/// From now on metrics are served.
pub fn served() {
    ARE_SERVED.store(true, Ordering::Relaxed);
}

fn are_served() -> bool {
    ARE_SERVED.load(Ordering::Relaxed)
}

/// Where it is told what was done of steps; unset where nobody asks.
static TRACER: OnceLock<Tracer> = OnceLock::new();

/// From now on it is told what shards do of steps.
pub fn traced(tracer: Tracer) {
    TRACER.get_or_init(|| tracer);
}

/// Where that is told.
pub(crate) fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// Waits until what was told of steps has been sent, or is lost; not to be called by a task.
pub fn flush_traces() {
    if let Some(tracer) = tracer() {
        tracer.flush();
    }
}

/// Describes all metrics to the recorder that is installed.
pub fn describe() {
    for Metric {
        name,
        kind,
        meaning,
        ..
    } in ALL
    {
        match kind {
            Kind::Counter => describe_counter!(*name, *meaning),
            Kind::Gauge => describe_gauge!(*name, *meaning),
        }
    }
    // The exporter may have begun after the log.
    log_lost(tradewind_process::log::lost());
}

/// A shard was restored without so many updates that had been acknowledged.
pub fn lost(run: &RunId, shard: ShardId, updates: u64) {
    let labels = [("run", run.to_string()), ("shard", shard.to_string())];
    counter!(LOST.name, &labels).increment(updates);
}

/// Publishes a shard's counters, and its explicit momentum where a policy says it.
pub fn shard(run: &RunId, shard: ShardId, counters: &Counters, momentum: Option<f64>) {
    let verdicts = [
        ("applied", counters.applied),
        ("skipped", counters.skipped),
        ("dropped", counters.dropped),
        ("duplicate", counters.duplicate),
    ];
    let (run, shard) = (run.to_string(), shard.to_string());
    for (verdict, count) in verdicts {
        let labels = [
            ("run", run.clone()),
            ("shard", shard.clone()),
            ("verdict", verdict.into()),
        ];
        counter!(CONTRIBUTIONS.name, &labels).absolute(count);
    }
    let labels = [("run", run), ("shard", shard)];
    counter!(UPDATES.name, &labels).absolute(counters.updates);
    counter!(BARE.name, &labels).absolute(counters.bare);
    counter!(REFUSALS.name, &labels).absolute(counters.refused);
    if tracer().is_some() {
        counter!(TRACES_LOST.name).absolute(tradewind_traces::lost());
    }
    if let Some(momentum) = momentum {
        gauge!(MOMENTUM.name, &labels).set(momentum);
    }
}

/// The coordinator saw a fault or a recovery.
pub fn event(kind: &'static str) {
    counter!(EVENTS.name, "kind" => kind).increment(1);
}

/// Bulk bytes came in.
pub fn pushed(bytes: usize) {
    counter!(PUSHED.name).increment(bytes as u64);
}

/// Bulk bytes went out.
pub fn pulled(bytes: usize) {
    counter!(PULLED.name).increment(bytes as u64);
}

/// The number of open exchange streams changed.
pub fn streams(change: f64) {
    gauge!(STREAMS.name).increment(change);
}

/// A limit that guards the server was reached.
pub fn limit_reached(limit: &'static str) {
    counter!(LIMITS.name, "limit" => limit).increment(1);
}

/// A caller was refused who does not belong here.
pub fn caller_refused(reason: &'static str) {
    counter!(CALLERS_REFUSED.name, "reason" => reason).increment(1);
}

/// The certificate of this process was to be renewed, and was not.
pub fn not_renewed() {
    counter!(NOT_RENEWED.name).increment(1);
}

/// So many connections have shown a valid token, and so many have not.
pub fn connections((known, strangers): (usize, usize)) {
    gauge!(CONNECTIONS.name, "standing" => "known").set(known as f64);
    gauge!(CONNECTIONS.name, "standing" => "stranger").set(strangers as f64);
}

/// So many lines of the log are lost by now.
pub fn log_lost(lines: u64) {
    counter!(LOG_LOST.name).absolute(lines);
}

/// The number of runs here.
pub fn runs(count: usize) {
    gauge!(RUNS.name).set(count as f64);
}
