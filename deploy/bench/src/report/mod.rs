//! What the samples of `bench exchange` come to: JSON and a table.

mod table;
#[cfg(test)]
mod tests;

use serde::Serialize;

use tradewind_common::compress::Compression;

use super::fleet::{Cpu, Peaks, Sample};
use super::model::Model;
use super::steady::{Quantiles, Series};

/// One side and what it did.
#[derive(Clone, Debug)]
pub struct Side {
    pub servers: usize,
    pub model: Model,
    pub samples: Vec<Sample>,
    pub peaks: Peaks,
}

/// What the exchange is compared with.
#[derive(Clone, Debug)]
pub enum Other {
    Floor(Side),
    Baseline(Side),
}

/// A whole measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    pub main: Side,
    pub pushes: Vec<Sample>,
    pub pulls: Vec<Sample>,
    pub other: Option<Other>,
    /// Length of a sample.
    pub seconds: f64,
    /// Of each server; `None` where they are not this measurement's own.
    pub server_threads: Option<usize>,
    /// Whether the exchange went over mutual TLS.
    pub tls: bool,
}

impl Sample {
    /// Rates of all clients together, 10^9 bytes of payload a second, counted once for each of so
    /// many directions.
    pub fn gb_per_s(&self, directions: usize) -> f64 {
        let clients = self.clients.iter();
        let rates = clients.map(|client| {
            let bytes = client.bytes * client.done.seconds.len() * directions;
            bytes as f64 / 1e9 / client.done.elapsed
        });
        rates.sum()
    }

    /// Payload of all clients, counted in both directions, in 10^9 bytes.
    fn gb(&self) -> f64 {
        let clients = self.clients.iter();
        let bytes = clients.map(|client| client.bytes * client.done.seconds.len() * 2);
        bytes.sum::<usize>() as f64 / 1e9
    }
}

/// The ratio of each sample's rate to that of the other side's sample which followed it.
pub fn ratios(samples: &[Sample], others: &[Sample]) -> Series {
    let pairs = samples.iter().zip(others);
    pairs
        .map(|(sample, other)| sample.gb_per_s(2) / other.gb_per_s(2))
        .collect()
}

/// Seconds of every exchange of every client.
pub fn exchange_times(samples: &[Sample]) -> Series {
    let clients = samples.iter().flat_map(|sample| &sample.clients);
    clients
        .flat_map(|client| client.done.seconds.iter().copied())
        .collect()
}

/// What `--json` prints. GB = 10^9 bytes; payload is counted once in each direction, as f32 in
/// whatever form it travels; a spread is
/// the interquartile range over the median; `null` stands for what was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct ExchangeReport {
    servers: usize,
    clients: u32,
    /// Whether the clients are the ranks of one group.
    group: bool,
    bytes: usize,
    block_bytes: usize,
    blocks: usize,
    /// Between each client and each server.
    connections: u32,
    optimizer: String,
    /// The words of the configuration.
    compression: UpDown,
    topk_fraction: Option<f64>,
    /// Whether it went over mutual TLS; the other side did not.
    tls: bool,
    server_threads: Option<usize>,
    gb_per_s: Rates,
    exchange_seconds: Quantiles,
    /// Of steps at overlap 1, where they were asked for.
    step: Option<Step>,
    cpu_seconds_per_gb: Option<f64>,
    cpu_seconds_per_gb_by: Split,
    peak_rss_bytes: PeakBytes,
    floor_gb_per_s: Option<f64>,
    floor_cpu_seconds_per_gb: Option<f64>,
    ratio_to_floor: Option<f64>,
    baseline: Option<Baseline>,
    ratio_to_baseline: Option<f64>,
    spread: Spread,
    /// Rates of two clients over all samples.
    slowest_client_over_fastest: f64,
    /// Samples.
    runs: usize,
    seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
struct UpDown {
    up: String,
    down: String,
}

