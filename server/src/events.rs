//! The fleet's events: `events.jsonl` in its folder, one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tradewind_common::run_files;

use crate::disk;

/// An `events.jsonl` that has become longer is moved aside by whoever leads a run, and whoever writes
/// goes on in a new one.
pub const EVENTS_PART_BYTES: u64 = 4 << 20;

/// Lines that wait for a disk; what comes when it is full is missing.
const WAITING_MAX: usize = 4096;

/// How long a process that ends waits for the last lines to be written.
const LAST: Duration = Duration::from_secs(2);

/// Appends to the fleet's events. Several processes may: each line is one write at the file's end.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until it could be opened.
    file: Option<File>,
    /// Lines that could not be written since one could.
    missing: u64,
    /// The last write, or the file's last writer, left a part of a line.
    torn: bool,
}

impl EventLog {
    /// Opens `events.jsonl` in `folder`, both of which need not be there yet.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let log = Self::within(folder);
        log.state().open(&log.path)?;
        Ok(log)
    }

    /// As [`open`](Self::open), as soon as that can be done.
    pub fn within(folder: &Path) -> Self {
        Self {
            path: folder.join(run_files::EVENTS),
            state: Mutex::default(),
        }
    }

    /// Appends one event. That it could not is logged once until it can again: events tell what
    /// happens, nothing depends on them.
    pub fn write(&self, event: &impl Serialize) {
        match serde_json::to_vec(event) {
            Ok(line) => self.append(line),
            Err(error) => tracing::error!(%error, "an event cannot be told"),
        }
    }

    fn append(&self, line: Vec<u8>) {
        let path = self.path.display();
        let mut state = self.state();
        match state.append(&self.path, line) {
            Ok(()) => match std::mem::take(&mut state.missing) {
                0 => {}
                missing => tracing::warn!(%path, missing, "events can be written again"),
            },
            Err(error) => {
                state.missing += 1;
                if state.missing == 1 {
                    tracing::error!(%path, %error, "cannot write events");
                }
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing in here leaves the state half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it has been moved aside, or will be.
fn is_full(file: &File) -> bool {
    file.metadata().is_ok_and(|is| is.len() > EVENTS_PART_BYTES)
}

impl State {
    fn open(&mut self, path: &Path) -> io::Result<&mut File> {
        if self.file.is_none() {
            path.parent().map_or(Ok(()), disk::create_folders)?;
            let mut options = OpenOptions::new();
            let file = options.append(true).create(true).read(true).open(path);
            let file = file.map_err(disk::at(path))?;
            // Whoever wrote last may have been killed at it.
            self.torn = ends_within_a_line(&file).unwrap_or(true);
            self.file = Some(file);
        }
        Ok(self.file.as_mut().expect("it is open"))
    }

    fn append(&mut self, path: &Path, event: Vec<u8>) -> io::Result<()> {
        self.file.take_if(|file| is_full(file));
        self.open(path)?;
        let mut line = Vec::with_capacity(event.len() + 2);
        if self.torn {
            line.push(b'\n');
        }
        line.extend(event);
        line.push(b'\n');
        let written = self.open(path)?.write(&line)?;
        if written > 0 {
            self.torn = written < line.len();
        }
        if written < line.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

fn ends_within_a_line(file: &File) -> io::Result<bool> {
    // Not a file but a device or a pipe has no end.
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last != [b'\n'])
}

/// Events that are written on a thread of their own: a disk that does not answer holds nobody up.
#[derive(Debug)]
pub(crate) struct EventWriter {
    lines: Option<SyncSender<Vec<u8>>>,
    ended: Mutex<Receiver<()>>,
    /// Lines that found no room since one did.
    missing: Mutex<u64>,
}

impl EventWriter {
    pub(crate) fn start(log: EventLog) -> io::Result<Self> {
        let (lines, waiting) = sync_channel::<Vec<u8>>(WAITING_MAX);
        let (end, ended) = channel();
        let write = move || {
            let _end = end;
            waiting.into_iter().for_each(|line| log.append(line));
        };
        let name = "events".to_owned();
        // Not supervised: lines that find nobody to write them are missing, which is logged.
        std::thread::Builder::new().name(name).spawn(write)?;
        Ok(Self {
            lines: Some(lines),
            ended: Mutex::new(ended),
            missing: Mutex::default(),
        })
    }

    /// Has one appended. If it finds no room it is missing, which is logged.
    pub(crate) fn write(&self, event: &impl Serialize) {
        let line = match serde_json::to_vec(event) {
            Ok(line) => line,
            Err(error) => return tracing::error!(%error, "an event cannot be told"),
        };
        let lines = self.lines.as_ref().expect("it has not ended");
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.try_send(line) {
            Ok(()) => match std::mem::take(&mut *missing) {
                0 => {}
                missing => tracing::warn!(missing, "the disk takes events again"),
            },
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                *missing += 1;
                if *missing == 1 {
                    tracing::error!("the disk is too slow for events; some are missing");
                }
            }
        }
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        self.lines = None;
        // A disk that hangs keeps no process.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(LAST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(folder: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_of_several_writers_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let deeper = folder.path().join("a/b");
        std::thread::scope(|threads| {
            for writer in 0..4 {
                let log = EventLog::open(&deeper).unwrap();
                threads.spawn(move || {
                    for number in 0..100 {
                        log.write(&(writer, number, "x".repeat(writer * 500)));
                    }
                });
            }
        });
        let mut next = [0; 4];
        for line in lines(&deeper) {
            let (writer, number, _): (usize, u32, String) = serde_json::from_str(&line).unwrap();
            assert_eq!(number, next[writer]);
            next[writer] += 1;
        }
        assert_eq!(next, [100; 4]);
    }

    #[test]
    fn a_full_file_that_was_moved_aside_is_left_for_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let log = EventLog::open(folder.path()).unwrap();
        let long = "x".repeat(EVENTS_PART_BYTES as usize);
        log.write(&long);
        log.write(&1);
        std::fs::rename(file("events.jsonl"), file("events-1.jsonl")).unwrap();
        log.write(&2);
        log.write(&3);
        let read = |name| std::fs::read_to_string(file(name)).unwrap();
        assert_eq!(read("events.jsonl"), "2\n3\n");
        assert!(read("events-1.jsonl").ends_with("\"\n1\n"));
    }

    #[test]
    fn a_full_disk_stops_nothing() {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let log = EventLog::within(Path::new("/dev"));
        log.state().file = Some(full);
        log.write(&1);
        log.write(&2);
        assert_eq!(log.state().missing, 2);
    }

    #[test]
    fn a_line_that_its_writer_did_not_end_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        EventLog::open(folder.path()).unwrap().write(&"whole");
        let path = folder.path().join("events.jsonl");
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"kind\":\"ha").unwrap();
        let log = EventLog::open(folder.path()).unwrap();
        log.write(&"next");
        log.write(&"last");
        let told = ["\"whole\"", "{\"kind\":\"ha", "\"next\"", "\"last\""];
        assert_eq!(lines(folder.path()), told);
    }

    #[test]
    fn a_folder_that_comes_later_gets_what_is_told_then() {
        let folder = tempfile::tempdir().unwrap();
        let fleet = folder.path().join("fleet");
        std::fs::write(&fleet, "").unwrap();
        assert!(EventLog::open(&fleet).is_err());
        let log = EventLog::within(&fleet);
        log.write(&1);
        std::fs::remove_file(&fleet).unwrap();
        log.write(&2);
        assert_eq!(lines(&fleet), ["2"]);
    }

    /// What the disk does not take is missing, and nobody waits for it.
    #[test]
    fn a_disk_that_does_not_answer_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let log = EventLog::open(folder.path()).unwrap();
        let state = std::sync::Arc::new(log);
        let writer = {
            let (lines, waiting) = sync_channel::<Vec<u8>>(2);
            let (end, ended) = channel();
            let log = state.clone();
            std::thread::spawn(move || {
                let _end = end;
                waiting.into_iter().for_each(|line| log.append(line));
            });
            EventWriter {
                lines: Some(lines),
                ended: Mutex::new(ended),
                missing: Mutex::default(),
            }
        };
        let hangs = state.state();
        for number in 0..10 {
            writer.write(&number);
        }
        let missing = *writer.missing.lock().unwrap();
        assert!((7..=8).contains(&missing), "{missing}");
        drop(hangs);
        drop(writer);
        let told = lines(folder.path());
        assert_eq!(told.len() as u64, 10 - missing);
        assert_eq!(told[..2], ["0", "1"]);
    }
}
