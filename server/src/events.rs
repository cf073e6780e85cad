//! The fleet's events: `events.jsonl` in its folder, one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::disk;

/// An `events.jsonl` that has become longer is moved aside by whoever leads a run, and whoever writes
/// goes on in a new one.
pub const EVENTS_PART_BYTES: u64 = 4 << 20;

/// Appends to the fleet's events. Several processes may: each line is one write at the file's end.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// The last write failed, and that was said.
    failing: bool,
    /// The last write left a part of a line.
    torn: bool,
}

impl EventLog {
    /// Opens `events.jsonl` in `folder`, both of which need not be there yet.
    pub fn open(folder: &Path) -> io::Result<Self> {
        disk::create_folders(folder)?;
        let path = folder.join("events.jsonl");
        let file = open(&path).map_err(disk::at(&path))?;
        Ok(Self::with(file, path))
    }

    fn with(file: File, path: PathBuf) -> Self {
        let state = Mutex::new(State {
            file,
            failing: false,
            torn: false,
        });
        Self { path, state }
    }

    /// Appends one event. That it could not is logged once until it can again: events tell what
    /// happens, nothing depends on them.
    pub fn write(&self, event: &impl Serialize) {
        // Nothing in here leaves the state half-changed.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if is_full(&state.file)
            && let Ok(fresh) = open(&self.path)
        {
            state.file = fresh;
        }
        match state.append(event) {
            Ok(()) => state.failing = false,
            Err(error) if !state.failing => {
                state.failing = true;
                tracing::error!(path = %self.path.display(), %error, "cannot write events");
            }
            Err(_) => {}
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Whether it has been moved aside, or will be.
fn is_full(file: &File) -> bool {
    file.metadata().is_ok_and(|is| is.len() > EVENTS_PART_BYTES)
}

impl State {
    fn append(&mut self, event: &impl Serialize) -> io::Result<()> {
        let mut line = Vec::new();
        if self.torn {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, event)?;
        line.push(b'\n');
        let written = self.file.write(&line)?;
        if written > 0 {
            self.torn = written < line.len();
        }
        if written < line.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = std::fs::read_to_string(deeper.join("events.jsonl")).unwrap();
        let mut next = [0; 4];
        for line in text.lines() {
            let (writer, number, _): (usize, u32, String) = serde_json::from_str(line).unwrap();
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
        let log = EventLog::with(full, "/dev/full".into());
        log.write(&1);
        log.write(&2);
        assert!(log.state.lock().unwrap().failing);
    }
}
