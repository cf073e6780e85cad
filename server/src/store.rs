//! The coordinator's durable state, and who may act on it.
//!
//! Of all coordinators that were ever started on a folder only the last may act. No lock is held and
//! no clock is read: each *claims* the next number by creating `claim-N`, which can succeed once,
//! and then reads the state that a former one left; each *writes* only files of its own,
//! `state-N.json` and the changes behind it, and afterwards looks for later claims. So of a former
//! coordinator that writes and a new one that claims at the same time, at least one sees the other:
//!
//! ```text
//! former: write state-M, then look for claims    new: create claim-N, then read states
//! ```
//!
//! Either `state-M` was written before `claim-N`, and the new one reads it; or it was written after,
//! and the former one finds the claim, learns that it is deposed, and acts on nothing that it wrote.
//! What it acted on before, it had written before it looked, and had found no claim then. This
//! needs a file system on which a file that one host has created is found by its name when another looks
//! for it later; docs/snapshots.md says which are. Listings may lag behind: claims follow each other
//! without a gap, so that each, and each state, is looked for by its name, and a listing only says where
//! to begin.
//!
//! A state is written whole now and then; what changes is written behind it, in `journal-N-K.json`, so that
//! a change costs what it is, however much there is (`store/journal.rs`). The state names its journal, which is
//! there before it: a journal that is missing is damage.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tradewind_common::{Incarnation, run_files};
use tradewind_process::whole;

use crate::disk;

mod journal;

use self::journal::Journal;

/// Changes behind a state may be so long before a state is written again, bytes; or as long as the state.
const JOURNAL_BYTES_MIN: u64 = 1 << 20;

/// How often a state is read again whose journal is not there any more: it has been written anew.
const READS_MAX: u32 = 100;

/// Most coordinators that may claim at once.
const CLAIMS_AT_ONCE_MAX: u32 = 1000;

/// Why the state was not written, or not read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk failed; may be tried again.
    #[error("{}: {source}", path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
    /// There is a later coordinator: this one must not act any more.
    #[error("coordinator {by} has taken over")]
    Deposed {
        /// The later one.
        by: Incarnation,
    },
    /// The state cannot be used. An older one is no way out: it does not know who was removed since,
    /// and acting on it could bring back values that are older than what was acknowledged.
    #[error(
        "{}: {what}. No coordinator may start from an older state, for it would not know who holds \
         what. Put this file back as it was, or stop all servers and workers of this folder, move \
         {} aside and resume the runs from their snapshots (--resume)",
        path.display(), path.parent().unwrap_or(path).display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// The right to be the coordinator, until there is a later claim.
#[derive(Debug)]
pub struct Store {
    within: PathBuf,
    incarnation: Incarnation,
    /// Whose state was taken over; it is kept, older ones are deleted.
    former: Option<Incarnation>,
    /// One write at a time.
    writing: Mutex<Writing>,
}

/// What a coordinator is at.
#[derive(Debug, Default)]
struct Writing {
    /// Who deposed this one, once that is known.
    deposed: Option<Incarnation>,
    /// The number of the last journal that was begun.
    number: u64,
    /// The one that changes can be written to.
    journal: Option<Journal>,
    /// Bytes of the state that it is behind.
    state_bytes: u64,
}

/// What a coordinator has written: a state, and what has changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// As it was given to [`Store::write`].
    pub state: Vec<u8>,
    /// As they were given to [`Store::append`], oldest first.
    pub changes: Vec<Vec<u8>>,
}

/// What [`Store::claim`] gives.
#[derive(Debug)]
pub struct Claimed {
    /// Where to write from now on.
    pub store: Store,
    /// The coordinator's: larger than all former ones.
    pub incarnation: Incarnation,
    /// What the last coordinator wrote; `None` if none ever has.
    pub former: Option<Written>,
}

/// Where the coordinator is: `address.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Which coordinator.
    pub incarnation: Incarnation,
    /// host:port
    pub address: String,
}

impl Store {
    /// What the last coordinator wrote; `None` if none ever has. Who only looks deposes nobody.
    pub fn look(folder: &Path) -> Result<Option<Written>, StoreError> {
        let newest = read_newest(&folder.join(run_files::COORDINATOR), Incarnation(u64::MAX))?;
        Ok(newest.map(|(_, written)| written))
    }

