//! Runs cells, as many side by side as fit.
//!
//! Cells are started together, and the next ones when all of these have ended: processes that start
//! take cores from those that train, and a cell that misses its pace for that is worth nothing. The
//! cells of one setting stand beside each other, so those that are started together also take
//! equally long.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tradewind_common::record::StepRecord;

use super::cell::{self, Outcome, Seal};
use super::display::Display;
use super::machine;
use super::matrix::Cell;
use crate::launch::{LOOK, Process, Role};
use crate::lines::Metrics;
use crate::run::Interruption;
use crate::slurm::has_jobs;

/// How often a cell is run that fails, or that misses its pace.
const TRIES: u32 = 2;

/// A cell that is to be run, and the part of the machine that it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) part: f64,
    /// Whether it is its measure that counts, and not its time.
    pub(crate) is_trial: bool,
}

impl Job<'_> {
    /// Expected work, in steps of the pace.
    pub(crate) fn work(&self) -> f64 {
        let config = &self.cell.config;
        let steps = config.train.samples as f64
            / f64::from(config.train.batch)
            / f64::from(config.world_size());
        steps * config.step_seconds.max(0.001) * self.part.clamp(0.05, 1.0)
    }
}

/// What became of a cell: its seal, or why it has none.
pub(crate) type Ended = Result<Seal, String>;

/// What runs cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// This machine, as many together as it holds.
    Machine,
    /// Slurm, so many jobs at a time.
    Slurm { at_once: usize },
}

/// Where cells run, and what runs them.
pub(crate) struct Runner {
    folder: PathBuf,
    program: PathBuf,
    on: On,
}

/// How it came to its end.
pub(crate) enum Ran {
    All(BTreeMap<String, Ended>),
    Interrupted(BTreeMap<String, Ended>),
}

struct Running<'a> {
    job: Job<'a>,
    tries: u32,
    process: Process,
    metrics: Metrics,
    applied: u64,
    loss: Option<f64>,
}

impl Runner {
    /// For the experiment in `folder`.
    pub(crate) fn new(folder: &Path, on: On) -> anyhow::Result<Self> {
        for name in ["runs", "configs", "logs"] {
            let path = folder.join(name);
            std::fs::create_dir_all(&path)
                .with_context(|| format!("cannot make {}", path.display()))?;
        }
        let program = std::env::current_exe().context("cannot tell where tradewind lies")?;
        Ok(Self {
            folder: folder.to_owned(),
            program,
            on,
        })
    }

    /// What runs cells.
    pub(crate) fn on(&self) -> On {
        self.on
    }

    /// The folder of a cell.
    pub(crate) fn run_folder(&self, cell: &Cell) -> PathBuf {
        self.folder.join("runs").join(&cell.id)
    }

