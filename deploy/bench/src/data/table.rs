//! What a measurement came to.

use serde::Serialize;

use super::files::{Form, Made};
use super::run::{Group, Settings};
use super::workload::{Accelerator, Workload};

/// Steps that last longer than by this factor were not only waited for.
const SLOW: f64 = 1.05;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataReport {
    workload: Workload,
    accelerator: Accelerator,
    form: Form,
    ranks: u32,
    /// Of each rank.
    readers: u32,
    /// In the files, with the bytes of their fields.
    samples: usize,
    bytes: u64,
    /// Whether they were written just before.
    written_now: bool,
    steps: u64,
    /// From the beginning of the first step to the end of the last.
    wall_seconds: f64,
    samples_per_s: f64,
    mb_per_s: f64,
    /// What part of that steps computed: from 0 to 1.
    utilization: f64,
    /// How long a step computed on average, and should.
    compute_seconds: f64,
    step_seconds: f64,
    /// How long a step waited for its batch.
    data_p50: f64,
    data_p99: f64,
    /// Least utilization that passes.
    threshold: f64,
    passes: bool,
}

impl DataReport {
    pub fn of(settings: &Settings, made: &Made, group: Group) -> Self {
        let wall_seconds = group.compute_seconds / group.utilization;
        let samples_per_s = group.samples as f64 / wall_seconds;
        let sample_bytes = made.bytes as f64 / settings.samples as f64;
        let threshold = settings.workload.threshold();
        Self {
            workload: settings.workload,
            accelerator: settings.accelerator,
            form: made.form,
            ranks: settings.ranks,
            readers: settings.readers,
            samples: settings.samples,
            bytes: made.bytes,
            written_now: made.now,
            steps: group.clocks,
            wall_seconds,
            samples_per_s,
            mb_per_s: samples_per_s * sample_bytes / 1e6,
            utilization: group.utilization,
            compute_seconds: group.compute_seconds / group.clocks as f64,
            step_seconds: settings.workload.step_seconds(settings.accelerator),
            data_p50: group.data_p50,
            data_p99: group.data_p99,
            threshold,
            passes: group.utilization >= threshold,
        }
    }

    pub fn table(&self) -> String {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        let mut text = format!(
            "{} on an {}: {} steps of {:.2} ms and {} sample{} on {} rank{} with {} reader{}, {:.1} s\n\
             {} samples of {:.3} MB, {}\n\n",
            self.workload.name(),
            self.accelerator.name(),
            self.steps,
            1e3 * self.step_seconds,
            self.workload.batch(),
            plural(self.workload.batch() as u32),
            self.ranks,
            plural(self.ranks),
            self.readers,
            plural(self.readers),
            self.wall_seconds,
            self.samples,
            self.bytes as f64 / self.samples as f64 / 1e6,
            self.form.name(),
        );
        text += &format!(
            "{:>11} {:>10} {:>12} {:>20} {:>10}\n",
            "samples/s", "MB/s", "utilization", "waits for data, p50", "p99"
        );
        text += &format!(
            "{:>11.1} {:>10.1} {:>10.1} % {:>17.3} ms {:>7.3} ms\n\n",
            self.samples_per_s,
            self.mb_per_s,
            100.0 * self.utilization,
            1e3 * self.data_p50,
            1e3 * self.data_p99,
        );
        text += &format!(
            "utilization of {:.0} % or more: {}\n",
            100.0 * self.threshold,
            if self.passes {
                "passes"
            } else {
                "does not pass"
            }
        );
        if self.compute_seconds > SLOW * self.step_seconds {
            text += &format!(
                "a step computed for {:.2} ms, longer than it should: this machine is too slow for so many ranks, \
                 and the utilization says too much\n",
                1e3 * self.compute_seconds
            );
        }
        text += match self.written_now {
            true => {
                "the files were just written, so they came from the page cache, not from a disk; for the disk's \
                 rate keep them (--folder), empty the cache (echo 3 > /proc/sys/vm/drop_caches, as root) and \
                 measure again"
            }
            false => {
                "the files were there before; whether they came from the page cache or from the disk depends on \
                 what was read since"
            }
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn report(utilization: f64, compute_seconds: f64) -> DataReport {
        let settings = Settings {
            workload: Workload::Cosmoflow,
            accelerator: Accelerator::A100,
            samples: 10,
            steps: 1000,
            ranks: 1,
            readers: 2,
            batches_ahead: 2,
            bytes_ahead: 1,
        };
        let made = Made {
            folder: PathBuf::new(),
            form: Form::Packed,
            bytes: 20_000_000,
            now: true,
        };
        let group = Group {
            clocks: 1000,
            samples: 1000,
            data_p50: 1e-5,
            data_p99: 0.002,
            utilization,
            compute_seconds,
        };
        DataReport::of(&settings, &made, group)
    }

    #[test]
    fn rates_are_over_the_time_of_the_steps() {
        let report = report(0.8, 5.6);
        assert!((report.wall_seconds - 7.0).abs() < 1e-9);
        assert!((report.samples_per_s - 1000.0 / 7.0).abs() < 1e-9);
        assert!((report.mb_per_s - 2000.0 / 7.0).abs() < 1e-9);
        let text = report.table();
        for want in [
            "cosmoflow on an A100: 1000 steps of 5.51 ms and 1 sample on 1 rank with 2 readers, 7.0 s\n",
            "10 samples of 2.000 MB, packed\n",
            "      142.9      285.7       80.0 %             0.010 ms   2.000 ms\n",
            "utilization of 70 % or more: passes\n",
            "came from the page cache",
        ] {
            assert!(text.contains(want), "{want:?} is not in {text}");
        }
        assert!(!text.contains("too slow"), "{text}");
    }

    #[test]
    fn what_falls_short_is_said() {
        let report = report(0.69, 8.0);
        assert!(!report.passes);
        let text = report.table();
        assert!(text.contains("70 % or more: does not pass"), "{text}");
        assert!(text.contains("a step computed for 8.00 ms"), "{text}");
    }
}
