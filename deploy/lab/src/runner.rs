//! Runs cells, as many side by side as fit.
//!
//! Cells are started together, and the next ones when all of these have ended: processes that start
//! take cores from those that train, and a cell that misses its pace for that is worth nothing. All
//! that are started together are of one setting: they train equally long, and none is evaluated while
//! another still trains. Where only one runs at a time they come seed by seed instead. Of a trial it is
//! not the time that counts: the next one begins as soon as there is a place.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tradewind_common::record::StepRecord;

use super::cell::{self, CellOutcome, CellRecord};
use super::display::Display;
use super::earlier_job::{Leaving, Next, Queue, Try};
use super::job::Job;
use super::machine::{self, Host};
use super::matrix::Cell;
use tradewind_folder::clock::Clock;
use tradewind_folder::lines::Metrics;
use tradewind_launch::run::Interruption;
use tradewind_launch::slurm::is_handed_in;
use tradewind_launch::{LOOK, Process, Role};

/// How often a cell is run that fails, or that misses its pace.
const TRIES: u32 = 2;

/// How long handing a job in may take when this command is interrupted.
const HANDING_IN: Duration = Duration::from_secs(30);

/// What became of a cell: its record, or why it has none.
pub type Ended = Result<CellRecord, String>;

/// What runs cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// This machine, as many together as it holds.
    Machine,
    /// Slurm, so many jobs at a time.
    Slurm { at_once: usize },
}

/// Where cells run, and what runs them.
pub struct Runner {
    folder: PathBuf,
    program: PathBuf,
    on: On,
    queue: Queue,
}

/// How it came to its end.
pub enum Ran {
    All(BTreeMap<String, Ended>),
    Interrupted(BTreeMap<String, Ended>),
}

struct Running<'a> {
    job: Job<'a>,
    /// Which try it is.
    number: u32,
    process: Process,
    metrics: Metrics,
    applied: u64,
    loss: Option<f64>,
}

