//! Snapshots on disk: one file a shard and a manifest that makes them whole. docs/snapshots.md has
//! the format.

mod container;
pub mod export;
pub mod manifest;
pub mod read;
mod shard_file;
pub mod write;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tradewind_common::{RunId, ShardId, run_files};

use crate::disk;

/// The format of shard files and manifests that this program writes, and the only one it reads.
pub const FORMAT: u32 = 1;

/// A listing may lag behind by so many snapshots: that many are looked for by their names.
const UNLISTED_MAX: u64 = 32;

/// How often a snapshot that cannot be read is tried, and the pause between two tries.
pub(crate) const READ_TRIES: u32 = 5;
pub(crate) const READ_PAUSE: Duration = Duration::from_secs(2);

/// The folder of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// It need not be there yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// The snapshots of a run.
    pub fn run(&self, run: &RunId) -> PathBuf {
        self.0.join("snapshots").join(run.as_str())
    }

    /// One snapshot of a run.
    pub fn snapshot(&self, run: &RunId, number: u64) -> PathBuf {
        self.run(run).join(format!("{number:08}"))
    }

    /// The manifest of a snapshot.
    pub fn manifest(&self, run: &RunId, number: u64) -> PathBuf {
        self.snapshot(run, number).join("manifest.json")
    }

    /// The configuration that the fleet's run was started with; `None` if there is none here.
    pub fn configuration(&self) -> Option<String> {
        std::fs::read_to_string(self.0.join(run_files::CONFIG)).ok()
    }

    /// Numbers of all snapshots of a run, finished or not, in ascending order. A new snapshot's
    /// number is past all of them.
    pub fn numbers(&self, run: &RunId) -> io::Result<Vec<u64>> {
        let number = |name: String| {
            let number = name.parse().ok()?;
            (format!("{number:08}") == name).then_some(number)
        };
        let names = disk::names(&self.run(run))?;
        let mut numbers: Vec<u64> = names.into_iter().filter_map(number).collect();
        numbers.sort_unstable();
        let mut last = numbers.last().copied().unwrap_or(0);
        let mut next = last;
        while next < last.saturating_add(UNLISTED_MAX) {
            next += 1;
            if self.snapshot(run, next).try_exists()? {
                numbers.push(next);
                last = next;
            }
        }
        Ok(numbers)
    }
}

/// What the header of a shard's file says of it.
fn notes(run: &RunId, number: u64, shard: ShardId) -> [(&'static str, String); 4] {
    [
        ("format", FORMAT.to_string()),
        ("run", run.to_string()),
        ("number", number.to_string()),
        ("shard", shard.to_string()),
    ]
}

/// A file of a snapshot that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct Damaged {
    /// Which.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// It could not be read, which another try may: the file itself may be sound.
    pub may_pass: bool,
}

impl Damaged {
    pub(crate) fn new(path: &Path, fault: impl Into<Fault>) -> Self {
        let Fault { what, may_pass } = fault.into();
        Self {
            path: path.to_owned(),
            what,
            may_pass,
        }
    }
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    what: String,
    may_pass: bool,
}

impl Fault {
    /// It cannot be read. What is missing or too short stays so.
    fn unreadable(error: io::Error) -> Self {
        use io::ErrorKind::{NotFound, UnexpectedEof};
        Self {
            what: format!("cannot be read: {error}"),
            may_pass: !matches!(error.kind(), NotFound | UnexpectedEof),
        }
    }
}

impl<T: Into<String>> From<T> for Fault {
    fn from(what: T) -> Self {
        Self {
            what: what.into(),
            may_pass: false,
        }
    }
}

#[cfg(test)]
mod tests;
