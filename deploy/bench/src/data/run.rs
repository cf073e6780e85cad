//! The run that reads the files, and what it took.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tradewind_launch::beside;

use super::files::{Form, Made};
use super::workload::{Accelerator, Workload};

/// Pause between two looks at the run.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes of the run's last words that are told when it fails.
const LAST_BYTES: usize = 2000;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub workload: Workload,
    pub accelerator: Accelerator,
    /// In the files.
    pub samples: usize,
    pub steps: u64,
    pub ranks: u32,
    pub readers: u32,
    pub batches_ahead: usize,
    pub bytes_ahead: usize,
}

/// The end of a run's summary that is looked at.
#[derive(Debug, Deserialize)]
struct Summary {
    groups: Vec<Group>,
}

/// What the summary says of the group.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Group {
    /// Steps.
    pub clocks: u64,
    pub samples: u64,
    pub data_p50: f64,
    pub data_p99: f64,
    pub utilization: f64,
    pub compute_seconds: f64,
}

/// A run that is ended as by Ctrl-C when it is dropped: then it takes its processes with it.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let ended = self.0.try_wait().is_ok_and(|status| status.is_some());
        if !ended && let Some(pid) = Pid::from_raw(self.0.id() as i32) {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// Trains on the files, with everything else in `folder`.
pub async fn run(settings: &Settings, made: &Made, folder: &Path) -> anyhow::Result<Group> {
    let config = folder.join("replay.toml");
    let written = std::fs::write(&config, settings.config(made)?);
    written.with_context(|| format!("cannot write {}", config.display()))?;
    let (out, log) = (folder.join("run"), folder.join("run.log"));
    let told = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut command = Command::new(beside("tradewind")?);
    command.arg("run").arg(&config).arg("--out").arg(&out);
    command.stdout(told.try_clone()?).stderr(told);
    let mut run = Run(command.spawn().context("cannot start tradewind run")?);
    let status = loop {
        match run.0.try_wait()? {
            Some(status) => break status,
            None => tokio::time::sleep(LOOK).await,
        }
    };
    if !status.success() {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let from = text.ceil_char_boundary(text.len().saturating_sub(LAST_BYTES));
        bail!(
            "tradewind run ended with {status}: {}\nits folder is {}",
            text[from..].trim(),
            out.display()
        );
    }
    let summary = out.join("summary.json");
    let text = std::fs::read_to_string(&summary);
    let text = text.with_context(|| format!("cannot read {}", summary.display()))?;
    let read: Summary = serde_json::from_str(&text)
        .with_context(|| format!("{} is no summary", summary.display()))?;
    let group = read.groups.first().context("the summary has no group")?;
    Ok(*group)
}

impl Settings {
    fn config(&self, made: &Made) -> anyhow::Result<String> {
        // Strings of JSON are strings of TOML.
        let folder = std::path::absolute(&made.folder)?;
        let folder = folder.to_str().context("the folder's name is no UTF-8")?;
        let folder = serde_json::to_string(folder)?;
        let layout = match made.form {
            Form::Packed => String::new(),
            Form::Hdf5 => self.workload.layout(),
        };
        let batch = self.workload.batch() as u64;
        Ok(format!(
            "[run]\nname = \"bench-data\"\n\n\
             [cluster]\ngroups = [{ranks}]\n\n\
             [model]\nname = \"replay\"\n\n\
             [data]\nfolder = {folder}\nlayout = \"{layout}\"\n\
             validation_samples = 1\nheld_out_samples = 1\n\n\
             [train]\nsamples = {samples}\nbatch = {batch}\nconsistency = \"sync\"\n\n\
             [optimizer]\nname = \"sgd\"\nlearning_rate = 0.01\n\n\
             [loader]\nreaders = {readers}\nbatches_ahead = {ahead}\nbytes_ahead = {bytes}\n\n\
             [pace]\nstep_seconds = {step}\n",
            ranks = self.ranks,
            samples = self.steps * batch * u64::from(self.ranks),
            readers = self.readers,
            ahead = self.batches_ahead,
            bytes = self.bytes_ahead,
            step = self.workload.step_seconds(self.accelerator),
        ))
    }
}