    /// Becomes the coordinator of the fleet whose folder this is, and deposes all former ones.
    /// [`StoreError::Deposed`] if somebody else has done so meanwhile.
    pub fn claim(folder: &Path) -> Result<Claimed, StoreError> {
        let within = folder.join(run_files::COORDINATOR);
        disk::create_folders(&within).map_err(at(&within))?;
        // One that could not start must not end one that runs.
        read_newest(&within, Incarnation(u64::MAX))?;
        let incarnation = take_next(&within)?;
        between(Step::Claimed);
        let former = read_newest(&within, incarnation)?;
        let store = Self {
            within,
            incarnation,
            former: former.as_ref().map(|(former, _)| *former),
            writing: Mutex::default(),
        };
        // Later ones may have deleted the states that this one looked for.
        store.check()?;
        Ok(Claimed {
            store,
            incarnation,
            former: former.map(|(_, written)| written),
        })
    }

    /// Writes the state, in place of what this coordinator wrote before. Only after `Ok` may it be
    /// acted on: it is durable, and when it had become so there was no later coordinator. After
    /// [`StoreError::Disk`] it may or may not have been written.
    pub fn write(&self, state: &[u8]) -> Result<(), StoreError> {
        let mut writing = self.writing()?;
        // Of the state that is there now nothing more may be said.
        writing.journal = None;
        writing.number += 1;
        let number = writing.number;
        let path = state_path(&self.within, self.incarnation);
        // Nobody else writes it.
        let part = self
            .within
            .join(format!("state-{}.json.part", self.incarnation));
        let behind = journal_path(&self.within, self.incarnation, number);
        let journal = Journal::create(behind);
        let written = journal.and_then(|journal| {
            disk::replace_secret_by(
                part,
                &path,
                disk::with_checksum(&with_journal(state, number)),
            )?;
            Ok(journal)
        });
        let written = written.map_err(at(&path));
        between(Step::Written);
        self.is_latest(&mut writing)?;
        writing.journal = Some(written?);
        writing.state_bytes = state.len() as u64;
        self.forget(number);
        Ok(())
    }

    /// Writes a change behind the state that this coordinator has written last, and behind what has
    /// changed since. What is so of [`write`](Self::write) is so of this; after [`StoreError::Disk`] the
    /// state has to be written next.
    ///
    /// # Panics
    /// If no change can be written ([`takes_changes`](Self::takes_changes)).
    pub fn append(&self, change: &[u8]) -> Result<(), StoreError> {
        let mut writing = self.writing()?;
        let mut journal = writing.journal.take().expect("changes can be written");
        let appended = journal.append(change);
        between(Step::Written);
        self.is_latest(&mut writing)?;
        let path = journal_path(&self.within, self.incarnation, writing.number);
        appended.map_err(at(&path))?;
        writing.journal = Some(journal);
        Ok(())
    }

    /// Whether changes can be written: a state was, and they are not so long that it had better be written
    /// again.
    pub fn takes_changes(&self) -> bool {
        let writing = self.lock();
        let most = writing.state_bytes.max(JOURNAL_BYTES_MIN);
        let journal = writing.journal.as_ref();
        journal.is_some_and(|journal| journal.bytes() < most)
    }

