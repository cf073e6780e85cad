//! What the samples of `bench apply` come to: JSON and a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::{KERNELS, Kernel, Measured};
use crate::size;

/// What `--json` prints. GB = 10^9 bytes; a spread is the interquartile range over the median.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ApplyReport {
    /// Of each vector.
    bytes: usize,
    cores: Vec<Cores>,
}

/// One number of cores.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cores {
    cores: usize,
    triad_gb_per_s: f64,
    triad_spread: f64,
    optimizers: BTreeMap<String, Optimizer>,
    /// Samples of each.
    runs: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Optimizer {
    bytes_per_value: usize,
    gb_per_s: f64,
    ratio_to_triad: f64,
    /// Of the ratio.
    spread: f64,
}

impl Cores {
    pub(super) fn new(measured: &Measured) -> Self {
        let known = |x: Option<f64>| x.unwrap_or(f64::NAN);
        let optimizer = |(index, (name, kernel)): (usize, &(&str, Kernel))| {
            let optimizer = Optimizer {
                bytes_per_value: kernel.bytes_per_value(),
                gb_per_s: known(measured.rates[index].median()),
                ratio_to_triad: known(measured.ratios[index].median()),
                spread: known(measured.ratios[index].spread()),
            };
            ((*name).to_owned(), optimizer)
        };
        Self {
            cores: measured.cores,
            triad_gb_per_s: known(measured.rates[0].median()),
            triad_spread: known(measured.rates[0].spread()),
            optimizers: KERNELS.iter().enumerate().skip(1).map(optimizer).collect(),
            runs: measured.rates[0].len(),
        }
    }
}

impl ApplyReport {
    pub(super) fn new(bytes: usize, cores: Vec<Cores>) -> Self {
        Self { bytes, cores }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names")
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut text = format!("vectors of {}\n", size::text(self.bytes));
        for cores in &self.cores {
            let plural = if cores.cores == 1 { "" } else { "s" };
            let _ = write!(
                text,
                "\n{:10}      GB/s   over triad   spread   bytes a value\n{:10}{:10.2}{:>13}{:7.1} %{:>16}\n",
                format!("{} core{plural}", cores.cores),
                "triad",
                cores.triad_gb_per_s,
                "",
                100.0 * cores.triad_spread,
                Kernel::Triad.bytes_per_value(),
            );
            for (name, optimizer) in &cores.optimizers {
                let _ = writeln!(
                    text,
                    "{name:10}{:10.2}{:13.3}{:7.1} %{:16}",
                    optimizer.gb_per_s,
                    optimizer.ratio_to_triad,
                    100.0 * optimizer.spread,
                    optimizer.bytes_per_value,
                );
            }
        }
        let runs = self.cores.first().map_or(0, |cores| cores.runs);
        let _ = write!(
            text,
            "\n{runs} samples. GB = 10^9 bytes; spread = interquartile range / median, of the triad's rate and of the others' ratio to it."
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steady::Series;

    fn measured(cores: usize) -> Measured {
        let series = |x: f64| [x, x, 2.0 * x].into_iter().collect::<Series>();
        Measured {
            cores,
            rates: [10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0].map(series),
            ratios: [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3].map(series),
        }
    }

    #[test]
    fn json_has_a_ratio_for_every_optimizer_and_number_of_cores() {
        let report = ApplyReport::new(
            400,
            vec![Cores::new(&measured(1)), Cores::new(&measured(2))],
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        for (index, cores) in [1, 2].into_iter().enumerate() {
            let part = &json["cores"][index];
            assert_eq!(part["cores"], cores);
            assert_eq!(part["triad_gb_per_s"], 10.0);
            assert_eq!(part["runs"], 3);
            for (name, ratio, bytes) in [
                ("sgd", 0.9, 12),
                ("momentum", 0.8, 20),
                ("adam", 0.7, 28),
                ("adamw", 0.6, 28),
                ("lars", 0.5, 20),
                ("larc", 0.4, 20),
                ("norms", 0.3, 8),
            ] {
                let optimizer = &part["optimizers"][name];
                assert_eq!(optimizer["ratio_to_triad"], ratio);
                assert_eq!(optimizer["bytes_per_value"], bytes);
                assert!(optimizer["gb_per_s"].as_f64().unwrap() > 0.0);
            }
        }
    }

    #[test]
    fn the_table_has_a_line_for_each() {
        let table = ApplyReport::new(400_000_000, vec![Cores::new(&measured(2))]).table();
        let want = "vectors of 400 MB

2 cores         GB/s   over triad   spread   bytes a value
triad          10.00                50.0 %              12
adam            7.00        0.700   50.0 %              28
adamw           6.00        0.600   50.0 %              28
larc            4.00        0.400   50.0 %              20
lars            5.00        0.500   50.0 %              20
momentum        8.00        0.800   50.0 %              20
norms           3.00        0.300   50.0 %               8
sgd             9.00        0.900   50.0 %              12

3 samples.";
        assert!(table.starts_with(want), "{table}");
    }
}
