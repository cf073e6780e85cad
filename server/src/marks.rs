//! What a holder has had of each block, kept past its death: lineage, version and samples, in one file a
//! run, server and shard that is mapped into memory. What was lost is what the highest holder had beyond
//! what was restored.
//!
//! # Who dies
//! - **The process.** A mark is plain stores into shared pages, which the kernel keeps whatever becomes of
//!   the process: what was noted before an answer left is there, exactly.
//! - **The machine.** What the kernel had not written back is gone. So the file has a *ceiling* that is
//!   synced before marks come near it ([`Reserve::ahead`]), and the boot of the machine that writes. Who
//!   reads the file under another boot takes the ceiling for every block, unless the file was left *settled*:
//!   synced, and not noted in since. The ceiling is at most [`AHEAD_MIN`] updates, or [`AHEAD_FACTOR`] times
//!   what was noted between two calls, beyond what there was.
//!
//! # The file
//! Little-endian, in pages of [`PAGE`] bytes, so that a torn write of one hurts no other:
//!
//! | page | content |
//! |---|---|
//! | 0 | magic, format, number of blocks, server, shard, BLAKE3 of these and of the blocks' numbers; from byte 64 the *change* |
//! | 1, 2 | the *reservation*, written in turns: number, boot, ceiling, whether settled, checksum |
//! | 3… | the blocks' numbers, u32; then from the next page on 24 bytes a block: lineage, version, samples |
//!
//! Within a lineage, version and samples only rise, so that a mark of which one store is missing claims
//! nothing too low. Where the lineage changes, versions may fall: the new mark is first written into the
//! *change*, whose number is odd from then until the three stores are done. Who finds it odd carries it out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapRaw;
use tradewind_common::{BlockId, RunId, ServerId, ShardId};

use crate::disk;

mod file;
#[cfg(test)]
mod tests;

pub use file::{Boot, PAGE};
use file::{CHANGE_WORD, Head, Reservation, change, entries_at, reservation_word};

/// A ceiling is at least so many updates beyond what was noted when it was written.
pub const AHEAD_MIN: u64 = 16;

/// And at least so many times what was noted since the call before.
pub const AHEAD_FACTOR: u64 = 4;

/// The lineage of no ceiling.
const NONE: u64 = u64::MAX;

/// Most files of one server and shard that are set aside: one for each machine that died under it.
const ASIDE_MAX: u32 = 1000;

/// Most times that a file is read again because it changed meanwhile.
const READS_MAX: u32 = 100;

/// What a holder has had of a block. Ordered by lineage, then version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Begun anew by each restore.
    pub lineage: u64,
    /// Updates applied in all lineages that led here.
    pub version: u64,
    /// Samples applied.
    pub samples: u64,
    /// The holder had just that; otherwise at most that.
    pub exact: bool,
}

impl Mark {
    fn words(self) -> [u64; 3] {
        [self.lineage, self.version, self.samples]
    }

    fn of([lineage, version, samples]: [u64; 3]) -> Self {
        Self {
            lineage,
            version,
            samples,
            exact: true,
        }
    }
}

/// The marks of one holder. It alone notes; a [`Reserve`] may be elsewhere.
#[derive(Debug)]
pub struct Marks {
    shared: Arc<Shared>,
    told: Vec<String>,
}

/// Raises the ceiling of some marks. It syncs a file: not for a task that answers.
#[derive(Clone, Debug)]
pub struct Reserve(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: File,
    map: MmapRaw,
    path: PathBuf,
    boot: Boot,
    blocks: usize,
    /// What is synced: lineage, version, samples.
    ceiling: [AtomicU64; 3],
    /// One at a time; the highest mark at the call before.
    last: Mutex<Mark>,
}

