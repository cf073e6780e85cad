//! What is left of a cell's earlier job when the cell is to be handed in to Slurm: this command may have
//! been away meanwhile, and a job lives on for a while when its run is over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cell::{self, CellRecord, Unfinished};
use super::display::Display;
use super::job::Job;
use tradewind_launch::slurm::{has_jobs, is_handed_in};

/// Least time between two questions for a cell's job.
const ASK: Duration = Duration::from_secs(20);

/// The same of a job that ends any moment.
const LEAVING: Duration = Duration::from_secs(3);

/// How often in a row Slurm may fail to answer for a cell before that is not run.
const FAILURES_MAX: u32 = 30;

/// Who is asked for jobs, and how often.
pub struct Queue {
    /// Whether a run has jobs that are not over.
    pub has_jobs: fn(&Path) -> anyhow::Result<bool>,
    pub pause: Duration,
    /// The same of one whose run is over.
    pub leaving: Duration,
}

impl Queue {
    pub(super) fn slurm() -> Self {
        Self {
            has_jobs,
            pause: ASK,
            leaving: LEAVING,
        }
    }
}

/// What a cell's folder holds of an earlier job.
#[derive(Debug, PartialEq)]
pub(super) enum EarlierJob {
    /// Nothing that counts, and nobody works in it.
    Nothing,
    /// A run that goes on, or waits for nodes.
    UnderWay,
    /// A run that has come to its end while nobody looked.
    Ended(CellRecord),
    /// A job that is of no use any more, but not over. Why it is waited for.
    Leftover(String),
}

impl EarlierJob {
    /// # Errors
    /// Slurm does not answer.
    fn of(job: &Job<'_>, folder: &Path, queue: &Queue) -> anyhow::Result<Self> {
        // Asked first: what a job writes at its end is there once it is over.
        let has_jobs = (queue.has_jobs)(folder)?;
        match cell::gather(job.cell, folder) {
            Ok(record) => return Ok(Self::Ended(record)),
            Err(Unfinished::Void(record)) if job.is_trial => return Ok(Self::Ended(*record)),
            Err(_) if !has_jobs => return Ok(Self::Nothing),
            Err(_) => {}
        }
        // Whoever followed a job whose run is over would take the earlier try for this one; whoever
        // cleared the folder away would do so under its processes.
        if cell::is_over(folder) {
            let why = "its earlier run is over, and is waited for until its job is, too";
            return Ok(Self::Leftover(why.to_owned()));
        }
        if !cell::is_of(job.cell, folder) {
            return Ok(Self::Leftover(format!(
                "a job with another configuration is under way; its end is waited for, which `tradewind slurm cancel {}` brings about",
                folder.display()
            )));
        }
        Ok(Self::UnderWay)
    }
}

/// A try of a cell that has not begun.
pub(super) struct Try<'a> {
    pub(super) job: Job<'a>,
    /// Which one it is, from 1.
    pub(super) number: u32,
    /// When its folder is looked at.
    next: Duration,
    /// What was last told of it.
    told: String,
    failures: u32,
}

/// A job whose run is over, and which Slurm counts until it has ended itself.
pub(super) struct Leaving {
    folder: PathBuf,
    next: Duration,
}

impl Leaving {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            next: Duration::ZERO,
        }
    }

    /// Whether it has ended. If Slurm does not answer, the next one to hand a job in will hear that.
    pub(super) fn has_ended(&mut self, queue: &Queue, now: Duration) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + queue.leaving;
        !(queue.has_jobs)(&self.folder).unwrap_or(false)
    }
}

/// What comes next for a try.
pub(super) enum Next<'a> {
    /// It begins; whether it `follows` a job that is there.
    Begin {
        this: Try<'a>,
        follows: bool,
    },
    Ended(CellRecord),
    /// It is looked at again later.
    Wait(Try<'a>),
    GiveUp(String),
}

impl<'a> Try<'a> {
    pub(super) fn new(job: Job<'a>, number: u32) -> Self {
        Self {
            job,
            number,
            next: Duration::ZERO,
            told: String::new(),
            failures: 0,
        }
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Looks at what is left of an earlier job.
    pub(super) fn look(
        mut self,
        folder: &Path,
        queue: &Queue,
        now: Duration,
        display: &Display,
    ) -> Next<'a> {
        let why = match EarlierJob::of(&self.job, folder, queue) {
            Ok(EarlierJob::Nothing) => return self.begin(false),
            Ok(EarlierJob::UnderWay) => return self.begin(true),
            Ok(EarlierJob::Ended(record)) => return Next::Ended(record),
            Ok(EarlierJob::Leftover(why)) => {
                self.failures = 0;
                why
            }
            Err(error) if self.failures == FAILURES_MAX => {
                return Next::GiveUp(format!("its former job cannot be asked for: {error:#}"));
            }
            Err(error) => {
                self.failures += 1;
                format!("its former job cannot be asked for, which is tried again: {error:#}")
            }
        };
        if why != self.told {
            display.message(&format!("{}: {why}", self.job.cell.id));
            self.told = why;
        }
        self.next = now + queue.pause;
        Next::Wait(self)
    }

    /// As [`Self::look`], of a cell that is to run on this machine: nobody may work in its folder.
    pub(super) fn look_here(self, folder: &Path, queue: &Queue) -> Next<'a> {
        if !is_handed_in(folder) {
            return self.begin(false);
        }
        let folder_name = folder.display();
        match (queue.has_jobs)(folder) {
            Ok(false) => self.begin(false),
            Ok(true) => Next::GiveUp(format!(
                "a job of Slurm that is not over works in {folder_name}; go on with --slurm, or end it: `tradewind slurm cancel {folder_name}`"
            )),
            Err(error) => Next::GiveUp(format!(
                "whether its former job is over cannot be asked for: {error:#}; go on with --slurm where Slurm is, or remove {folder_name}"
            )),
        }
    }

    fn begin(self, follows: bool) -> Next<'a> {
        Next::Begin {
            this: self,
            follows,
        }
    }
}