impl Runner {
    /// For the experiment in `folder`.
    pub fn new(folder: &Path, on: On) -> anyhow::Result<Self> {
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
            queue: Queue::slurm(),
        })
    }

    /// With another program and queue in place of `tradewind` and Slurm.
    #[cfg(test)]
    pub fn with(self, program: &Path, queue: Queue) -> Self {
        Self {
            program: program.to_owned(),
            queue,
            ..self
        }
    }

    /// What runs cells.
    pub fn on(&self) -> On {
        self.on
    }

    /// The folder of a cell.
    pub fn run_folder(&self, cell: &Cell) -> PathBuf {
        self.named(&cell.id)
    }

    /// The folder of a cell or a trial of this name.
    pub fn named(&self, id: &str) -> PathBuf {
        self.folder.join("runs").join(id)
    }

    /// The log of what runs under a name.
    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.log"))
    }

    /// Writes a cell's resolved configuration down; where.
    pub fn write_config(&self, cell: &Cell) -> anyhow::Result<PathBuf> {
        let path = self
            .folder
            .join("configs")
            .join(format!("{}.toml", cell.id));
        std::fs::write(&path, cell.config.resolved())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Runs all of them, at most `at_once` together.
    ///
    /// # Errors
    /// One of them cannot be started, as it is where the disk is full; those that ran then are ended in
    /// order. The same call goes on from what is finished.
    pub async fn run(
        &self,
        jobs: &[Job<'_>],
        at_once: usize,
        display: &mut Display,
        interruption: &mut Interruption,
    ) -> anyhow::Result<Ran> {
        let mut running = Vec::new();
        let ran = self
            .run_beside(&mut running, jobs, at_once, display, interruption)
            .await;
        Process::stop_all(running.iter_mut().map(|one| &mut one.process).collect());
        ran
    }

    /// As [`run`](Self::run); leaves those in `running` that have not ended.
    async fn run_beside<'a>(
        &self,
        running: &mut Vec<Running<'a>>,
        jobs: &[Job<'a>],
        at_once: usize,
        display: &mut Display,
        interruption: &mut Interruption,
    ) -> anyhow::Result<Ran> {
        let clock = Clock::start();
        let mut waiting: VecDeque<Try<'_>> = jobs.iter().map(|job| Try::new(*job, 1)).collect();
        let mut ended = BTreeMap::new();
        // Those whose former jobs are not over.
        let mut held: Vec<Try<'_>> = Vec::new();
        let mut leaving: Vec<Leaving> = Vec::new();
        while !waiting.is_empty() || !running.is_empty() || !held.is_empty() {
            // Jobs of Slurm take nothing from each other.
            let apart = self.on != On::Machine;
            let now = clock.elapsed();
            leaving.retain_mut(|job| !job.has_ended(&self.queue, now));
            let mut due: Vec<Try<'_>> = held.extract_if(.., |one| one.is_due(now)).collect();
            while let Some(next) = waiting.front()
                && running.len() + held.len() + due.len() + leaving.len() < at_once
                && (apart || has_place(next, running, &due))
            {
                display.began(&next.job.cell.id, next.job.work());
                due.extend(waiting.pop_front());
            }
            for one in due {
                let id = one.job.cell.id.clone();
                let came_to = match self.next(one, now, display) {
                    Next::Begin { this, follows } => {
                        running.push(self.start(this, follows)?);
                        continue;
                    }
                    Next::Wait(this) => {
                        held.push(this);
                        continue;
                    }
                    Next::Ended(record) => Ok(record),
                    Next::GiveUp(why) => Err(why),
                };
                display.ended(&id, &in_words(&came_to), false);
                ended.insert(id, came_to);
            }
            tokio::select! {
                by = interruption.wait() => {
                    display.message(&format!("{by}: {}", match apart {
                        true => "the jobs are left alone; the same command gathers what they come to",
                        false => "ending all cells; the same command goes on with those that are not finished",
                    }));
                    if apart {
                        self.let_hand_in(running).await;
                    }
                    return Ok(Ran::Interrupted(ended));
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            let mut at = 0;
            while let Some(one) = running.get_mut(at) {
                one.look();
                let Some(end) = one.process.poll()? else {
                    display.moved(&one.job.cell.id, one.part(), one.loss);
                    at += 1;
                    continue;
                };
                let one = running.remove(at);
                if apart {
                    leaving.push(Leaving::new(self.run_folder(one.job.cell)));
                }
                let came_to = self.record(one.job.cell, end.to_string());
                let again = one.number < TRIES && !is_final(&came_to, one.job.is_trial);
                display.ended(&one.job.cell.id, &in_words(&came_to), again);
                if again {
                    waiting.push_back(Try::new(one.job, one.number + 1));
                } else {
                    ended.insert(one.job.cell.id.clone(), came_to);
                }
            }
        }
        Ok(Ran::All(ended))
    }

    /// Runs one cell alone, and measures the most memory that one of its ranks took, in bytes.
    pub async fn measure(
        &self,
        cell: &Cell,
        interruption: &mut Interruption,
    ) -> anyhow::Result<Option<f64>> {
        let alone = Job {
            cell,
            part: 1.0,
            is_trial: false,
        };
        let mut running = self.start(Try::new(alone, 1), false)?;
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
                self.record(cell, end.to_string())
                    .map_err(anyhow::Error::msg)?;
                return Ok(Some(bytes));
            }
        }
    }

    /// What comes next for a try.
    fn next<'a>(&self, one: Try<'a>, now: Duration, display: &Display) -> Next<'a> {
        let folder = self.run_folder(one.job.cell);
        match self.on {
            On::Machine => one.look_here(&folder, &self.queue),
            On::Slurm { .. } => one.look(&folder, &self.queue, now, display),
        }
    }

    /// Lets those that are just handing a job in do so: one whose number nobody has written down would
    /// be handed in a second time.
    async fn let_hand_in(&self, running: &mut [Running<'_>]) {
        let mut waited = Duration::ZERO;
        let handing_in = |one: &mut Running<'_>| {
            !is_handed_in(&self.run_folder(one.job.cell)) && matches!(one.process.poll(), Ok(None))
        };
        while waited < HANDING_IN && running.iter_mut().any(handing_in) {
            tokio::time::sleep(LOOK).await;
            waited += LOOK;
        }
    }

    fn start<'a>(&self, this: Try<'a>, follows: bool) -> anyhow::Result<Running<'a>> {
        let Try { job, number, .. } = this;
        let id = &job.cell.id;
        let folder = self.run_folder(job.cell);
        let config = self.write_config(job.cell)?;
        let out = format!("--out={}", folder.display());
        let config = config.display().to_string();
        let arguments: Vec<String> = match self.on {
            On::Machine => vec!["run".into(), config, out],
            // Its job was handed in when this command was called before.
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
            number,
            process,
            metrics: Metrics::new(folder.join("metrics.jsonl")),
            applied: 0,
            loss: None,
        })
    }

    fn record(&self, cell: &Cell, end: String) -> Ended {
        // A job's node is not this machine.
        let host = (self.on == On::Machine).then(Host::here);
        let recorded = cell::record(&self.run_folder(cell), host);
        let log = self.log(&cell.id);
        recorded.map_err(
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

/// Whether the machine has a place for `next` beside those that run and those that are about to.
fn has_place(next: &Try<'_>, running: &[Running<'_>], due: &[Try<'_>]) -> bool {
    let begun = due.iter().map(|one| (one.job, one.number));
    let others = running.iter().map(|one| (one.job, one.number)).chain(begun);
    let others: Vec<(Job<'_>, u32)> = others.collect();
    if others.is_empty() {
        return true;
    }
    let joins = next.job.is_trial || {
        let setting = next.job.cell.setting;
        running.is_empty() && due.iter().all(|one| one.job.cell.setting == setting)
    };
    // One that is run again has the machine to itself.
    let all_first = next.number == 1 && others.iter().all(|(_, number)| *number == 1);
    let taken: f64 = others.iter().map(|(job, _)| job.part).sum();
    joins && all_first && taken + next.job.part <= 1.0
}

/// Whether another try would come to the same.
fn is_final(ended: &Ended, is_trial: bool) -> bool {
    ended.as_ref().is_ok_and(|record| match record.outcome {
        CellOutcome::Completed | CellOutcome::Failed(_) => true,
        CellOutcome::Void(_) => is_trial,
    })
}

fn in_words(ended: &Ended) -> String {
    match ended {
        Ok(record) => match &record.outcome {
            CellOutcome::Completed => "completed".to_owned(),
            CellOutcome::Failed(why) => format!("failed: {why}"),
            CellOutcome::Void(why) => format!("void: {why}"),
        },
        Err(why) => format!("failed: {why}"),
    }
}