impl Marks {
    /// The marks of a shard that this server holds, as its former life has left them. Nothing of them is
    /// overwritten that somebody may want: a file of other blocks, a damaged one, and one that a machine
    /// has died with are set aside under another name, which [`told`](Self::told) says.
    ///
    /// What this life begins with is to be noted, and a ceiling reserved, before anything is answered.
    ///
    /// # Errors
    /// If there is no room for the file, or it cannot be read. One can do without marks, but has to say so.
    pub fn open(
        folder: &Path,
        run: &RunId,
        (server, shard): (ServerId, ShardId),
        blocks: &[BlockId],
        boot: Boot,
    ) -> io::Result<Self> {
        let path = path(folder, run, (server, shard));
        let head = Head::new((server, shard), blocks);
        let mut told = Vec::new();
        let why = match file::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(disk::at(&path)(error)),
            Ok(bytes) => unfit(&bytes, &head, &boot).err(),
        };
        if let Some(why) = why {
            let aside = set_aside(&path)?;
            told.push(format!(
                "{}: {why}; it is kept as {}",
                path.display(),
                aside.display()
            ));
        }
        if !path.try_exists().map_err(disk::at(&path))? {
            disk::create_folders(path.parent().unwrap_or(folder))?;
            // Written out, and so allocated: a full disk is an error here, and no signal at a store later.
            disk::replace_secret(&path, head.fresh())?;
        }
        for text in &told {
            tracing::warn!("{text}");
        }
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(disk::at(&path))?;
        let map = MmapRaw::map_raw(&file).map_err(disk::at(&path))?;
        if map.len() != head.file_bytes() {
            let error = io::Error::new(io::ErrorKind::InvalidData, "it was replaced meanwhile");
            return Err(disk::at(&path)(error));
        }
        let shared = Shared {
            file,
            map,
            path,
            boot,
            blocks: blocks.len(),
            ceiling: [NONE, 0, 0].map(AtomicU64::new),
            last: Mutex::default(),
        };
        shared.carry_out();
        shared.settle()?;
        let shared = Arc::new(shared);
        Ok(Self { shared, told })
    }

    /// What was found and set aside.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// Notes what this holder has of a block, by its place among the blocks; what is lower than what is
    /// noted changes nothing. Once it has returned, it outlives the process.
    ///
    /// Answers whether the ceiling covers it. Where not, the death of the machine could make the claim too
    /// low, until [`Reserve::ahead`] has returned.
    ///
    /// # Panics
    /// If there are not so many blocks.
    pub fn note(&mut self, index: usize, lineage: u64, version: u64, samples: u64) -> bool {
        let mark = Mark::of([lineage, version, samples]);
        let shared = &*self.shared;
        let at = shared.entry(index);
        let there = shared.mark(index);
        if mark.lineage > there.lineage {
            shared.change(index, mark);
        } else if mark > there {
            shared.store(at + 2, mark.samples.max(there.samples));
            shared.store(at + 1, mark.version);
        }
        shared.covers(mark)
    }

    /// What is noted of a block, by its place.
    ///
    /// # Panics
    /// If there are not so many blocks.
    pub fn noted(&self, index: usize) -> Mark {
        self.shared.mark(index)
    }

    /// The way to raise the ceiling from elsewhere.
    pub fn reserve(&self) -> Reserve {
        Reserve(self.shared.clone())
    }

    /// As [`Reserve::ahead`].
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn reserve_ahead(&self) -> io::Result<()> {
        self.shared.reserve_ahead()
    }

    /// Leaves the file settled: exact for whoever reads it, on whatever machine. A [`Reserve`] that is
    /// still used would undo it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn close(self) -> io::Result<()> {
        self.shared.settle()
    }
}

impl Reserve {
    /// Makes sure that the ceiling is well above what is noted, and synced. To be called from time to time,
    /// such as once a second, and when [`Marks::note`] says that it is not covered; it does nothing while
    /// half of what it would reserve is left.
    ///
    /// # Errors
    /// If it cannot be written. The ceiling is as before.
    pub fn ahead(&self) -> io::Result<()> {
        self.0.reserve_ahead()
    }
}