    fn lock(&self) -> MutexGuard<'_, Writing> {
        // What a panic leaves half-written has no journal, and the state is written next.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> Result<MutexGuard<'_, Writing>, StoreError> {
        let writing = self.lock();
        match writing.deposed {
            Some(by) => Err(StoreError::Deposed { by }),
            None => Ok(writing),
        }
    }

    /// Looks for later claims, after something was written.
    fn is_latest(&self, writing: &mut Writing) -> Result<(), StoreError> {
        writing.deposed = self.later()?;
        match writing.deposed {
            Some(by) => Err(StoreError::Deposed { by }),
            None => Ok(()),
        }
    }

    /// Says where this coordinator is. Does nothing if that is said already, so it may be called
    /// again and again. Never overwrites a later coordinator's address.
    pub fn publish_address(&self, address: &str) -> Result<(), StoreError> {
        let path = self.within.join(run_files::ADDRESS);
        let own = Address {
            incarnation: self.incarnation,
            address: address.to_owned(),
        };
        let guard = self.within.join("address.lock");
        let lock = OpenOptions::new().create(true).append(true).open(&guard);
        let lock = lock.map_err(at(&guard))?;
        // With the lock, nobody is between the look and the write. Who holds it for long is stuck, and
        // the caller comes again. Where the file system has no locks, the lower of two that come at
        // once could win, until the higher calls again.
        if let Err(fs::TryLockError::WouldBlock) = lock.try_lock() {
            let error = io::Error::new(io::ErrorKind::WouldBlock, "another coordinator holds it");
            return Err(at(&guard)(error));
        }
        self.check()?;
        match read_address(self.root()) {
            Ok(Some(there)) if there.incarnation > self.incarnation => Err(StoreError::Deposed {
                by: there.incarnation,
            }),
            Ok(Some(there)) if there == own => Ok(()),
            // What cannot be read is nobody's address.
            _ => {
                let json = serde_json::to_vec(&own).map_err(io::Error::from);
                let part = self
                    .within
                    .join(format!("address-{}.part", self.incarnation));
                let written = json.and_then(|json| disk::replace_by(part, &path, &json));
                written.map_err(at(&path))
            }
        }
    }

    /// Gives a sign of life, for those whom the network does not reach. It need not be durable.
    pub fn give_sign(&self, beat: u64) -> Result<(), StoreError> {
        let path = self.within.join("alive.json");
        let own = Alive {
            incarnation: self.incarnation,
            beat,
        };
        let part = self.within.join(format!("alive-{}.part", self.incarnation));
        let json = serde_json::to_vec(&own).map_err(io::Error::from);
        json.and_then(|json| whole::write_by(part, &path, json))
            .map_err(at(&path))
    }

    /// Whether this is still the coordinator. One that has nothing to write learns it here.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.later()? {
            Some(by) => Err(StoreError::Deposed { by }),
            None => Ok(()),
        }
    }

    fn root(&self) -> &Path {
        self.within.parent().unwrap_or(&self.within)
    }

    /// The latest coordinator, if it is a later one than this.
    fn later(&self) -> Result<Option<Incarnation>, StoreError> {
        let listed = highest(&self.within, &["claim"])?;
        let latest = latest_claim(&self.within, listed.max(self.incarnation))?;
        Ok(Some(latest).filter(|latest| *latest > self.incarnation))
    }

    /// Deletes what nobody will read: states older than the one that was taken over, what was
    /// left of writing them, and journals that are not behind a state any more, of which `number` is the
    /// present one. That there is no later claim yet makes it safe: whoever claims now finds the state that
    /// has just been written.
    fn forget(&self, number: u64) {
        let old = |name: &String| {
            let whole = name.split(".part").next().unwrap_or(name);
            let state = numbered(whole, "state").is_some_and(|of| Some(of) < self.former);
            let journal = journal_of(whole).is_some_and(|(of, n)| {
                Some(of) < self.former || (of == self.incarnation && n < number)
            });
            state || journal
        };
        let names = disk::names(&self.within).unwrap_or_default();
        for name in names.iter().filter(|name| old(name)) {
            // It is in nobody's way, and is tried again.
            let _ = fs::remove_file(self.within.join(name));
        }
    }
}

/// Where the coordinator of the fleet whose folder this is was last; `None` if it was nowhere yet.
pub fn read_address(folder: &Path) -> io::Result<Option<Address>> {
    let path = folder.join(run_files::COORDINATOR_ADDRESS);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(disk::at(&path))?,
    };
    let address = serde_json::from_slice(&bytes).map_err(io::Error::from);
    address.map(Some).map_err(disk::at(&path))
}

/// A sign of life of the coordinator: `alive.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Which coordinator.
    pub incarnation: Incarnation,
    /// One more each time.
    pub beat: u64,
}

/// The last sign of life; `None` if there is none that can be read.
pub fn read_alive(folder: &Path) -> Option<Alive> {
    let bytes = fs::read(folder.join(run_files::COORDINATOR).join("alive.json")).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn at(path: &Path) -> impl Fn(io::Error) -> StoreError + '_ {
    move |source| StoreError::Disk {
        path: path.to_owned(),
        source,
    }
}

fn state_path(within: &Path, of: Incarnation) -> PathBuf {
    within.join(format!("state-{of}.json"))
}

fn journal_path(within: &Path, of: Incarnation, number: u64) -> PathBuf {
    within.join(format!("journal-{of}-{number}.json"))
}

/// The numbers in `journal-N-K.json`.
fn journal_of(name: &str) -> Option<(Incarnation, u64)> {
    let rest = name.strip_prefix("journal-")?.strip_suffix(".json")?;
    let (of, number) = rest.split_once('-')?;
    Some((Incarnation(of.parse().ok()?), number.parse().ok()?))
}

const WITH_JOURNAL: (&[u8], &[u8], &[u8]) = (b"{\"journal\":", b",\"state\":", b"}");

/// A state that names its journal; JSON again.
fn with_journal(state: &[u8], number: u64) -> Vec<u8> {
    let number = number.to_string();
    let (begin, middle, end) = WITH_JOURNAL;
    [begin, number.as_bytes(), middle, state, end].concat()
}

