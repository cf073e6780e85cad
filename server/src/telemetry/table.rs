//! Every metric, once: its name, kind, labels and meaning. Descriptions for Prometheus and docs/metrics.md are made
//! from this.

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0 at the start of its server.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// `tradewind_<noun>_<unit>[_total]`.
    pub name: &'static str,
    /// What it counts.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it means, with its unit, in a sentence without a full stop; Markdown.
    pub meaning: &'static str,
}

/// Defines the metrics, each by its meaning, and lists them.
macro_rules! metrics {
    ($(
        $(#[doc = $meaning:literal])+
        $Metric:ident: $kind:ident = $name:literal [$($label:literal),*];
    )*) => {
        $(
            $(#[doc = $meaning])+
            pub(super) const $Metric: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                meaning: concat!($($meaning),+).trim_ascii(),
            };
        )*

        /// All of them.
        pub const ALL: &[Metric] = &[$($Metric),*];
    };
}

metrics! {
    /// Contributions to blocks that were decided, by verdict: `applied`, `skipped`, `dropped`, `duplicate`
    CONTRIBUTIONS: Counter = "tradewind_contributions_total" ["run", "shard", "verdict"];
    /// Updates of blocks; one may be made of several contributions
    UPDATES: Counter = "tradewind_updates_total" ["run", "shard"];
    /// Contributions to blocks that were applied without the compensation of `staleness.policy`, after a failover
    BARE: Counter = "tradewind_uncompensated_total" ["run", "shard"];
    /// Frames that were refused
    REFUSALS: Counter = "tradewind_refusals_total" ["run", "shard"];
    /// Momentum of the last update, where a policy says it
    MOMENTUM: Gauge = "tradewind_momentum" ["run", "shard"];
    /// Bytes of values that came in
    PUSHED: Counter = "tradewind_pushed_bytes_total" [];
    /// Bytes of values that went out
    PULLED: Counter = "tradewind_pulled_bytes_total" [];
    /// Open streams of exchanges
    STREAMS: Gauge = "tradewind_exchange_streams" [];
    /// Runs of which this server has a shard
    RUNS: Gauge = "tradewind_runs" [];
    /// How often a limit that guards the server was reached, by limit
    LIMITS: Counter = "tradewind_limits_reached_total" ["limit"];
    /// Calls refused because of who calls, by reason; `no-tls` counts handshakes in which the peer speaks no TLS or does not believe the server's certificate
    CALLERS_REFUSED: Counter = "tradewind_callers_refused_total" ["reason"];
    /// Attempts to have a certificate renewed that came to nothing, of this server or told by ranks; each is tried again
    NOT_RENEWED: Counter = "tradewind_certificate_renewals_failed_total" [];
    /// Open connections: those that have shown a valid token are `known`, the others each a `stranger`
    CONNECTIONS: Gauge = "tradewind_connections" ["standing"];
    /// Lines of the log that could not be written
    LOG_LOST: Counter = "tradewind_log_lines_lost_total" [];
    /// Parts of steps of which this server could not tell `telemetry.otlp`: the collector was not there, or too slow
    TRACES_LOST: Counter = "tradewind_trace_spans_lost_total" [];
    /// Free bytes of the file system that the fleet's folder is on, for users without privileges
    FOLDER_FREE: Gauge = "tradewind_folder_free_bytes" [];
    /// Size of that file system, in bytes
    FOLDER_SIZE: Gauge = "tradewind_folder_size_bytes" [];
    /// Of the coordinator's server: groups by state: `live`, `gathering`, `joined`, `admitting`, `dead`, `left`
    GROUPS: Gauge = "tradewind_groups" ["run", "state"];
    /// Of the coordinator's server: 1 if the group is live, 0 if not; no number once it has left
    GROUP_LIVE: Gauge = "tradewind_group_live" ["run", "group"];
    /// Of the coordinator's server: the group's clock, that is exchanges
    GROUP_CLOCK: Gauge = "tradewind_group_clock" ["run", "group"];
    /// Of the coordinator's server: exchanges by which a live group's clock is behind that of the fastest one
    GROUP_LAG: Gauge = "tradewind_group_lag" ["run", "group"];
    /// Of the coordinator's server: `train.staleness_bound`; absent without one
    BOUND: Gauge = "tradewind_staleness_bound" ["run"];
    /// Of the coordinator's server: copies of shards by state: `full`, `filling`, and `missing` of those that
    /// `servers.replication` asks for
    COPIES: Gauge = "tradewind_copies" ["run", "state"];
    /// Of the coordinator's server: updates of blocks that had been acknowledged and are lost, because a shard was
    /// restored from a snapshot
    LOST: Counter = "tradewind_lost_total" ["run", "shard"];
    /// Of the coordinator's server: [events](faults.md), by their kind
    EVENTS: Counter = "tradewind_events_total" ["kind"];
}

/// All metrics as a table in Markdown: docs/metrics.md.
pub fn markdown() -> String {
    let row = |metric: &Metric| {
        let Metric {
            name,
            kind,
            labels,
            meaning,
        } = metric;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!(
            "| `{name}` | {kind} | {} | {meaning} |\n",
            labels.join(", ")
        )
    };
    let rows: String = ALL.iter().map(row).collect();
    format!("| metric | kind | labels | meaning |\n|---|---|---|---|\n{rows}")
}
