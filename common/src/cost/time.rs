//! How long an exchange takes, what limits it, and how many servers a run needs.
//!
//! Everything that takes part works at once: links carry both directions, pushes are applied while
//! values go out. So an exchange takes as long as the part that has most to do, after the latency
//! that an exchange of next to nothing has, too.

use serde::Serialize;

use super::{Run, Traffic};

/// How fast the parts of a cluster are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// A link in each direction, bytes a second; every rank and every server has one.
    pub link: f64,
    /// What the core of a rank that exchanges moves, bytes a second: values as f32, both directions
    /// counted. One over `cpu_seconds_per_gb_by.client` of `bench exchange`.
    pub rank: f64,
    /// The same for all cores of a server: their number over `cpu_seconds_per_gb_by.server`.
    pub server: f64,
    /// What the one core that applies a shard's updates moves, bytes a second; see `bench apply`.
    pub apply: f64,
    /// Bytes that the optimizer reads and writes for each value.
    pub apply_bytes_per_value: f64,
    /// What an exchange of next to nothing takes, seconds: `exchange_seconds.p50` of `bench exchange
    /// --bytes 4KB`.
    pub latency: f64,
    /// Cores that all ranks and servers share, where they are processes of one machine. `server` is
    /// then what these cores move.
    pub shared_cores: Option<f64>,
}

/// What has most to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The link of a rank.
    RankLink,
    /// The core of a rank that exchanges.
    RankCore,
    /// The link of a server.
    ServerLink,
    /// The cores of a server.
    ServerCores,
    /// The core that applies a shard's updates.
    ShardCore,
    /// The cores that all ranks and servers share.
    SharedCores,
}

/// How long exchanges take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Exchange {
    /// Seconds.
    pub seconds: f64,
    /// Why not less.
    pub limit: Limit,
}

/// How many servers a run needs so that they hold nobody up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Servers {
    /// For their links.
    pub link: u64,
    /// For their cores.
    pub cores: u64,
    /// For the cores that apply updates, one a server.
    pub shard: u64,
}

impl Servers {
    /// As many as all of it takes, and what takes most.
    pub fn needed(self) -> (u64, Limit) {
        let all = [
            (self.link, Limit::ServerLink),
            (self.cores, Limit::ServerCores),
            (self.shard, Limit::ShardCore),
        ];
        // Of equal ones the first.
        all.into_iter()
            .rev()
            .max_by_key(|(servers, _)| *servers)
            .expect("three")
    }
}

impl Rates {
    fn of_link(self, traffic: Traffic) -> f64 {
        traffic.sent.wire.max(traffic.received.wire) as f64 / self.link
    }

    /// Seconds of a server, by what of it is busy. Cores work on what is forwarded, too.
    fn of_server(self, traffic: Traffic, copies: u32) -> [(f64, Limit); 3] {
        let values = traffic.values as f64;
        let copies = f64::from(copies);
        // Pushed and pulled once; taken in and handed on once more for each further copy.
        let moved = 8.0 * values * copies;
        let applied = self.apply_bytes_per_value * values * copies;
        [
            (self.of_link(traffic), Limit::ServerLink),
            (moved / self.server, Limit::ServerCores),
            (applied / self.apply, Limit::ShardCore),
        ]
    }

    fn of_rank(self, traffic: Traffic) -> [(f64, Limit); 2] {
        let moved = 8.0 * traffic.values as f64;
        [
            (self.of_link(traffic), Limit::RankLink),
            (moved / self.rank, Limit::RankCore),
        ]
    }
}

impl Run<'_> {
    /// Seconds of the cores that all share, if they do, for the exchange of `groups` groups.
    fn shared(&self, rates: Rates, groups: u64) -> Option<(f64, Limit)> {
        let moved = 8.0 * self.layout.elements() as f64 * groups as f64;
        let copies = f64::from(self.copies);
        rates.shared_cores.map(|cores| {
            let seconds = moved / rates.rank / cores + moved * copies / rates.server;
            (seconds, Limit::SharedCores)
        })
    }

    /// The exchange of `groups` groups that begin at once: 1 for a group that has the servers to
    /// itself, all of them for the worst case. It hides behind a step (overlap 1) that takes no
    /// less.
    pub fn exchange(&self, rates: Rates, groups: u64) -> Exchange {
        let ranks = rates.of_rank(self.busiest_rank());
        let servers = rates.of_server(self.busiest_server(groups), self.copies);
        let shared = self.shared(rates, groups);
        let all = ranks.into_iter().chain(servers).chain(shared);
        let longest = all.max_by(|a, b| a.0.total_cmp(&b.0));
        let (seconds, limit) = longest.expect("five or six");
        Exchange {
            seconds: rates.latency + seconds,
            limit,
        }
    }

    /// How many servers keep up with all groups when each steps every `step_seconds`. Shards are
    /// taken for equal; they are to within a block.
    pub fn servers_needed(&self, rates: Rates, step_seconds: f64) -> Servers {
        let seconds = rates.of_server(self.servers(), self.copies);
        let least = u64::from(self.copies);
        let [link, cores, shard] =
            seconds.map(|(seconds, _)| ((seconds / step_seconds).ceil() as u64).max(least));
        Servers { link, cores, shard }
    }
}