#[derive(Clone, Debug, Serialize)]
struct Rates {
    push: Option<f64>,
    pull: Option<f64>,
    exchange: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Step {
    /// Seconds that each computed.
    computation: f64,
    /// Median of what it took with its exchange behind it, over that.
    over_computation: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Split {
    client: f64,
    server: Option<f64>,
    total: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct PeakBytes {
    client: u64,
    server: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct Baseline {
    servers: usize,
    clients: u32,
    block_bytes: usize,
    blocks: usize,
    gb_per_s: f64,
    cpu_seconds_per_gb: Option<f64>,
    peak_rss_bytes: PeakBytes,
}

#[derive(Clone, Debug, Serialize)]
struct Spread {
    exchange: Option<f64>,
    floor: Option<f64>,
    baseline: Option<f64>,
    ratio: Option<f64>,
}

/// The rate of transfers in one direction.
fn one_way(samples: &[Sample]) -> Option<f64> {
    let rates = samples.iter().map(|sample| sample.gb_per_s(1));
    rates.collect::<Series>().median()
}

impl Side {
    fn rates(&self) -> Series {
        self.samples
            .iter()
            .map(|sample| sample.gb_per_s(2))
            .collect()
    }

    fn blocks(&self) -> usize {
        let layout = self.model.spec().layout();
        layout.map_or(0, |layout| layout.blocks.len())
    }

    /// Processor time of all samples over their payload.
    fn cpu_per_gb(&self) -> Split {
        let gb: f64 = self.samples.iter().map(Sample::gb).sum();
        let client = |cpu: &Cpu| cpu.client;
        let clients: f64 = self.samples.iter().map(|s| client(&s.cpu)).sum();
        let servers: Option<f64> = self.samples.iter().map(|s| s.cpu.server).sum();
        Split {
            client: clients / gb,
            server: servers.map(|servers| servers / gb),
            total: servers.map(|servers| (clients + servers) / gb),
        }
    }

    /// Rate of the slowest client over that of the fastest.
    fn slowest_over_fastest(&self) -> f64 {
        let rate = |client: usize| {
            let samples = self.samples.iter().map(|sample| &sample.clients[client]);
            let bytes = samples.clone().map(|c| c.bytes * c.done.seconds.len());
            bytes.sum::<usize>() as f64 / samples.map(|c| c.done.elapsed).sum::<f64>()
        };
        let rates: Series = (0..self.model.clients as usize).map(rate).collect();
        let (slowest, fastest) = (rates.quantile(0.0), rates.quantile(1.0));
        slowest
            .zip(fastest)
            .map_or(1.0, |(slowest, fastest)| slowest / fastest)
    }

    fn peaks(&self) -> PeakBytes {
        PeakBytes {
            client: self.peaks.client,
            server: self.peaks.server,
        }
    }
}

impl ExchangeReport {
    pub fn new(measured: &Measured) -> Self {
        let main = &measured.main;
        let model = &main.model;
        let spec = model.spec();
        let rates = main.rates();
        let seconds = exchange_times(&main.samples).quantiles();
        let (floor, baseline) = match &measured.other {
            None => (None, None),
            Some(Other::Floor(floor)) => (Some(floor), None),
            Some(Other::Baseline(baseline)) => (None, Some(baseline)),
        };
        let ratio = |side: &Side| ratios(&main.samples, &side.samples);
        let cpu = main.cpu_per_gb();
        Self {
            servers: main.servers,
            clients: model.clients,
            group: model.group,
            bytes: model.bytes,
            block_bytes: model.block_bytes,
            blocks: main.blocks(),
            connections: model.connections,
            optimizer: model.optimizer.to_string(),
            compression: UpDown {
                up: spec.up.to_string(),
                down: spec.down.to_string(),
            },
            topk_fraction: [spec.up, spec.down]
                .into_iter()
                .find_map(|form| match form {
                    Compression::TopK { fraction } => Some(fraction),
                    Compression::None | Compression::Bf16 | Compression::Int8 => None,
                }),
            tls: measured.tls,
            server_threads: measured.server_threads,
            gb_per_s: Rates {
                push: one_way(&measured.pushes),
                pull: one_way(&measured.pulls),
                exchange: rates.median().unwrap_or(f64::NAN),
            },
            exchange_seconds: seconds,
            step: model.step_seconds.map(|computation| Step {
                computation,
                over_computation: seconds.p50 / computation,
            }),
            cpu_seconds_per_gb: cpu.total,
            cpu_seconds_per_gb_by: cpu,
            peak_rss_bytes: main.peaks(),
            floor_gb_per_s: floor.and_then(|floor| floor.rates().median()),
            floor_cpu_seconds_per_gb: floor.and_then(|floor| floor.cpu_per_gb().total),
            ratio_to_floor: floor.and_then(|floor| ratio(floor).median()),
            baseline: baseline.map(|side| Baseline {
                servers: side.servers,
                clients: side.model.clients,
                block_bytes: side.model.block_bytes,
                blocks: side.blocks(),
                gb_per_s: side.rates().median().unwrap_or(f64::NAN),
                cpu_seconds_per_gb: side.cpu_per_gb().total,
                peak_rss_bytes: side.peaks(),
            }),
            ratio_to_baseline: baseline.and_then(|side| ratio(side).median()),
            spread: Spread {
                exchange: rates.spread(),
                floor: floor.and_then(|floor| floor.rates().spread()),
                baseline: baseline.and_then(|side| side.rates().spread()),
                ratio: floor.or(baseline).and_then(|side| ratio(side).spread()),
            },
            slowest_client_over_fastest: main.slowest_over_fastest(),
            runs: main.samples.len(),
            seconds: measured.seconds,
        }
    }
}
