//! Copies of files on a disk near by, in a folder that all ranks of a node and several runs share.
//!
//! ```text
//! account                  how many bytes the folder takes at most; its lock is that of the accounting
//! KEY.copy                 a copy; who reads it has a shared lock on it, and the time of its last use is the file's
//! KEY.sum                  JSON: where the copy is from, and the CRC-32 of its contents
//! KEY.part                 a copy that is being made; who makes it has the lock
//! ```
//! A key is the file's path, links resolved, its length and the time of its last change: a file that is changed is
//! another one. The account is raised before bytes are taken and lowered after they are given back, so that a
//! process that is killed leaves it too high, never too low; it is counted anew whenever there seems to be no room.

mod named;

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{FallocateFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tradewind_common::mix::mixed;

use crate::DataError;
use crate::once::Stamp;

/// What a file takes on disk is a multiple of so many bytes.
const BLOCK: u64 = 4096;

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

/// How often it is looked whether another process has finished a copy.
const LOOK: Duration = Duration::from_millis(2);

/// How often a copy is opened, made or waited for before the file is read where it is.
const TRIES: usize = 16;

/// What is made free beyond what is needed, as a part of the budget: listing the folder costs.
const BEYOND: u64 = 64;

/// Copies of files in one folder.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    bytes: u64,
    known: Mutex<HashMap<PathBuf, Known>>,
    counts: Counts,
    told: Mutex<Vec<(Kind, String)>>,
}

/// A file as it was when it was asked for first.
#[derive(Clone, Debug)]
struct Known {
    /// Links resolved.
    origin: Arc<Path>,
    stamp: Stamp,
    /// The copy whose contents were compared, or that was made here.
    good: Option<Identity>,
}

/// Tells a file from one that was made later in its place.
type Identity = (u64, Option<SystemTime>);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.ino(), metadata.created().ok())
}

/// What a cache has done for this process and its readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheCounts {
    /// Files that were copied.
    pub files_copied: u64,
    /// Their bytes.
    pub bytes_copied: u64,
    /// Seconds that copying took, summed over threads.
    pub copying_seconds: f64,
    /// How often there was a copy.
    pub hits: u64,
    /// How often a file had to be read where it is, since no copy of it could be made.
    pub at_origin: u64,
    /// Copies that were damaged, and made anew.
    pub damaged: u64,
}

impl CacheCounts {
    /// What was done since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            files_copied: self.files_copied - before.files_copied,
            bytes_copied: self.bytes_copied - before.bytes_copied,
            copying_seconds: self.copying_seconds - before.copying_seconds,
            hits: self.hits - before.hits,
            at_origin: self.at_origin - before.at_origin,
            damaged: self.damaged - before.damaged,
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    files_copied: AtomicU64,
    bytes_copied: AtomicU64,
    copying_nanos: AtomicU64,
    hits: AtomicU64,
    at_origin: AtomicU64,
    damaged: AtomicU64,
}

/// What a copy says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Sum {
    origin: String,
    crc32: u32,
}

/// A file that may be read: a copy, which is not removed meanwhile, or the file itself.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    stamp: Stamp,
    /// With a lock, of a copy.
    copy: Option<File>,
}

impl Held {
    /// Where to read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a copy.
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// What the file was when the copy was made, or when it was asked for first.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The copy, open.
    pub(crate) fn file(&self) -> Option<&File> {
        self.copy.as_ref()
    }
}

/// Why there is no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TooLarge,
    NoRoom,
    DiskFull,
    Folder,
}

/// What ends an attempt at a copy.
enum Failed {
    /// The file cannot be used.
    Origin(DataError),
    /// The cache cannot: the file is read where it is.
    Cache(Kind, String),
    /// Somebody has asked to stop.
    Stopped,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
        match full.contains(&error.kind()) {
            true => Self::Cache(
                Kind::DiskFull,
                format!("the disk is full ({error}); lower the cache's bytes, or make room"),
            ),
            false => Self::Cache(
                Kind::Folder,
                format!(
                    "{error}; the folder must be one that can be written, on a disk of this machine"
                ),
            ),
        }
    }
}

/// What a file of a length and its sum take on disk.
fn cost(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK) + BLOCK
}

/// How a file is called in the folder, without its ending.
fn key(origin: &Path, stamp: Stamp) -> String {
    // Two paths of one key are told apart by what stands beside the copy.
    let bytes = origin.as_os_str().as_bytes().iter();
    let hash = bytes.fold(0, |hash, byte| mixed(hash, [u64::from(*byte)]));
    let (seconds, nanos) = stamp.written;
    format!("{hash:016x}-{}-{seconds}.{nanos:09}", stamp.bytes)
}

