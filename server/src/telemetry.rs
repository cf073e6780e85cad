//! Every metric name, once. Labelled by run and shard, never by rank.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use tradewind_common::{RunId, ShardId};

use tradewind_core::shard::Counters;

const CONTRIBUTIONS: &str = "tradewind_contributions_total";
const BARE: &str = "tradewind_uncompensated_total";
const UPDATES: &str = "tradewind_updates_total";
const LOST: &str = "tradewind_lost_total";
const EVENTS: &str = "tradewind_events_total";
const REFUSALS: &str = "tradewind_refusals_total";
const PUSHED: &str = "tradewind_pushed_bytes_total";
const PULLED: &str = "tradewind_pulled_bytes_total";
const STREAMS: &str = "tradewind_exchange_streams";
const MOMENTUM: &str = "tradewind_momentum";
const RUNS: &str = "tradewind_runs";
/// Labelled by the limit.
pub(crate) const LIMITS: &str = "tradewind_limits_reached_total";
const CONNECTIONS: &str = "tradewind_connections";
const LOG_LOST: &str = "tradewind_log_lines_lost_total";

/// Describes all metrics to the recorder that is installed.
pub fn describe() {
    describe_counter!(
        CONTRIBUTIONS,
        Unit::Count,
        "Block contributions decided, by verdict"
    );
    describe_counter!(
        BARE,
        Unit::Count,
        "Block contributions applied without delay compensation after a failover"
    );
    describe_counter!(UPDATES, Unit::Count, "Updates applied to blocks");
    describe_counter!(
        LOST,
        Unit::Count,
        "Acknowledged updates of blocks lost because a shard was restored from a snapshot"
    );
    describe_counter!(
        EVENTS,
        Unit::Count,
        "Faults and recoveries that the coordinator saw, by kind"
    );
    describe_counter!(REFUSALS, Unit::Count, "Frames refused");
    describe_counter!(PUSHED, Unit::Bytes, "Bulk bytes received");
    describe_counter!(PULLED, Unit::Bytes, "Bulk bytes sent");
    describe_gauge!(
        MOMENTUM,
        "Explicit momentum of the last update, where it is not the optimizer's own"
    );
    describe_gauge!(STREAMS, Unit::Count, "Open exchange streams");
    describe_gauge!(RUNS, Unit::Count, "Runs with a shard here");
    describe_counter!(
        LIMITS,
        Unit::Count,
        "How often a limit was reached that guards the server, by limit"
    );
    describe_gauge!(
        CONNECTIONS,
        Unit::Count,
        "Open connections, by whether they have shown a valid token"
    );
    describe_counter!(
        LOG_LOST,
        Unit::Count,
        "Lines of the log that could not be written"
    );
    // The exporter may have begun after the log.
    log_lost(tradewind_process::log::lost());
}

/// A shard was restored without so many updates that had been acknowledged.
pub fn lost(run: &RunId, shard: ShardId, updates: u64) {
    let labels = [("run", run.to_string()), ("shard", shard.to_string())];
    counter!(LOST, &labels).increment(updates);
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
        counter!(CONTRIBUTIONS, &labels).absolute(count);
    }
    let labels = [("run", run), ("shard", shard)];
    counter!(UPDATES, &labels).absolute(counters.updates);
    counter!(BARE, &labels).absolute(counters.bare);
    counter!(REFUSALS, &labels).absolute(counters.refused);
    if let Some(momentum) = momentum {
        gauge!(MOMENTUM, &labels).set(momentum);
    }
}

/// The coordinator saw a fault or a recovery.
pub fn event(kind: &'static str) {
    counter!(EVENTS, "kind" => kind).increment(1);
}

/// Bulk bytes came in.
pub fn pushed(bytes: usize) {
    counter!(PUSHED).increment(bytes as u64);
}

/// Bulk bytes went out.
pub fn pulled(bytes: usize) {
    counter!(PULLED).increment(bytes as u64);
}

/// The number of open exchange streams changed.
pub fn streams(change: f64) {
    gauge!(STREAMS).increment(change);
}

/// So many connections have shown a valid token, and so many have not.
pub fn connections((known, strangers): (usize, usize)) {
    gauge!(CONNECTIONS, "standing" => "known").set(known as f64);
    gauge!(CONNECTIONS, "standing" => "stranger").set(strangers as f64);
}

/// So many lines of the log are lost by now.
pub fn log_lost(lines: u64) {
    counter!(LOG_LOST).absolute(lines);
}

/// The number of runs here.
pub fn runs(count: usize) {
    gauge!(RUNS).set(count as f64);
}
