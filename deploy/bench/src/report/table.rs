//! The report for people.

use std::fmt::Write;

use super::{ExchangeReport, PeakBytes, Quantiles};
use crate::size;

impl ExchangeReport {
    /// For people.
    pub fn table(&self) -> String {
        let mut text = self.setting();
        text += "\n                GB/s   spread   core-s/GB   most memory of a client, a server\n";
        let row = |name: &str, gb_per_s: Option<f64>, spread, cpu, peaks: Option<&PeakBytes>| {
            let mut row = format!(
                "{name:10}{}{}{}",
                number(gb_per_s, 10),
                percent(spread),
                number(cpu, 12)
            );
            if let Some(peaks) = peaks {
                let server = peaks.server.map_or("not measured".into(), megabytes);
                row += &format!("   {}, {server}", megabytes(peaks.client));
            }
            row.trim_end().to_owned() + "\n"
        };
        let (rates, spread) = (&self.gb_per_s, &self.spread);
        let exchange = Some(rates.exchange);
        text += &row(
            "exchange",
            exchange,
            spread.exchange,
            self.cpu_seconds_per_gb,
            Some(&self.peak_rss_bytes),
        );
        if self.floor_gb_per_s.is_some() {
            text += &row(
                "floor",
                self.floor_gb_per_s,
                spread.floor,
                self.floor_cpu_seconds_per_gb,
                None,
            );
        }
        if let Some(base) = &self.baseline {
            text += &row(
                "baseline",
                Some(base.gb_per_s),
                spread.baseline,
                base.cpu_seconds_per_gb,
                Some(&base.peak_rss_bytes),
            );
        }
        for (name, rate) in [("push", rates.push), ("pull", rates.pull)] {
            if rate.is_some() {
                text += &row(name, rate, None, None, None);
            }
        }
        text += "\n";
        for (name, ratio) in [
            ("floor", self.ratio_to_floor),
            ("baseline", self.ratio_to_baseline),
        ] {
            if let Some(ratio) = ratio {
                let spread = percent(self.spread.ratio);
                let _ = writeln!(
                    text,
                    "exchange over {name}: {ratio:.3}, spread {}",
                    spread.trim()
                );
            }
        }
        let Quantiles { p50, p99 } = self.exchange_seconds;
        let _ = writeln!(
            text,
            "one exchange: median {}, 99th percentile {}",
            milliseconds(p50),
            milliseconds(p99)
        );
        if let Some(step) = &self.step {
            let _ = writeln!(
                text,
                "a step at overlap 1 over its computation of {}: {:.3}",
                milliseconds(step.computation),
                step.over_computation
            );
        }
        if self.clients > 1 {
            let _ = writeln!(
                text,
                "slowest client over fastest: {:.3}",
                self.slowest_client_over_fastest
            );
        }
        if self.server_threads.is_none() {
            text += "the servers ran already: their processor time and memory were not measured, and there is no floor\n";
        }
        let _ = write!(
            text,
            "{} samples of {} s. GB = 10^9 bytes, payload counted once in each direction, as f32; spread = interquartile range / median.",
            self.runs, self.seconds
        );
        text
    }

    /// How values travel, if not as they are.
    fn forms(&self) -> String {
        let directions = [
            ("up", &self.compression.up),
            ("down", &self.compression.down),
        ];
        let lossy = directions.into_iter().filter(|(_, form)| *form != "none");
        lossy
            .map(|(direction, form)| format!(", {form} {direction}"))
            .collect()
    }

    fn setting(&self) -> String {
        let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let mut text = format!(
            "{} in {} of at most {}, {}{}; {}, {}{}, {} to each server{}",
            size::text(self.bytes),
            count(self.blocks, "block"),
            size::text(self.block_bytes),
            self.optimizer,
            self.forms(),
            count(self.servers, "server"),
            count(self.clients as usize, "client"),
            if self.group { " in one group" } else { "" },
            count(self.connections as usize, "connection"),
            if self.tls { ", over mutual TLS" } else { "" },
        );
        if let Some(base) = &self.baseline {
            let _ = write!(
                text,
                "\nbaseline: {} of at most {}; {}, {}{}",
                count(base.blocks, "block"),
                size::text(base.block_bytes),
                count(base.servers, "server"),
                count(base.clients as usize, "client"),
                if self.tls { ", in clear" } else { "" },
            );
        }
        text + "\n"
    }
}

fn number(value: Option<f64>, width: usize) -> String {
    match value {
        Some(value) => format!("{value:width$.3}"),
        None => " ".repeat(width),
    }
}

fn percent(value: Option<f64>) -> String {
    match value {
        Some(value) => format!("{:7.1} %", 100.0 * value),
        None => " ".repeat(9),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.3} ms", 1e3 * seconds)
}
