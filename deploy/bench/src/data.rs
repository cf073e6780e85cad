//! `tradewind bench data`: how a run keeps up with reading its samples. Files of random samples in the shape of a
//! known workload are made, and `tradewind run` trains the task `replay` on them, whose steps last as long as those
//! of the workload on an accelerator. So it is done by DLIO (Devarajan et al. 2021, "DLIO: A Data-Centric Benchmark
//! for Scientific Deep Learning Applications") and the MLPerf Storage benchmark.

mod files;
mod run;
mod table;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::HumanBytes;
use tradewind_process::log::say;
use tradewind_process::usage;

use self::files::{Files, Form};
use self::run::Settings;
use self::table::DataReport;
use self::workload::{Accelerator, Workload};
use super::Stop;
use super::folder::measured;
use super::size;

/// Part of the memory that is free in which samples have to fit, so that reading them again needs no disk: a
/// quarter. As much may be read ahead.
const MEMORY_PART: usize = 4;

#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// What is replayed.
    #[arg(long, value_enum, default_value_t = Workload::Cosmoflow)]
    workload: Workload,
    /// Whose time a step lasts.
    #[arg(long, value_enum, default_value_t = Accelerator::A100)]
    accelerator: Accelerator,
    /// In which form samples are stored.
    #[arg(long, value_enum, default_value_t = Form::Packed)]
    form: Form,
    /// Readers of each rank: threads, and processes for HDF5 files.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    readers: u32,
    /// Ranks of the one group.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Where files are made, and kept for the next time; a temporary folder if not given.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Size of all files, as nearly as whole samples come; at least a batch of each rank.
    #[arg(long, value_name = "SIZE", default_value = "2GB", value_parser = size::parse)]
    bytes: usize,
    /// Least time that the steps take, seconds.
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,
    /// Number of steps, instead of a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    steps: Option<u64>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Stop> {
    let settings = arguments.settings().map_err(Stop::Input)?;
    let kept = arguments.folder.as_deref();
    let files = Files {
        workload: arguments.workload,
        form: arguments.form,
        samples: settings.samples,
    };
    let temporary = std::env::temp_dir();
    files.fit(kept.unwrap_or(&temporary))?;
    let report = measured(async |folder: &Path| {
        let made = files.made(kept.unwrap_or(folder)).await?;
        let ran = run::run(&settings, &made, folder).await;
        if ran.is_err() && kept.is_none() {
            // What is left for who reads the logs is small.
            let _ = std::fs::remove_dir_all(&made.folder);
        }
        Ok(DataReport::of(&settings, &made, ran?))
    })?;
    match arguments.json {
        true => say(serde_json::to_string_pretty(&report).context("cannot write the report")?),
        false => say(report.table()),
    }
    Ok(())
}

impl Arguments {
    fn settings(&self) -> Result<Settings, String> {
        if !(self.seconds > 0.0 && self.seconds <= 86_400.0) {
            return Err(format!(
                "--seconds is {}, not more than 0 and at most 86400",
                self.seconds
            ));
        }
        let (workload, ranks) = (self.workload, self.ranks as usize);
        let step_seconds = workload.step_seconds(self.accelerator);
        let steps = (self.seconds / step_seconds).ceil() as u64;
        // All ranks take a batch at once, and one sample each is for validation and the final metric.
        let least = workload.batch() * ranks + 2;
        let free = usage::available_bytes().map_or(usize::MAX, |bytes| bytes as usize);
        let bytes = self.bytes.min(free / MEMORY_PART);
        let batch_bytes = workload.batch() * workload.sample_bytes_max();
        let batches = 2.max(self.readers as usize);
        let ahead = (free / MEMORY_PART / ranks).min(batches * batch_bytes);
        if batch_bytes.saturating_mul(ranks) > free / 2 {
            return Err(format!(
                "a batch of {} samples takes up to {}, of each of {ranks} ranks, and this machine has {} free; lower --ranks, or take a machine with more memory",
                workload.batch(),
                HumanBytes(batch_bytes as u64),
                HumanBytes(free as u64),
            ));
        }
        Ok(Settings {
            workload,
            accelerator: self.accelerator,
            samples: (bytes / workload.sample_bytes()).max(least),
            steps: self.steps.unwrap_or(steps),
            ranks: self.ranks,
            readers: self.readers,
            batches_ahead: batches,
            bytes_ahead: ahead.max(batch_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn settings(words: &[&str]) -> Result<Settings, String> {
        let line = Line::try_parse_from([&["x"], words].concat()).unwrap();
        line.arguments.settings()
    }

    #[test]
    fn steps_and_samples_follow_from_the_workload() {
        let check = |words: &[&str], steps: u64, samples: usize| {
            let found = settings(words).unwrap();
            assert_eq!((found.steps, found.samples), (steps, samples), "{words:?}");
        };
        check(&["--seconds=5.51", "--bytes=100MB"], 1000, 5);
        check(
            &["--accelerator=h100", "--seconds=0.35", "--bytes=1MB"],
            100,
            3,
        );
        let images = "--workload=resnet50";
        check(&[images, "--steps=7", "--ranks=2", "--bytes=1MB"], 7, 802);
        check(&[images, "--seconds=1", "--bytes=150MB"], 3, 996);
    }

    #[test]
    fn what_is_read_ahead_holds_a_batch_and_no_reader_is_idle() {
        for readers in ["--readers=1", "--readers=7"] {
            let found = settings(&[readers]).unwrap();
            assert!(found.batches_ahead >= found.readers as usize);
            assert!(found.bytes_ahead >= found.workload.sample_bytes_max());
        }
        let error = settings(&["--seconds=0"]).unwrap_err();
        assert!(error.contains("--seconds is 0"), "{error}");
    }
}
