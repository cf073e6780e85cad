//! `tradewind bench links`: what exchanges came to on full-duplex links of a known rate, each
//! process on a link of its own. For deploy/net/bench-net.sh.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;

use tradewind_process::log::say;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Rate of every link in each direction, 10^9 bits a second.
    #[arg(long, value_name = "GBIT")]
    gbit: f64,
    /// Files with a result each; rates are told over that of the first.
    #[arg(required = true, value_name = "FILE")]
    results: Vec<PathBuf>,
}

/// What is read of a result.
#[derive(Clone, Debug, Deserialize)]
struct Measured {
    servers: usize,
    clients: usize,
    group: bool,
    bytes: f64,
    compression: Forms,
    #[serde(default)]
    tls: bool,
    step: Option<Step>,
    gb_per_s: Rate,
    exchange_seconds: Median,
    floor_gb_per_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Rate {
    exchange: f64,
    push: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Forms {
    up: String,
    down: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Step {
    over_computation: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Median {
    p50: f64,
}

impl Measured {
    /// Seconds that the busiest link needs for an exchange of all clients, in one direction: up
    /// and down go at once.
    fn link_seconds(&self, gbit: f64) -> f64 {
        let (clients, servers) = (self.clients as f64, self.servers as f64);
        let (of_client, of_server) = match self.group {
            true => (self.bytes / clients, self.bytes / servers),
            false => (self.bytes, self.bytes * clients / servers),
        };
        of_client.max(of_server) * 8.0 / (gbit * 1e9)
    }

    /// The most that all clients together can exchange, 10^9 bytes a second in both directions.
    fn link_gb_per_s(&self, gbit: f64) -> f64 {
        self.clients.min(self.servers) as f64 * 2.0 * gbit / 8.0
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let read = |path: &PathBuf| -> anyhow::Result<Measured> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{name} is no result of bench exchange"))
    };
    let results: anyhow::Result<Vec<_>> = arguments.results.iter().map(read).collect();
    say(table(arguments.gbit, &results?));
    Ok(())
}

fn table(gbit: f64, results: &[Measured]) -> String {
    let mut text = format!(
        "links of {gbit} Gbit/s each way\n\n\
         servers × clients  up/down     exchange   over link time   total GB/s   over first   push over first   step over computation   TCP over link"
    );
    for result in results {
        let Measured {
            servers, clients, ..
        } = result;
        let seconds = result.exchange_seconds.p50;
        let total = result.gb_per_s.exchange;
        let floor = result
            .floor_gb_per_s
            .map(|rate| rate / result.link_gb_per_s(gbit));
        let first = results[0].gb_per_s.push;
        let push = result
            .gb_per_s
            .push
            .zip(first)
            .map(|(push, first)| push / first);
        let step = result.step.as_ref().map(|step| step.over_computation);
        let _ = write!(
            text,
            "\n{:17}  {:10}{:8.1} ms{:17.3}{total:13.3}{:13.2}{:>18}{:>24}{:>16}",
            format!("{servers} × {clients}"),
            match result.tls {
                true => "TLS".into(),
                false => format!("{}/{}", result.compression.up, result.compression.down),
            },
            1e3 * seconds,
            seconds / result.link_seconds(gbit),
            total / results[0].gb_per_s.exchange,
            push.map_or(String::new(), |push| format!("{push:.2}")),
            step.map_or(String::new(), |step| format!("{step:.3}")),
            floor.map_or(String::new(), |floor| format!("{floor:.3}")),
        );
    }
    text + "\n\nlink time = bytes over the busiest link in one direction ÷ its rate; total = both directions of all clients; \
            TCP over link = rate of bare TCP ÷ what the links allow"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(servers: usize, clients: usize, group: bool) -> Measured {
        Measured {
            servers,
            clients,
            group,
            bytes: 1e8,
            compression: Forms {
                up: "none".into(),
                down: "none".into(),
            },
            tls: false,
            step: None,
            gb_per_s: Rate {
                exchange: 0.2 * clients as f64,
                push: Some(0.1 * clients as f64),
            },
            exchange_seconds: Median { p50: 1.0 },
            floor_gb_per_s: Some(0.225 * clients as f64),
        }
    }

    #[test]
    fn link_time_is_that_of_the_busiest_link() {
        let check = |servers, clients, group, want: f64| {
            let seconds = measured(servers, clients, group).link_seconds(1.0);
            assert!((seconds - want).abs() < 1e-9, "{seconds} is not {want}");
        };
        check(1, 1, false, 0.8);
        check(2, 2, true, 0.4);
        check(1, 2, true, 0.8);
        check(2, 2, false, 0.8);
        check(1, 4, false, 3.2);
    }

    #[test]
    fn the_table_compares_with_links_and_with_the_first() {
        let table = table(1.0, &[measured(1, 1, false), measured(2, 2, true)]);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip(3)
            .take(2)
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[0],
            [
                "1",
                "×",
                "1",
                "none/none",
                "1000.0",
                "ms",
                "1.250",
                "0.200",
                "1.00",
                "1.00",
                "0.900"
            ]
        );
        assert_eq!(
            rows[1],
            [
                "2",
                "×",
                "2",
                "none/none",
                "1000.0",
                "ms",
                "2.500",
                "0.400",
                "2.00",
                "2.00",
                "0.900"
            ]
        );
    }
}