impl Cache {
    /// A cache in this folder, which is created when it is needed. All files in it take no more than `bytes`
    /// together, however many processes use it; what cannot be copied is read where it is.
    pub fn open(folder: &Path, bytes: u64) -> Self {
        Self {
            folder: folder.into(),
            bytes,
            known: Mutex::default(),
            counts: Counts::default(),
            told: Mutex::default(),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Most bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A copy of a file, made now if there is none; where none can be made, the file itself. For this process a
    /// file stays what it was when it was asked for first.
    ///
    /// # Errors
    /// The file is missing, cannot be read, or was changed.
    pub fn file(&self, origin: &Path) -> Result<Held, DataError> {
        let held = self.file_unless(origin, &mut |_| true)?;
        Ok(held.expect("nobody stops it"))
    }

    /// The same, told of bytes that are copied; `None` if `going` says no.
    pub(crate) fn file_unless(
        &self,
        origin: &Path,
        going: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Held>, DataError> {
        let known = self.known(origin)?;
        match self.copy_of(origin, &known, going) {
            Ok(held) => Ok(Some(held)),
            Err(Failed::Origin(error)) => Err(error),
            Err(Failed::Stopped) => Ok(None),
            Err(Failed::Cache(kind, reason)) => {
                self.counts.at_origin.fetch_add(1, Ordering::Relaxed);
                self.tell(kind, origin, &reason);
                Ok(Some(Held {
                    path: origin.into(),
                    stamp: known.stamp,
                    copy: None,
                }))
            }
        }
    }

    /// The bytes of a file when it was asked for first.
    pub(crate) fn bytes_of(&self, origin: &Path) -> Result<u64, DataError> {
        Ok(self.known(origin)?.stamp.bytes)
    }

    /// Whether files of these bytes fit together, and up to which number of them.
    pub(crate) fn fitting(&self, bytes: &[u64]) -> usize {
        let mut room = self.bytes.saturating_sub(BLOCK);
        let fits = |bytes: &&u64| match room.checked_sub(cost(**bytes)) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        };
        bytes.iter().take_while(fits).count()
    }

    /// What it has done so far.
    pub fn counts(&self) -> CacheCounts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CacheCounts {
            files_copied: get(&self.counts.files_copied),
            bytes_copied: get(&self.counts.bytes_copied),
            copying_seconds: get(&self.counts.copying_nanos) as f64 / 1e9,
            hits: get(&self.counts.hits),
            at_origin: get(&self.counts.at_origin),
            damaged: get(&self.counts.damaged),
        }
    }

    /// Adds what a reader's cache has done in a while.
    pub(crate) fn add(&self, more: &CacheCounts) {
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&self.counts.files_copied, more.files_copied);
        add(&self.counts.bytes_copied, more.bytes_copied);
        add(
            &self.counts.copying_nanos,
            (more.copying_seconds * 1e9) as u64,
        );
        add(&self.counts.hits, more.hits);
        add(&self.counts.at_origin, more.at_origin);
        add(&self.counts.damaged, more.damaged);
    }

