//! Keeps the files of a run's folder that grow with time within bounds.
//!
//! Whoever leads a run moves a file aside when it is full, under the next number; whoever writes into it
//! sees that it is full and opens what has its name now. Nothing is copied, so nothing is lost, whenever
//! somebody dies. `events.jsonl` keeps its last parts. The parts of `metrics.jsonl` become one that is
//! thinned until it is small enough: rows of a group are merged, so that curves still go from the
//! beginning to the end and sums stay what they were.

mod thin;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use tradewind_common::record::{METRICS_PART_BYTES, StepRecord};
use tradewind_common::run_files;
use tradewind_server::events::EVENTS_PART_BYTES;

use crate::lines::Lines;
use crate::parts::{Parts, part_name, thinned_name};
use crate::records::latest;
use tradewind_process::whole;

/// Parts of `events.jsonl` that are kept, without the one that grows.
const EVENTS_KEPT: usize = 4;

/// Parts of `metrics.jsonl` that are not thinned: whoever is slow may still write into the last one.
const METRICS_KEPT: usize = 1;

/// What a thinned part may have, unless its groups are so many that a few rows of each are more.
const THINNED_BYTES: usize = 32 << 20;

/// In the place of lines that are no records: whoever reads the thinned part shall hear of them, too.
const DAMAGED: &str = "\"damaged lines were here\"\n";

/// One of several that lead a run moves its servers' files aside at a time.
const LOCK: &str = ".rotation.lock";

/// The files of a run that are kept small.
#[derive(Debug)]
pub struct Rotation {
    metrics: PathBuf,
    events: PathBuf,
    thinning: Option<JoinHandle<io::Result<()>>>,
    /// What went wrong last, and was said.
    said: Option<String>,
}

impl Rotation {
    /// Of the run in this folder, and of its servers.
    pub fn new(run: &Path, fleet: &Path) -> Self {
        Self {
            metrics: run.join(run_files::METRICS),
            events: fleet.join(run_files::EVENTS),
            thinning: None,
            said: None,
        }
    }

    /// Looks after the files. A line for people if that cannot be done, once.
    pub fn look(&mut self) -> Option<String> {
        let said = self.try_look().err().map(|error| error.to_string());
        let news = said.clone().filter(|_| said != self.said);
        self.said = said;
        news.map(|why| format!("files of the run's folder cannot be kept small: {why}"))
    }

    fn try_look(&mut self) -> io::Result<()> {
        let done = self.thinning.take_if(|thinning| thinning.is_finished());
        let done = done.map(|thinning| thinning.join().expect("it does not panic"));
        if move_aside(&self.events, EVENTS_PART_BYTES)? {
            forget(&self.events)?;
        }
        // The parts of a start before may wait to be thinned, too.
        let moved = move_aside(&self.metrics, METRICS_PART_BYTES)?;
        if self.thinning.is_none() && (moved || done.is_none()) && wants_thinning(&self.metrics)? {
            let path = self.metrics.clone();
            // Not supervised: it is joined here, and what it panics with goes on here. Rows are many,
            // and processes are to be looked after meanwhile.
            self.thinning = Some(std::thread::spawn(move || thin(&path, THINNED_BYTES)));
        }
        done.unwrap_or(Ok(()))
    }
}

/// Gives a file that is full the next number; whether it did.
fn move_aside(path: &Path, part_bytes: u64) -> io::Result<bool> {
    if !is_full(path, part_bytes) {
        return Ok(false);
    }
    let lock = File::create(path.with_file_name(LOCK))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Another one may just have done it.
    if !is_full(path, part_bytes) {
        return Ok(false);
    }
    fs::rename(path, part_name(path, Parts::of(path)?.next()))?;
    Ok(true)
}

fn is_full(path: &Path, part_bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|is| is.len() > part_bytes)
}

/// Deletes the oldest parts of the events.
fn forget(path: &Path) -> io::Result<()> {
    let parts = Parts::of(path)?;
    let old = parts.numbers().len().saturating_sub(EVENTS_KEPT);
    for number in &parts.numbers()[..old] {
        remove(&part_name(path, *number))?;
    }
    Ok(())
}

fn wants_thinning(path: &Path) -> io::Result<bool> {
    let parts = Parts::of(path)?;
    Ok(parts.numbers().len() > METRICS_KEPT || !parts.stale.is_empty())
}

/// Makes one part of all but the last ones. It has its name once it is whole, and from then on stands for
/// those that went into it, deleted or not.
fn thin(path: &Path, bytes: usize) -> io::Result<()> {
    let parts = Parts::of(path)?;
    for stale in &parts.stale {
        remove(stale)?;
    }
    let old = parts.numbers().len().saturating_sub(METRICS_KEPT);
    let Some(last) = old.checked_sub(1).map(|at| parts.numbers()[at]) else {
        return Ok(());
    };
    let mut records: Vec<StepRecord> = Vec::new();
    let mut text = String::new();
    for part in parts.paths().into_iter().take(parts.thinned() + old) {
        let mut lines = Lines::only(part);
        records.extend(lines.fresh()?);
        if lines.complaint().is_some() {
            text = DAMAGED.to_owned();
        }
    }
    text += &thin::thinned(latest(records), bytes);
    // What it stands for is deleted.
    whole::replace(&thinned_name(path, last), text)?;
    for part in parts.paths().into_iter().take(parts.thinned() + old) {
        remove(&part)?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests;
