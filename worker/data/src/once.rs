//! What is remembered of files and samples while they are read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use tradewind_common::mix::mixed;

/// A bit for each sample: whether it was found good.
#[derive(Debug)]
pub(crate) struct Checked(Vec<AtomicU64>);

impl Checked {
    /// None of so many samples is checked.
    pub fn new(samples: usize) -> Self {
        Self(
            (0..samples.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }

    /// Whether it was found good before.
    pub fn has(&self, sample: usize) -> bool {
        self.0[sample / 64].load(Ordering::Relaxed) & (1 << (sample % 64)) != 0
    }

    /// It was found good.
    pub fn add(&self, sample: usize) {
        self.0[sample / 64].fetch_or(1 << (sample % 64), Ordering::Relaxed);
    }
}

/// Tells a file from the same file written later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Its length.
    pub bytes: u64,
    /// When it was written last: seconds and nanoseconds.
    pub written: (i64, i64),
}

impl Stamp {
    /// Of a file.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// In 64 bits that are not 0; two stamps have the same ones by chance once in 2⁶⁴ times.
    pub fn bits(self) -> u64 {
        mixed(self.bytes, [self.written.0 as u64, self.written.1 as u64]).max(1)
    }
}

/// The stamp that each of many files had when it was read for the first time.
#[derive(Debug)]
pub(crate) struct FirstStamps(Vec<AtomicU64>);

impl FirstStamps {
    /// None of so many files was read.
    pub fn new(files: usize) -> Self {
        Self((0..files).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether it was read before.
    pub fn has(&self, file: usize) -> bool {
        self.0[file].load(Ordering::Relaxed) != 0
    }

    /// Whether it is as it was when it was read for the first time, which may be now.
    pub fn are(&self, file: usize, stamp: Stamp) -> bool {
        let now = stamp.bits();
        let first = self.0[file].compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        first.is_ok() || first == Err(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_checked_one_by_one() {
        let checked = Checked::new(130);
        for sample in [0, 63, 64, 129] {
            assert!(!checked.has(sample));
            checked.add(sample);
            assert!(checked.has(sample));
        }
        assert!(!checked.has(1) && !checked.has(65) && !checked.has(128));
    }

    #[test]
    fn a_file_that_was_written_again_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let stamp = |content: &str| {
            std::fs::write(&path, content).unwrap();
            Stamp::of(&path.metadata().unwrap())
        };
        let stamps = FirstStamps::new(2);
        let first = stamp("one");
        assert!(!stamps.has(1));
        assert!(stamps.are(1, first) && stamps.are(1, first) && stamps.has(1));
        assert!(!stamps.are(1, stamp("two and more")));
        assert!(stamps.are(0, stamp("two and more")));
    }
}
