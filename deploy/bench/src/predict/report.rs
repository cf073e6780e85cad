//! What is predicted: JSON and a table.

use indicatif::DecimalBytes;
use serde::Serialize;
use tradewind_common::cost::{Collectives, Exchange, Flow, Limit, Rates, Run, Servers, Traffic};
use tradewind_common::ids::ShardId;

use super::Arguments;
use crate::size;

/// A slice so much longer than the mean is told.
const UNEVEN: f64 = 1.05;

/// What `--json` prints. Of ranks and servers those that move most; of bytes and messages those of
/// one step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PredictReport {
    parameters: u64,
    blocks: usize,
    block_bytes: usize,
    groups: u32,
    ranks: u32,
    servers: usize,
    copies: u32,
    compression: Forms,
    link_gbit: f64,
    step_seconds: f64,
    pub(super) rank: Traffic,
    /// The longest slice over the mean.
    pub(super) slice_over_mean: f64,
    pub(super) server: Traffic,
    /// Of all ranks to the first server.
    pub(super) server_connections: u64,
    /// Sent by a rank inside its group.
    pub(super) collectives: Collectives,
    pub(super) collectives_seconds: f64,
    pub(super) exchange: Exchanges,
    /// Whether the exchange of all groups at once is over in a step.
    pub(super) hidden: bool,
    pub(super) servers_needed: Needed,
}

#[derive(Clone, Debug, Serialize)]
struct Forms {
    up: String,
    down: String,
}

/// An exchange of one group that has the servers to itself, and of all groups at once.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Exchanges {
    pub(super) alone: Exchange,
    pub(super) at_once: Exchange,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Needed {
    #[serde(flatten)]
    pub(super) by: Servers,
    pub(super) servers: u64,
    pub(super) limit: Limit,
}

impl PredictReport {
    pub(super) fn new(arguments: &Arguments, run: &Run<'_>, rates: Rates, needed: Servers) -> Self {
        let groups = u64::from(arguments.groups);
        let rank = run.busiest_rank();
        let collectives = run.collectives(arguments.ranks);
        let at_once = run.exchange(rates, groups);
        let shards = run.placement.shards().iter();
        let (servers, limit) = needed.needed();
        Self {
            parameters: arguments.parameters,
            blocks: run.layout.blocks.len(),
            block_bytes: arguments.block_bytes,
            groups: arguments.groups,
            ranks: arguments.ranks,
            servers: shards.map(|shard| shard.0 as usize + 1).max().unwrap_or(0),
            copies: arguments.copies,
            compression: Forms {
                up: run.up.to_string(),
                down: run.down.to_string(),
            },
            link_gbit: arguments.link,
            step_seconds: arguments.step_seconds,
            rank,
            slice_over_mean: rank.values as f64 * f64::from(arguments.ranks)
                / arguments.parameters as f64,
            server: run.busiest_server(groups),
            server_connections: run.connections(ShardId(0)),
            collectives,
            collectives_seconds: (collectives.reduce + collectives.gather) as f64 / rates.link,
            exchange: Exchanges {
                alone: run.exchange(rates, 1),
                at_once,
            },
            hidden: at_once.seconds <= arguments.step_seconds,
            servers_needed: Needed {
                by: needed,
                servers,
                limit,
            },
        }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut text = self.setting();
        text += "\n\nin a step                    messages        payload           wire\n";
        for (what, flow) in [
            ("a rank pushes", self.rank.sent),
            ("a rank pulls", self.rank.received),
            ("a server takes in", self.server.received),
            ("a server sends", self.server.sent),
        ] {
            text += &row(what, flow);
        }
        if self.ranks > 1 {
            text += &format!(
                "a rank inside its group: {} of the all-reduce, {} of the gather; {} on such a link\n",
                bytes(self.collectives.reduce),
                bytes(self.collectives.gather),
                seconds(self.collectives_seconds),
            );
        }
        text += "\nan exchange takes\n";
        for (what, exchange) in [
            ("of one group alone", self.exchange.alone),
            ("of all at once", self.exchange.at_once),
        ] {
            let limit = words(exchange.limit);
            text += &format!("  {what:20}{:>10}   {limit}\n", seconds(exchange.seconds));
        }
        let behind = seconds(self.step_seconds);
        text += &match self.hidden {
            true => format!("it hides behind a step of {behind} with overlap 1\n"),
            false => format!("it does not hide behind a step of {behind}\n"),
        };
        let Needed { by, servers, limit } = self.servers_needed;
        text += &format!(
            "servers needed: {servers}, for the {} (links {}, cores {}, updates {})",
            words(limit),
            by.link,
            by.cores,
            by.shard
        );
        if self.slice_over_mean > UNEVEN {
            text += &format!(
                "\nthe longest slice is {:.2} times the mean, and the gather is padded to it: \
                 too few blocks for {} ranks; lower block_bytes",
                self.slice_over_mean, self.ranks
            );
        }
        text
    }

    fn setting(&self) -> String {
        let count = |n: u64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let copies = match self.copies {
            1 => String::new(),
            copies => format!(", {copies} copies of every block"),
        };
        format!(
            "{} parameters in {} of at most {}, {} up, {} down; {} of {}, {}{copies}, {} to each; links of {} Gbit/s each way",
            self.parameters,
            count(self.blocks as u64, "block"),
            size::text(self.block_bytes),
            self.compression.up,
            self.compression.down,
            count(u64::from(self.groups), "group"),
            count(u64::from(self.ranks), "rank"),
            count(self.servers as u64, "server"),
            count(self.server_connections, "connection"),
            self.link_gbit,
        )
    }
}

fn row(what: &str, flow: Flow) -> String {
    let (payload, wire) = (bytes(flow.payload), bytes(flow.wire));
    format!("  {what:20}{:15}{payload:>15}{wire:>15}\n", flow.messages)
}

fn words(limit: Limit) -> &'static str {
    match limit {
        Limit::RankLink => "link of a rank",
        Limit::RankCore => "core of a rank that exchanges",
        Limit::ServerLink => "link of a server",
        Limit::ServerCores => "cores of a server",
        Limit::ShardCore => "core of a server that applies updates",
        Limit::SharedCores => "cores that ranks and servers share",
    }
}

fn bytes(bytes: u64) -> String {
    DecimalBytes(bytes).to_string()
}

fn seconds(seconds: f64) -> String {
    match seconds {
        0.0..1e-3 => format!("{:.1} µs", 1e6 * seconds),
        1e-3..1.0 => format!("{:.1} ms", 1e3 * seconds),
        _ => format!("{seconds:.2} s"),
    }
}