/// The state, and its journal. One that names none was written when there were none.
fn without_journal(content: &[u8]) -> (&[u8], Option<u64>) {
    let named = || {
        let rest = content.strip_prefix(WITH_JOURNAL.0)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = rest.split_at(digits);
        let state = rest.strip_prefix(WITH_JOURNAL.1)?;
        let state = state.strip_suffix(WITH_JOURNAL.2)?;
        Some((state, std::str::from_utf8(number).ok()?.parse().ok()?))
    };
    match named() {
        Some((state, number)) => (state, Some(number)),
        None => (content, None),
    }
}

fn claim_path(within: &Path, of: Incarnation) -> PathBuf {
    within.join(format!("claim-{of}"))
}

/// The number in `claim-N` or `state-N.json`.
fn numbered(name: &str, kind: &str) -> Option<Incarnation> {
    let rest = name.strip_prefix(kind)?.strip_prefix('-')?;
    let number = match kind {
        "state" => rest.strip_suffix(".json")?,
        _ => rest,
    };
    number.parse().ok().map(Incarnation)
}

/// The highest number of files of these kinds; 0 if there are none.
fn highest(within: &Path, kinds: &[&str]) -> Result<Incarnation, StoreError> {
    let names = disk::names(within).map_err(at(within))?;
    let number = |name: &String| kinds.iter().find_map(|kind| numbered(name, kind));
    Ok(names.iter().filter_map(number).max().unwrap_or_default())
}

/// The last of the claims that follow `known` without a gap, by their names.
fn latest_claim(within: &Path, known: Incarnation) -> Result<Incarnation, StoreError> {
    let mut latest = known;
    loop {
        let path = claim_path(within, latest.next());
        match path.try_exists().map_err(at(&path))? {
            true => latest = latest.next(),
            false => return Ok(latest),
        }
    }
}

/// Creates the next claim. Creating a file that must not be there succeeds for one only.
fn take_next(within: &Path) -> Result<Incarnation, StoreError> {
    // States count as well, for somebody may have tidied the claims away.
    let listed = highest(within, &["claim", "state"])?;
    let mut next = latest_claim(within, listed)?.next();
    for _ in 0..CLAIMS_AT_ONCE_MAX {
        let path = claim_path(within, next);
        between(Step::Numbered);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(_) => {
                disk::sync_folder(within).map_err(at(within))?;
                return Ok(next);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => next = next.next(),
            Err(error) => return Err(at(&path)(error)),
        }
    }
    let error = io::Error::other("others claim to be the coordinator all the time");
    Err(at(within)(error))
}

/// What was written under the highest number below `below`. One that is deleted meanwhile has a later one,
/// whose coordinator has claimed as well.
fn read_newest(
    within: &Path,
    below: Incarnation,
) -> Result<Option<(Incarnation, Written)>, StoreError> {
    let listed = highest(within, &["claim", "state"])?;
    let latest = latest_claim(within, listed)?.0.min(below.0 - 1);
    for of in (1..=latest).rev().map(Incarnation) {
        if let Some(written) = read(within, of)? {
            return Ok(Some((of, written)));
        }
    }
    Ok(None)
}

/// What a coordinator has written; `None` if it has written nothing.
fn read(within: &Path, of: Incarnation) -> Result<Option<Written>, StoreError> {
    let path = state_path(within, of);
    let mut reads = 1;
    loop {
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(at(&path))?,
        };
        let damaged = |path: &Path, what: String| StoreError::Damaged {
            path: path.to_owned(),
            what,
        };
        let content = disk::check_checksum(&bytes).map_err(|what| damaged(&path, what.into()))?;
        let (state, number) = without_journal(content);
        let state = state.to_vec();
        let Some(number) = number else {
            let changes = Vec::new();
            return Ok(Some(Written { state, changes }));
        };
        let behind = journal_path(within, of, number);
        match journal::read(&behind) {
            Ok(Ok(changes)) => return Ok(Some(Written { state, changes })),
            Ok(Err(what)) => return Err(damaged(&behind, what)),
            // It may be behind a former state by now: then there is another one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if reads == READS_MAX || fs::read(&path).is_ok_and(|now| now == bytes) {
                    return Err(damaged(&behind, "it is missing".into()));
                }
                reads += 1;
            }
            Err(error) => return Err(at(&behind)(error)),
        }
    }
}

/// Moments in which others may come between what one coordinator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next number is known, and not yet claimed.
    Numbered,
    /// Claimed; the former state is not yet read.
    Claimed,
    /// The state is written; later claims are not yet looked for.
    Written,
}

/// Where tests let others come between.
fn between(_step: Step) {
    #[cfg(test)]
    tests::interfere(_step);
}

#[cfg(test)]
mod tests;