impl Shared {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the map is as long as this and lives as long as `self`, its start is aligned to a page,
        // and whoever writes to it, in this process or another one, does so by whole words.
        unsafe {
            std::slice::from_raw_parts(
                self.map.as_mut_ptr().cast::<AtomicU64>(),
                self.map.len() / 8,
            )
        }
    }

    fn load(&self, word: usize) -> u64 {
        u64::from_le(self.words()[word].load(Ordering::Acquire))
    }

    /// Stores one after the other, as they are written here.
    fn store(&self, word: usize, value: u64) {
        #[cfg(test)]
        tests::count_store();
        self.words()[word].store(value.to_le(), Ordering::Release);
    }

    fn store_all(&self, word: usize, values: &[u64]) {
        for (at, value) in values.iter().enumerate() {
            self.store(word + at, *value);
        }
    }

    /// The first word of a block's mark.
    fn entry(&self, index: usize) -> usize {
        assert!(index < self.blocks, "no block {index} of {}", self.blocks);
        entries_at(self.blocks) / 8 + 3 * index
    }

    fn mark(&self, index: usize) -> Mark {
        let at = self.entry(index);
        Mark::of([0, 1, 2].map(|word| self.load(at + word)))
    }

    /// Puts a mark of another lineage in place.
    fn change(&self, index: usize, mark: Mark) {
        let number = self.load(CHANGE_WORD) | 1;
        let [lineage, version, samples] = mark.words();
        self.store_all(CHANGE_WORD + 1, &[index as u64, lineage, version, samples]);
        self.store(CHANGE_WORD, number);
        self.store_all(self.entry(index), &mark.words());
        self.store(CHANGE_WORD, number + 1);
    }

    /// Brings a change to its end that a former life was killed in.
    fn carry_out(&self) {
        let words = std::array::from_fn(|word| self.load(CHANGE_WORD + word));
        if let Some((index, mark)) = change(words, self.blocks) {
            self.change(index, mark);
        }
    }

    fn covers(&self, mark: Mark) -> bool {
        let ceiling = || [0, 1, 2].map(|word| self.ceiling[word].load(Ordering::Acquire));
        let [lineage, version, samples] = ceiling();
        mark.lineage == lineage && mark.version <= version && mark.samples <= samples
    }

    /// The highest of all blocks' marks: most of its lineage.
    fn highest(&self) -> Mark {
        let marks = (0..self.blocks).map(|index| self.mark(index));
        marks.fold(Mark::default(), |most, mark| {
            match mark.lineage.cmp(&most.lineage) {
                std::cmp::Ordering::Less => most,
                std::cmp::Ordering::Greater => mark,
                std::cmp::Ordering::Equal => Mark {
                    version: mark.version.max(most.version),
                    samples: mark.samples.max(most.samples),
                    ..mark
                },
            }
        })
    }

    fn reserve_ahead(&self) -> io::Result<()> {
        // The mark inside is one value, set whole.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = self.highest();
        let [lineage, version, samples] =
            [0, 1, 2].map(|word| self.ceiling[word].load(Ordering::Acquire));
        let before = match last.lineage == highest.lineage {
            true => *last,
            false => highest,
        };
        *last = highest;
        let since = |now: u64, then: u64| now.saturating_sub(then).saturating_mul(AHEAD_FACTOR);
        let updates = since(highest.version, before.version).max(AHEAD_MIN);
        let each = highest.samples.div_ceil(highest.version.max(1)).max(1);
        let more = since(highest.samples, before.samples).max(updates.saturating_mul(each));
        let same = lineage == highest.lineage;
        let is_ample = same
            && version >= highest.version.saturating_add(updates / 2)
            && samples >= highest.samples.saturating_add(more / 2);
        if is_ample {
            return Ok(());
        }
        let floor = |of: u64| if same { of } else { 0 };
        let ceiling = Mark {
            lineage: highest.lineage,
            version: highest.version.saturating_add(updates).max(floor(version)),
            samples: highest.samples.saturating_add(more).max(floor(samples)),
            exact: false,
        };
        self.write_reservation(ceiling, false)?;
        // Whoever reads it half-changed finds nothing covered.
        self.ceiling[0].store(NONE, Ordering::Release);
        for word in [1, 2, 0] {
            self.ceiling[word].store(ceiling.words()[word], Ordering::Release);
        }
        Ok(())
    }

    /// What is noted is synced, and then that it is.
    fn settle(&self) -> io::Result<()> {
        let _alone = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.ceiling[0].store(NONE, Ordering::Release);
        self.file.sync_data().map_err(disk::at(&self.path))?;
        self.write_reservation(Mark::default(), true)
    }

    /// Writes over the older of the two.
    fn write_reservation(&self, ceiling: Mark, settled: bool) -> io::Result<()> {
        let slot = |slot| {
            let words = std::array::from_fn(|word| self.load(reservation_word(slot) + word));
            Reservation::decode(words).map_or(0, |reservation| reservation.number)
        };
        let (older, number) = match slot(0) < slot(1) {
            true => (0, slot(1)),
            false => (1, slot(0)),
        };
        let reservation = Reservation {
            number: number + 1,
            boot: self.boot,
            ceiling,
            settled,
        };
        self.store_all(reservation_word(older), &reservation.encode());
        self.file.sync_data().map_err(disk::at(&self.path))
    }
}

/// Where the marks of a run are.
fn within(folder: &Path, run: &RunId) -> PathBuf {
    folder.join("marks").join(run.as_str())
}

fn path(folder: &Path, run: &RunId, (server, shard): (ServerId, ShardId)) -> PathBuf {
    within(folder, run).join(format!("server-{server}-shard-{shard}.marks"))
}

