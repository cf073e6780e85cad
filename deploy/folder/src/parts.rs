//! The parts of a file that was moved aside whenever it was full.
//!
//! Of `metrics.jsonl` these are, oldest first: `metrics-thinned-N.jsonl`, which stands for all parts up
//! to the N-th; the parts after that, `metrics-K.jsonl`; and `metrics.jsonl` itself, which grows.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u64, u64);

impl Id {
    /// The file that has these metadata.
    pub fn of(is: &Metadata) -> Self {
        Self(is.dev(), is.ino())
    }
}

/// What lies beside a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    path: PathBuf,
    /// Up to which part the thinned one goes, if there is one.
    through: Option<u64>,
    /// Later ones, in order.
    numbers: Vec<u64>,
    /// What the thinned one stands for and has not been deleted.
    pub(super) stale: Vec<PathBuf>,
}

impl Parts {
    /// Of the file at `path`.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (stem, extension) = name(path);
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut parts: Vec<u64> = Vec::new();
        let mut thinned: Vec<u64> = Vec::new();
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => Some(entries),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        for entry in entries.into_iter().flatten() {
            let file = entry?.file_name();
            let own = file.to_str().and_then(|file| {
                let rest = file.strip_prefix(stem)?.strip_prefix('-')?;
                rest.strip_suffix(extension)?.strip_suffix('.')
            });
            let Some(own) = own else { continue };
            match own.strip_prefix("thinned-") {
                Some(number) => thinned.extend(number.parse::<u64>()),
                None => parts.extend(own.parse::<u64>()),
            }
        }
        let through = thinned.iter().copied().max();
        let (mut numbers, passed): (Vec<u64>, Vec<u64>) = parts
            .into_iter()
            .partition(|number| through.is_none_or(|through| *number > through));
        numbers.sort_unstable();
        let former = thinned
            .into_iter()
            .filter(|number| Some(*number) != through);
        let former = former.map(|number| thinned_name(path, number));
        let passed = passed.into_iter().map(|number| part_name(path, number));
        Ok(Self {
            path: path.to_owned(),
            through,
            stale: former.chain(passed).collect(),
            numbers,
        })
    }

    /// All of them, oldest first, without the file itself.
    pub fn paths(&self) -> Vec<PathBuf> {
        let thinned = self
            .through
            .map(|through| thinned_name(&self.path, through));
        let parts = self
            .numbers
            .iter()
            .map(|number| part_name(&self.path, *number));
        thinned.into_iter().chain(parts).collect()
    }

    /// How many of them are thinned: one or none.
    pub fn thinned(&self) -> usize {
        self.through.iter().count()
    }

    /// Parts that are not thinned.
    pub(super) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// The number of the next part.
    pub(super) fn next(&self) -> u64 {
        self.numbers.last().copied().or(self.through).unwrap_or(0) + 1
    }
}

/// The name of a part.
pub(super) fn part_name(path: &Path, number: u64) -> PathBuf {
    let (stem, extension) = name(path);
    path.with_file_name(format!("{stem}-{number}.{extension}"))
}

/// The name of what stands for all parts up to this one.
pub(super) fn thinned_name(path: &Path, number: u64) -> PathBuf {
    let (stem, extension) = name(path);
    path.with_file_name(format!("{stem}-thinned-{number}.{extension}"))
}

fn name(path: &Path) -> (&str, &str) {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let extension = path.extension().and_then(|extension| extension.to_str());
    (stem.unwrap_or_default(), extension.unwrap_or_default())
}
