//! `tradewind bench isolation`: what a run feels of another one that floods the same servers. The
//! flood takes processor time from a machine's other processes wherever its servers are, so the run
//! is also measured beside the same flood on servers of its own: the difference is what sharing costs.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::Stop;
use super::fleet::{Fleet, FleetKind, Names, Sample, StartOptions};
use super::folder::measured;
use super::model::{Form, Model, OptimizerName};
use super::orders::Work;
use super::report::exchange_times;
use super::size;
use super::steady::{Quantiles, RUNS_MAX, Series};
use tradewind_launch::run::secret;
use tradewind_process::log::say;

#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Servers that are shared; those of the flood alone are as many.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    servers: u32,
    /// Size of the vector that the run exchanges, as of `bench exchange`.
    #[arg(long, value_name = "SIZE", default_value = "1MB", value_parser = size::parse)]
    bytes: usize,
    /// Groups of one rank that flood.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    flood_clients: u32,
    /// Size of the vector that each of them exchanges.
    #[arg(long, value_name = "SIZE", default_value = "100MB", value_parser = size::parse)]
    flood_bytes: usize,
    /// Length of a sample, seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Samples of each kind, taken in turn.
    #[arg(long, value_name = "N", default_value_t = 9)]
    runs: usize,
    /// Threads of each server; its share of the cores if not given.
    #[arg(long, value_name = "N")]
    server_threads: Option<usize>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

const RUN: Names = Names {
    server: "server",
    client: "client",
};
const FLOOD: Names = Names {
    server: "server of the flood",
    client: "flooding client",
};
const APART: Names = Names {
    server: "server of the other flood",
    client: "other flooding client",
};

/// What the run's exchanges took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Felt {
    /// Over all exchanges, seconds.
    #[serde(flatten)]
    times: Quantiles,
    /// Of this many exchanges.
    exchanges: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct IsolationReport {
    servers: u32,
    server_threads: usize,
    bytes: usize,
    flood_clients: u32,
    flood_bytes: usize,
    alone: Felt,
    /// While the flood is on other servers of the machine.
    flood_elsewhere: Felt,
    /// While it is on the same servers.
    flood_here: Felt,
    /// Median over the samples of what the flood moved in both directions, here.
    flood_gb_per_s: f64,
    /// `flood_here` over `flood_elsewhere`.
    ratio_p50: f64,
    ratio_p99: f64,
    runs: usize,
    seconds: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Stop> {
    arguments.check().map_err(Stop::Input)?;
    let report = measured(async |folder| arguments.measure(folder).await)?;
    match arguments.json {
        true => say(serde_json::to_string_pretty(&report).context("cannot write the report")?),
        false => say(report.table()),
    }
    Ok(())
}

impl Arguments {
    fn check(&self) -> Result<(), String> {
        self.model(1, self.bytes).check()?;
        let flood = self.model(self.flood_clients, self.flood_bytes).check();
        flood.map_err(|fault| format!("the flood: {fault}"))?;
        if !(self.seconds > 0.0 && self.seconds <= 60.0) {
            return Err(format!(
                "--seconds is {}, not more than 0 and at most 60",
                self.seconds
            ));
        }
        if !(1..=RUNS_MAX).contains(&self.runs) {
            return Err(format!("--runs is {}, not 1 to {RUNS_MAX}", self.runs));
        }
        match self.server_threads {
            Some(0) => Err("--server-threads is 0; a server has at least 1".into()),
            _ => Ok(()),
        }
    }

    fn model(&self, clients: u32, bytes: usize) -> Model {
        Model {
            clients,
            bytes,
            block_bytes: 256 << 10,
            connections: 1,
            optimizer: OptimizerName::Sgd,
            up: Form::None,
            down: Form::None,
            topk_fraction: None,
            group: false,
            step_seconds: None,
        }
    }

    fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let share = cores / self.servers as usize;
        self.server_threads.unwrap_or(share.clamp(1, 8))
    }

    async fn measure(&self, folder: &Path) -> anyhow::Result<IsolationReport> {
        let token = secret()?;
        let options = |run| StartOptions {
            folder,
            token: &token,
            run,
            wrap: "",
            host: "127.0.0.1",
            server_threads: self.threads(),
        };
        let own = FleetKind::Exchange {
            servers: self.servers,
            tls: false,
        };
        let flood_model = self.model(self.flood_clients, self.flood_bytes);
        let mut run =
            Fleet::start(RUN, &own, &self.model(1, self.bytes), &options("quiet")).await?;
        let shared = FleetKind::Attached {
            coordinator: run.coordinator().to_owned(),
        };
        let mut here = Fleet::start(FLOOD, &shared, &flood_model, &options("flood")).await?;
        let mut elsewhere = Fleet::start(APART, &own, &flood_model, &options("flood")).await?;

        let bar = super::progress(self.runs);
        // The first exchange opens connections and touches memory.
        for fleet in [&mut run, &mut here, &mut elsewhere] {
            fleet.sample(Work::Exchange, 0.0).await?;
        }
        let [mut alone, mut apart, mut beside] = [const { Vec::new() }; 3];
        let mut flood = Series::default();
        for _ in 0..self.runs {
            alone.push(run.sample(Work::Exchange, self.seconds).await?);
            apart.push(self.beside(&mut run, &mut elsewhere).await?.0);
            let (sample, flooded) = self.beside(&mut run, &mut here).await?;
            beside.push(sample);
            flood.push(flooded.gb_per_s(2));
            bar.inc(1);
        }
        bar.finish_and_clear();
        for fleet in [run, here, elsewhere] {
            fleet.end().await?;
        }
        let [alone, flood_elsewhere, flood_here] =
            [alone, apart, beside].map(|samples| felt(&samples));
        Ok(IsolationReport {
            servers: self.servers,
            server_threads: self.threads(),
            bytes: self.bytes,
            flood_clients: self.flood_clients,
            flood_bytes: self.flood_bytes,
            alone,
            flood_elsewhere,
            flood_here,
            flood_gb_per_s: flood.median().unwrap_or(f64::NAN),
            ratio_p50: flood_here.times.p50 / flood_elsewhere.times.p50,
            ratio_p99: flood_here.times.p99 / flood_elsewhere.times.p99,
            runs: self.runs,
            seconds: self.seconds,
        })
    }

    /// The run while the flood is under way, from a moment after its beginning to before its end.
    async fn beside(&self, run: &mut Fleet, flood: &mut Fleet) -> anyhow::Result<(Sample, Sample)> {
        let lead = self.seconds / 4.0;
        let run = async {
            tokio::time::sleep(std::time::Duration::from_secs_f64(lead)).await;
            run.sample(Work::Exchange, self.seconds).await
        };
        let flood = flood.sample(Work::Exchange, self.seconds + 2.0 * lead);
        tokio::try_join!(run, flood)
    }
}