    /// What was logged of files that are read where they are: once for each reason.
    pub fn told(&self) -> Vec<String> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().map(|(_, text)| text.clone()).collect()
    }

    fn tell(&self, kind: Kind, origin: &Path, reason: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.iter().any(|(before, _)| *before == kind) {
            return;
        }
        let (origin, folder) = (origin.display(), self.folder.display());
        let text = format!(
            "{origin} is read where it is, without a copy in {folder}: {reason}. This is said once, and counted for each file"
        );
        tracing::warn!("{text}");
        told.push((kind, text));
    }

    fn lock_known(&self) -> MutexGuard<'_, HashMap<PathBuf, Known>> {
        // Nothing panics while it is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a file.
    fn known(&self, origin: &Path) -> Result<Known, DataError> {
        if let Some(known) = self.lock_known().get(origin) {
            return Ok(known.clone());
        }
        let failed = |error: io::Error| DataError::of_system(origin, &error);
        let resolved = origin.canonicalize().map_err(failed)?;
        let stamp = Stamp::of(&resolved.metadata().map_err(failed)?);
        let known = Known {
            origin: resolved.into(),
            stamp,
            good: None,
        };
        let mut all = self.lock_known();
        Ok(all.entry(origin.into()).or_insert(known).clone())
    }

    fn good(&self, origin: &Path, good: Identity) {
        if let Some(known) = self.lock_known().get_mut(origin) {
            known.good = Some(good);
        }
    }

    fn at(&self, known: &Known, ending: &str) -> PathBuf {
        let key = key(&known.origin, known.stamp);
        self.folder.join(format!("{key}.{ending}"))
    }

    fn copy_of(
        &self,
        origin: &Path,
        known: &Known,
        going: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Held, Failed> {
        let bytes = known.stamp.bytes;
        if cost(bytes) + BLOCK > self.bytes {
            let most = self.bytes;
            return Err(Failed::Cache(
                Kind::TooLarge,
                format!("it has {bytes} bytes, and the cache may take {most}; give the cache more"),
            ));
        }
        for _ in 0..TRIES {
            if let Some(held) = self.opened(origin, known)? {
                self.counts.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(held);
            }
            if !going(0) {
                return Err(Failed::Stopped);
            }
            std::fs::create_dir_all(&self.folder)?;
            let Some(part) = self.part(known, going)? else {
                continue;
            };
            if self.at(known, "copy").exists() {
                // It was made between.
                std::fs::remove_file(self.at(known, "part"))?;
                continue;
            }
            return self.copied(origin, known, part, going);
        }
        Err(Failed::Cache(
            Kind::Folder,
            "its copy is removed again and again; perhaps its disk is damaged".into(),
        ))
    }

    /// The copy, if there is one.
    fn opened(&self, origin: &Path, known: &Known) -> Result<Option<Held>, Failed> {
        let path = self.at(known, "copy");
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        retried(|| file.lock_shared())?;
        let metadata = file.metadata()?;
        if metadata.nlink() == 0 {
            // It was removed between.
            return Ok(None);
        }
        let identity = identity(&metadata);
        if known.good != Some(identity) {
            match self.compared(&file, &metadata, known)? {
                Ok(()) => self.good(origin, identity),
                Err(reason) => {
                    let copy = path.display();
                    tracing::warn!(
                        "{copy} is damaged ({reason}): it is copied again from {}",
                        origin.display()
                    );
                    self.counts.damaged.fetch_add(1, Ordering::Relaxed);
                    self.remove(known, &metadata)?;
                    return Ok(None);
                }
            }
        }
        used(&file);
        Ok(Some(Held {
            path,
            stamp: known.stamp,
            copy: Some(file),
        }))
    }

    /// What is wrong with a copy that another process has made.
    fn compared(
        &self,
        file: &File,
        metadata: &Metadata,
        known: &Known,
    ) -> Result<Result<(), String>, Failed> {
        let text = match std::fs::read(self.at(known, "sum")) {
            Err(error) => return Ok(Err(format!("its checksum cannot be read: {error}"))),
            Ok(text) => text,
        };
        let Ok(sum) = serde_json::from_slice::<Sum>(&text) else {
            return Ok(Err("its checksum is no JSON".into()));
        };
        if sum.origin != known.origin.to_string_lossy() {
            let other = format!(
                "{} has the same key in the cache; rename one of them",
                sum.origin
            );
            return Err(Failed::Cache(Kind::Folder, other));
        }
        if metadata.len() != known.stamp.bytes {
            let (got, want) = (metadata.len(), known.stamp.bytes);
            return Ok(Err(format!("it has {got} bytes instead of {want}")));
        }
        let mut crc = crc32fast::Hasher::new();
        let read = chunks(&mut &*file, &mut |chunk| {
            crc.update(chunk);
            Ok(())
        });
        Ok(match read {
            Err(error) => Err(error.to_string()),
            Ok(_) if crc.finalize() != sum.crc32 => Err("its checksum does not fit".into()),
            Ok(_) => Ok(()),
        })
    }

    /// The file that a copy is made in, once this process may; `None` if another one has made the copy, or given
    /// it up.
    fn part(
        &self,
        known: &Known,
        going: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<File>, Failed> {
        let path = self.at(known, "part");
        let mut options = OpenOptions::new();
        let part = options.read(true).write(true).create(true).truncate(false);
        let part = part.open(&path)?;
        let ino = part.metadata()?.ino();
        loop {
            let locked = match part.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(error)) => return Err(error.into()),
            };
            match std::fs::metadata(&path) {
                Ok(there) if there.ino() == ino && locked => {
                    // What a process that was killed has left.
                    part.set_len(0)?;
                    return Ok(Some(part));
                }
                Ok(there) if there.ino() == ino => {}
                _ => return Ok(None),
            }
            if !going(0) {
                return Err(Failed::Stopped);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Makes a copy.
    #[expect(
        clippy::disallowed_methods,
        reason = "it measures how long copying takes"
    )]
    fn copied(
        &self,
        origin: &Path,
        known: &Known,
        part: File,
        going: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Held, Failed> {
        let from = std::time::Instant::now();
        let bytes = known.stamp.bytes;
        let part_path = self.at(known, "part");
        if let Err(failed) = self.reserve(&part, &part_path, bytes) {
            let _ = std::fs::remove_file(&part_path);
            return Err(failed);
        }
        let filled = fill(origin, known, &part, going);
        match filled.and_then(|crc32| self.publish(known, &part, crc32)) {
            Ok(path) => {
                self.good(origin, identity(&part.metadata()?));
                let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
                add(&self.counts.files_copied, 1);
                add(&self.counts.bytes_copied, bytes);
                add(&self.counts.copying_nanos, from.elapsed().as_nanos() as u64);
                Ok(Held {
                    path,
                    stamp: known.stamp,
                    copy: Some(part),
                })
            }
            Err(failed) => {
                // While the part is locked, so that nobody else makes his copy in it.
                if let Ok(mut account) = self.account() {
                    let _ = std::fs::remove_file(self.at(known, "sum"));
                    if std::fs::remove_file(&part_path).is_ok() {
                        let _ = account.set(account.bytes.saturating_sub(cost(bytes)));
                    }
                }
                Err(failed)
            }
        }
    }

    /// Takes so many bytes of the budget for a part, removing copies that were not used for longest.
    fn reserve(&self, part: &File, part_path: &Path, bytes: u64) -> Result<(), Failed> {
        let mut account = self.account()?;
        let need = cost(bytes);
        if account.bytes.saturating_add(need) > self.bytes {
            account.bytes = self.make_room(need, part_path)?;
        }
        let taken = account.bytes.saturating_add(need);
        if taken > self.bytes {
            account.set(account.bytes)?;
            let (free, most) = (self.bytes.saturating_sub(account.bytes), self.bytes);
            return Err(Failed::Cache(
                Kind::NoRoom,
                format!(
                    "it has {bytes} bytes, {free} of the cache's {most} are free, and the copies in it are in use; give the cache more"
                ),
            ));
        }
        account.set(taken)?;
        // So that who counts sees it.
        if let Err(error) = part.set_len(bytes) {
            account.set(taken - need)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Counts the folder, removes what processes that were killed have left, and as many copies as are needed; how
    /// many bytes are taken then. The accounting is locked.
    fn make_room(&self, need: u64, own: &Path) -> io::Result<u64> {
        let (mut taken, mut copies) = (0, Vec::new());
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let Ok(metadata) = path.symlink_metadata() else {
                continue;
            };
            let ending = path.extension().and_then(|ending| ending.to_str());
            match ending {
                Some("copy") => {
                    taken += cost(metadata.len());
                    copies.push((metadata.mtime(), metadata.mtime_nsec(), path));
                }
                Some("part") if path == own => {}
                Some("part") => {
                    let left = left(&path);
                    if left.is_none() || std::fs::remove_file(&path).is_err() {
                        taken += cost(metadata.len());
                    }
                }
                Some("sum") if path.with_extension("copy").exists() => {}
                Some("sum") if std::fs::remove_file(&path).is_ok() => {}
                _ => taken += metadata.len().next_multiple_of(BLOCK),
            }
        }
        copies.sort_unstable();
        let mut copies = copies.into_iter();
        let room = need + self.bytes / BEYOND;
        while taken + room > self.bytes {
            let Some((.., path)) = copies.next() else {
                break;
            };
            let Ok(copy) = File::open(&path) else {
                continue;
            };
            // Who reads it has a shared lock.
            if copy.try_lock().is_err() {
                continue;
            }
            let bytes = copy.metadata()?.len();
            std::fs::remove_file(&path)?;
            let _ = std::fs::remove_file(path.with_extension("sum"));
            taken -= cost(bytes);
        }
        Ok(taken)
    }

    /// Puts a part in its place, where it is.
    fn publish(&self, known: &Known, part: &File, crc32: u32) -> Result<PathBuf, Failed> {
        let sum = Sum {
            origin: known.origin.to_string_lossy().into(),
            crc32,
        };
        let sum = serde_json::to_vec(&sum).expect("text and a number");
        // Nobody counts meanwhile: a sum without a copy would be removed.
        let _account = self.account()?;
        std::fs::write(self.at(known, "sum"), sum)?;
        let path = self.at(known, "copy");
        std::fs::rename(self.at(known, "part"), &path)?;
        // Only now: who waits for the part may get the lock for a moment meanwhile, and must see that it is none.
        retried(|| part.lock_shared())?;
        Ok(path)
    }

    /// Removes a copy that is damaged, if it is still the same.
    fn remove(&self, known: &Known, metadata: &Metadata) -> Result<(), Failed> {
        let mut account = self.account()?;
        let path = self.at(known, "copy");
        if std::fs::metadata(&path).is_ok_and(|there| identity(&there) == identity(metadata)) {
            std::fs::remove_file(path)?;
            let _ = std::fs::remove_file(self.at(known, "sum"));
            account.set(account.bytes.saturating_sub(cost(metadata.len())))?;
        }
        Ok(())
    }

    /// The account, locked.
    fn account(&self) -> io::Result<Account> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        let file = file.open(self.folder.join("account"))?;
        retried(|| file.lock())?;
        let mut text = [0; DIGITS];
        let read = file.read_exact_at(&mut text, 0).ok();
        let bytes = read.and_then(|()| std::str::from_utf8(&text).ok()?.parse().ok());
        Ok(Account {
            file,
            // It is counted.
            bytes: bytes.unwrap_or(u64::MAX),
        })
    }
}

/// Digits of the account.
const DIGITS: usize = 20;

/// How many bytes are taken at most; locked.
struct Account {
    file: File,
    bytes: u64,
}

impl Account {
    fn set(&mut self, bytes: u64) -> io::Result<()> {
        self.file
            .write_all_at(format!("{bytes:0DIGITS$}").as_bytes(), 0)?;
        self.bytes = bytes;
        Ok(())
    }
}

/// Copies into a part for which there is room; the CRC-32 of the contents.
fn fill(
    origin: &Path,
    known: &Known,
    mut part: &File,
    going: &mut dyn FnMut(u64) -> bool,
) -> Result<u32, Failed> {
    let of_origin = |error: io::Error| Failed::Origin(DataError::of_system(origin, &error));
    let changed = || Failed::Origin(DataError::changed(origin));
    let mut from = File::open(&known.origin).map_err(of_origin)?;
    let is_same = |from: &File| match from.metadata().map_err(of_origin)? {
        metadata if Stamp::of(&metadata) == known.stamp => Ok(()),
        _ => Err(changed()),
    };
    is_same(&from)?;
    let bytes = known.stamp.bytes;
    if bytes > 0 {
        match rustix::fs::fallocate(part, FallocateFlags::empty(), 0, bytes) {
            // The file system cannot.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) | Ok(()) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    let mut crc = crc32fast::Hasher::new();
    let mut chunk = vec![0; CHUNK];
    let mut copied = 0;
    loop {
        let got = match from.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            got => got.map_err(of_origin)?,
        };
        copied += got as u64;
        if copied > bytes || (got == 0 && copied < bytes) {
            return Err(changed());
        }
        if got == 0 {
            break;
        }
        crc.update(&chunk[..got]);
        part.write_all(&chunk[..got])?;
        if !going(got as u64) {
            return Err(Failed::Stopped);
        }
    }
    is_same(&from)?;
    Ok(crc.finalize())
}

/// A part in which nobody makes a copy, locked: as long as it is, it may be removed.
fn left(part: &Path) -> Option<File> {
    let file = File::open(part).ok()?;
    // Who makes a copy has the lock.
    file.try_lock().ok()?;
    // It may have been removed, and another one begun, before.
    let there = std::fs::metadata(part).ok()?;
    (file.metadata().ok()?.ino() == there.ino()).then_some(file)
}

/// All of a file.
fn chunks(file: &mut impl Read, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) => return Ok(()),
            got => each(&chunk[..got?])?,
        }
    }
}

/// Until no signal interrupts it.
fn retried(mut lock: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match lock() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A copy is used now. That this cannot be written makes it one of the first to go.
fn used(copy: &File) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let both = Timestamps {
        last_access: now,
        last_modification: now,
    };
    let _ = rustix::fs::futimens(copy, &both);
}

#[cfg(test)]
mod tests;