    /// The log of what runs under a name.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.log"))
    }

    /// Writes a cell's resolved configuration down; where.
    pub(crate) fn write_config(&self, cell: &Cell) -> anyhow::Result<PathBuf> {
        let path = self
            .folder
            .join("configs")
            .join(format!("{}.toml", cell.id));
        std::fs::write(&path, cell.config.resolved())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Runs all of them, at most `at_once` together.
    pub(crate) async fn run(
        &self,
        jobs: &[Job<'_>],
        at_once: usize,
        display: &mut Display,
        interruption: &mut Interruption,
    ) -> anyhow::Result<Ran> {
        let mut waiting: VecDeque<(Job<'_>, u32)> = jobs.iter().map(|job| (*job, 1)).collect();
        let mut ended = BTreeMap::new();
        let mut running: Vec<Running<'_>> = Vec::new();
        while !waiting.is_empty() || !running.is_empty() {
            // Jobs of Slurm take nothing from each other.
            let apart = self.on != On::Machine;
            if running.is_empty() || apart {
                let mut taken = 0.0;
                while let Some((job, tries)) = waiting.front().copied()
                    && running.len() < at_once
                    && (running.is_empty() || apart || (tries == 1 && taken + job.part <= 1.0))
                {
                    waiting.pop_front();
                    display.began(&job.cell.id, job.work());
                    running.push(self.start(job, tries)?);
                    // One that is run again has the machine to itself.
                    taken += if tries == 1 { job.part } else { f64::INFINITY };
                }
            }
            tokio::select! {
                by = interruption.wait() => {
                    display.message(&format!("{by}: ending all cells; the same command goes on with those that are not finished"));
                    Process::stop_all(running.iter_mut().map(|r| &mut r.process).collect());
                    return Ok(Ran::Interrupted(ended));
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            let mut still = Vec::new();
            for mut one in running {
                one.look();
                let Some(end) = one.process.poll()? else {
                    display.moved(&one.job.cell.id, one.part(), one.loss);
                    still.push(one);
                    continue;
                };
                let came_to = self.seal(one.job.cell, end.to_string());
                let again = one.tries < TRIES && !is_final(&came_to, one.job.is_trial);
                display.ended(&one.job.cell.id, &in_words(&came_to), again);
                if again {
                    waiting.push_back((one.job, one.tries + 1));
                } else {
                    ended.insert(one.job.cell.id.clone(), came_to);
                }
            }
            running = still;
        }
        Ok(Ran::All(ended))
    }

    /// Runs one cell alone, and measures the most memory that one of its ranks took, in bytes.
    pub(crate) async fn measure(
        &self,
        cell: &Cell,
        interruption: &mut Interruption,
    ) -> anyhow::Result<Option<f64>> {
        let alone = Job {
            cell,
            part: 1.0,
            is_trial: false,
        };
        let mut running = self.start(alone, 1)?;
        let mut bytes = 0.0_f64;
        loop {
            tokio::select! {
                _ = interruption.wait() => {
                    Process::stop_all(vec![&mut running.process]);
                    return Ok(None);
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            bytes = bytes.max(machine::rank_bytes(&self.run_folder(cell)).unwrap_or(0.0));
            if let Some(end) = running.process.poll()? {
                self.seal(cell, end.to_string())
                    .map_err(anyhow::Error::msg)?;
                return Ok(Some(bytes));
            }
        }
    }

    fn start<'a>(&self, job: Job<'a>, tries: u32) -> anyhow::Result<Running<'a>> {
        let id = &job.cell.id;
        let folder = self.run_folder(job.cell);
        let config = self.write_config(job.cell)?;
        let out = format!("--out={}", folder.display());
        let config = config.display().to_string();
        let follows = self.on != On::Machine && has_jobs(&folder)?;
        let arguments: Vec<String> = match self.on {
            On::Machine => vec!["run".into(), config, out],
            // Its job was handed in before this process was there.
            On::Slurm { .. } if follows => {
                let folder = folder.display().to_string();
                vec!["status".into(), "--watch".into(), folder]
            }
            On::Slurm { .. } => {
                vec![
                    "slurm".into(),
                    "submit".into(),
                    "--watch".into(),
                    config,
                    out,
                ]
            }
        };
        // What a former try left says nothing: it was cut short, damaged, or another setting's.
        if folder.exists() && !follows {
            std::fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let log = self.log(id);
        let role = Role::Bench("cell", job.cell.setting as u32);
        let process = Process::start(role, &self.program, &arguments, &BTreeMap::new(), &log)?;
        Ok(Running {
            job,
            tries,
            process,
            metrics: Metrics::new(folder.join("metrics.jsonl")),
            applied: 0,
            loss: None,
        })
    }

    fn seal(&self, cell: &Cell, end: String) -> Ended {
        let sealed = cell::seal(cell, &self.run_folder(cell));
        let log = self.log(&cell.id);
        sealed.map_err(
            |error| match self.run_folder(cell).join("summary.json").exists() {
                true => format!("{error:#}; see {}", log.display()),
                false => end,
            },
        )
    }
}

impl Running<'_> {
    fn look(&mut self) {
        // What cannot be read now is read when the cell has ended, and told then.
        for StepRecord {
            samples_applied,
            loss,
            ..
        } in self.metrics.fresh().unwrap_or_default()
        {
            self.applied = self.applied.max(samples_applied);
            self.loss = loss;
        }
    }

    fn part(&self) -> f64 {
        self.applied as f64 / self.job.cell.config.train.samples as f64
    }
}

/// Whether another try would come to the same.
fn is_final(ended: &Ended, is_trial: bool) -> bool {
    ended.as_ref().is_ok_and(|seal| match seal.outcome {
        Outcome::Completed | Outcome::Failed(_) => true,
        Outcome::Void(_) => is_trial,
    })
}

fn in_words(ended: &Ended) -> String {
    match ended {
        Ok(seal) => match &seal.outcome {
            Outcome::Completed => "completed".to_owned(),
            Outcome::Failed(why) => format!("failed: {why}"),
            Outcome::Void(why) => format!("void: {why}"),
        },
        Err(why) => format!("failed: {why}"),
    }
}
