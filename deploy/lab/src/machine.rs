//! How many cells this machine holds side by side.
//!
//! With a pace p, a rank that needs c core-seconds for a step keeps c / p of a core busy; a cell of n
//! ranks n·c / p. Cells run together while their sum is at most [`FILL`] of the cores, and their
//! ranks' memory at most [`FILL`] of what is available. c is measured: by a lone rank without pace,
//! whose step, exchange included, is all computing, its own and its server's.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::matrix::Cell;
use super::reading::Reading;
use tradewind_launch::processes;
use tradewind_process::usage;

/// Part of the cores, and of the memory, that cells may take together: the rest is for starting,
/// for the system, and for steps that fall together.
const FILL: f64 = 0.75;

/// Ranks on a core at a time: starting them, and what comes after training, has no pace.
const RANKS_PER_CORE: f64 = 16.0;

/// What a rank needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Core-seconds of a step.
    pub step_seconds: f64,
    /// Bytes that it shares with nobody.
    pub bytes: f64,
}

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    pub cores: f64,
    /// Bytes available.
    pub bytes: f64,
}

impl Machine {
    pub fn here() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            cores: cores as f64,
            bytes: usage::available_bytes().map_or(f64::INFINITY, |bytes| bytes as f64),
        }
    }

    /// Part of the machine that a cell takes; up to 1 it fits. Without a pace it takes all, for
    /// whatever runs beside it would change its times.
    pub fn part(self, cell: &Cell, need: Need) -> f64 {
        if cell.config.step_seconds == 0.0 {
            return 1.0;
        }
        let ranks = f64::from(cell.config.world_size());
        // However many ranks one cell has, it may run alone.
        let starting = (ranks / self.cores / RANKS_PER_CORE).min(1.0);
        let computing = self.computing(cell, need);
        computing.max(self.memory(cell, need)).max(starting)
    }

    /// The part of the cores that a cell keeps busy, of those that cells may have.
    fn computing(self, cell: &Cell, need: Need) -> f64 {
        self.pace_min(cell, need) / cell.config.step_seconds
    }

    /// The part of the memory that it takes, of what cells may have.
    fn memory(self, cell: &Cell, need: Need) -> f64 {
        f64::from(cell.config.world_size()) * need.bytes / (self.bytes * FILL)
    }

    /// The shortest pace that a cell can keep.
    pub fn pace_min(self, cell: &Cell, need: Need) -> f64 {
        f64::from(cell.config.world_size()) * need.step_seconds / (self.cores * FILL)
    }

    /// Why a cell cannot run here even by itself: what it needs, what there is, and the way out.
    pub fn refusals(self, cell: &Cell, need: Need) -> Vec<String> {
        let (ranks, pace) = (cell.config.world_size(), cell.config.step_seconds);
        let mut refusals = Vec::new();
        if pace == 0.0 {
            return refusals;
        }
        if self.computing(cell, need) > 1.0 {
            refusals.push(format!(
                "pace.step_seconds = {pace} is too short for the {ranks} ranks of cluster.groups on {} cores: a step takes {:.1} ms of a core, so it has to be at least {}",
                self.cores,
                1e3 * need.step_seconds,
                rounded_up(self.pace_min(cell, need)),
            ));
        }
        if self.memory(cell, need) > 1.0 {
            refusals.push(format!(
                "the {ranks} ranks of cluster.groups need {:.1} GB of memory, {:.0} MB each, measured; {:.1} GB are available, of which cells may take {:.1}: free some, take fewer ranks or a smaller train.batch, or run the cells as jobs with --slurm",
                f64::from(ranks) * need.bytes / 1e9,
                need.bytes / 1e6,
                self.bytes / 1e9,
                self.bytes * FILL / 1e9,
            ));
        }
        refusals
    }
}

/// Two digits that count, rounded up: who takes what is named is not refused again.
fn rounded_up(seconds: f64) -> String {
    let digits = (1.0 - seconds.log10().floor()).clamp(0.0, 9.0) as usize;
    let scale = 10_f64.powi(digits as i32);
    format!("{:.digits$}", (seconds * scale).ceil() / scale)
}

/// What a run's times depend on, of the machine that it ran on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Host {
    pub cores: usize,
    /// Model of the processor, and the operating system with its kernel.
    pub processor: String,
    pub system: String,
}

impl Host {
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str, sign| {
            let pairs = text.lines().filter_map(|line| line.split_once(sign));
            let mut own = pairs.filter(|(name, _)| name.trim() == key);
            own.next()
                .map(|(_, value)| value.trim().trim_matches('"').to_owned())
        };
        let processor = value(&read("/proc/cpuinfo"), "model name", ':');
        let system = value(&read("/etc/os-release"), "PRETTY_NAME", '=');
        let kernel = read("/proc/sys/kernel/osrelease");
        Self {
            cores: Machine::here().cores as usize,
            processor: processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            system: format!(
                "{}, kernel {}",
                system.as_deref().unwrap_or(std::env::consts::OS),
                kernel.trim()
            ),
        }
    }
}

/// What the probe's rank needed: the median of its steps' times.
pub fn step_seconds(probe: &Reading) -> f64 {
    let records = probe.records.iter();
    let time = |r: &tradewind_common::record::StepRecord| {
        r.data_seconds + r.compute_seconds + r.reduce_seconds + r.exposed_seconds
    };
    let mut times: Vec<f64> = records.map(time).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// The most memory that a rank of a run under way has to itself now; `None` if there is none.
pub fn rank_bytes(folder: &Path) -> Option<f64> {
    let ranks = processes(folder)
        .into_iter()
        .filter(|row| row.role == "worker");
    let bytes = ranks.filter_map(|row| {
        let bytes = usage::Status::of(row.pid)?.anonymous_bytes()?;
        Some(bytes as f64)
    });
    bytes.max_by(f64::total_cmp)
}