fn felt(samples: &[Sample]) -> Felt {
    let times = exchange_times(samples);
    Felt {
        times: times.quantiles(),
        exchanges: times.len(),
    }
}

impl IsolationReport {
    fn table(&self) -> String {
        let mut text = format!(
            "{} exchanged with {} server{} of {} threads; a flood of {} clients with {} each, {:.2} GB/s\n\n",
            size::text(self.bytes),
            self.servers,
            if self.servers == 1 { "" } else { "s" },
            self.server_threads,
            self.flood_clients,
            size::text(self.flood_bytes),
            self.flood_gb_per_s,
        );
        let _ = writeln!(
            text,
            "{:32} {:>11} {:>11} {:>10}",
            "an exchange takes", "p50", "p99", "exchanges"
        );
        for (what, felt) in [
            ("alone", self.alone),
            ("the flood on other servers", self.flood_elsewhere),
            ("the flood on the same servers", self.flood_here),
        ] {
            let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
            let _ = writeln!(
                text,
                "{what:32} {:>11} {:>11} {:>10}",
                ms(felt.times.p50),
                ms(felt.times.p99),
                felt.exchanges
            );
        }
        let _ = write!(
            text,
            "{:32} {:>11.2} {:>11.2}\n\n{} samples of {} s each, in turn",
            "same over other", self.ratio_p50, self.ratio_p99, self.runs, self.seconds
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::ClientSample;
    use crate::orders::Done;

    #[test]
    fn quantiles_are_of_all_exchanges_of_all_samples() {
        let sample = |seconds: &[f64]| Sample {
            clients: vec![ClientSample {
                bytes: 4,
                done: Done {
                    elapsed: 1.0,
                    seconds: seconds.to_vec(),
                    beats: None,
                },
            }],
            ..Sample::default()
        };
        let felt = felt(&[sample(&[1.0, 2.0]), sample(&[3.0])]);
        assert_eq!((felt.times.p50, felt.exchanges), (2.0, 3));
        assert!((felt.times.p99 - 2.98).abs() < 1e-9);
    }
}