/// Why a file cannot be noted in by this life.
fn unfit(bytes: &[u8], wanted: &Head, boot: &Boot) -> Result<(), String> {
    let head = Head::decode(bytes)?;
    if head != *wanted {
        return Err("it is of other blocks".to_owned());
    }
    match Reservation::newest(bytes) {
        None => Err("its reservation is damaged".to_owned()),
        Some(last) if last.is_exact(boot) => Ok(()),
        Some(_) => Err("the machine that wrote it has died, or is another one".to_owned()),
    }
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 1..=ASIDE_MAX {
        let aside = path.with_extension(format!("marks-{number}"));
        if !aside.try_exists().map_err(disk::at(&aside))? {
            fs::rename(path, &aside).map_err(disk::at(path))?;
            path.parent().map_or(Ok(()), disk::sync_folder)?;
            return Ok(aside);
        }
    }
    let error = "too many files of former machines are set aside; delete those of old runs";
    Err(disk::at(path)(io::Error::other(error)))
}

/// The highest mark of each block, and which files could not be read.
pub type Highest = (BTreeMap<BlockId, Mark>, Vec<String>);

/// The highest mark of each block of a run before a lineage, of all holders that there were, and which
/// files could not be read. `known` holders are found by their names, where a listing of the folder may
/// lag behind.
///
/// # Errors
/// If the folder cannot be listed.
pub fn read_all(
    folder: &Path,
    run: &RunId,
    known: &[(ServerId, ShardId)],
    before: u64,
    boot: &Boot,
) -> io::Result<Highest> {
    let within = within(folder, run);
    let listed = disk::names(&within)?;
    let listed = listed.iter().filter(|name| is_marks(name));
    let mut paths: BTreeSet<PathBuf> = listed.map(|name| within.join(name)).collect();
    paths.extend(known.iter().map(|holder| path(folder, run, *holder)));
    Ok(read_each(paths, before, boot))
}

/// As [`read_all`], of these holders only.
pub fn read_of(
    folder: &Path,
    run: &RunId,
    holders: &[(ServerId, ShardId)],
    before: u64,
    boot: &Boot,
) -> Highest {
    let paths = holders.iter().map(|holder| path(folder, run, *holder));
    read_each(paths, before, boot)
}

fn read_each(paths: impl IntoIterator<Item = PathBuf>, before: u64, boot: &Boot) -> Highest {
    let (mut highest, mut problems) = (BTreeMap::<BlockId, Mark>::new(), Vec::new());
    for path in paths {
        match read(&path, boot) {
            Ok(marks) => {
                for (block, mark) in marks.into_iter().filter(|(_, mark)| mark.lineage < before) {
                    let most = highest.entry(block).or_default();
                    *most = mark.max(*most);
                }
            }
            // A holder that had nothing yet.
            Err(Unread::NotThere) => {}
            Err(Unread::Because(why)) => problems.push(format!("{}: {why}", path.display())),
        }
    }
    (highest, problems)
}

/// The last lineage of which anything was noted, of a run that is to go on; 0 if nothing was. Files that
/// cannot be read are passed over: whoever restores its shards tells of them.
///
/// # Errors
/// If the folder cannot be listed.
pub fn last_lineage(folder: &Path, run: &RunId) -> io::Result<u64> {
    let (marks, _) = read_all(folder, run, &[], u64::MAX, &Boot::of_this_machine())?;
    let lineages = marks.values().map(|mark| mark.lineage);
    Ok(lineages.max().unwrap_or(0))
}

/// Deletes the marks of a run that is forgotten. One of the same name begins without.
///
/// # Errors
/// If they cannot be deleted.
pub fn remove(folder: &Path, run: &RunId) -> io::Result<()> {
    let within = within(folder, run);
    match fs::remove_dir_all(&within) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk::at(&within)(error)),
        _ => Ok(()),
    }
}

/// `server-S-shard-K.marks`, and `….marks-N` of those set aside.
fn is_marks(name: &str) -> bool {
    let Some((holder, number)) = name.split_once(".marks") else {
        return false;
    };
    let aside = number.strip_prefix('-').map(str::parse::<u32>);
    holder.starts_with("server-") && (number.is_empty() || matches!(aside, Some(Ok(_))))
}

enum Unread {
    NotThere,
    Because(String),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotThere,
            _ => Self::Because(format!("cannot be read: {error}")),
        }
    }
}

/// The marks in a file, in which somebody may be noting.
fn read(path: &Path, boot: &Boot) -> Result<Vec<(BlockId, Mark)>, Unread> {
    for _ in 0..READS_MAX {
        let bytes = file::read(path)?;
        let marks = file::marks(&bytes, boot).map_err(Unread::Because)?;
        let mut after = [0; 8];
        File::open(path)?.read_exact_at(&mut after, 8 * CHANGE_WORD as u64)?;
        // Two marks of one block may have been mixed where its lineage changed meanwhile.
        if bytes[8 * CHANGE_WORD..][..8] == after {
            return Ok(marks);
        }
    }
    Err(Unread::Because("it changes all the time".to_owned()))
}
