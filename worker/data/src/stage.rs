//! Copying files ahead of their use.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Cache, DataError, Source};

/// How far files are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// Files of which there is a copy now, or none can be made.
    pub files: usize,
    /// Of how many.
    pub files_all: usize,
    /// Bytes of these files, and of the part of one that is being copied.
    pub bytes: u64,
    /// Of how many.
    pub bytes_all: u64,
    /// Files beyond the cache's budget: they are left where they are.
    pub files_beyond: usize,
}

/// Copies the files of some samples, in order, as many as the cache's budget has room for. `progress` is told while
/// it goes on; `stop` ends it between two pieces of a file, and what is copied by then is kept.
///
/// # Errors
/// A file that is missing, cannot be read, or was changed.
pub fn stage(
    source: &dyn Source,
    samples: Range<usize>,
    cache: &Cache,
    progress: &mut dyn FnMut(Staged),
    stop: &AtomicBool,
) -> Result<Staged, DataError> {
    let stopped = || stop.load(Ordering::Relaxed);
    let mut files = source.files(samples);
    let mut staged = Staged::default();
    let mut bytes = Vec::with_capacity(files.len());
    for file in &files {
        if stopped() {
            return Ok(staged);
        }
        bytes.push(cache.bytes_of(file)?);
    }
    let fitting = cache.fitting(&bytes);
    if fitting < files.len() {
        let (beyond, folder, most) = (
            files.len() - fitting,
            cache.folder().display(),
            cache.bytes(),
        );
        tracing::warn!(
            "{beyond} of {} files have no room in {folder}, which may take {most} bytes; the first of them is {}; give the cache more",
            files.len(),
            files[fitting].display()
        );
        staged.files_beyond = beyond;
        files.truncate(fitting);
    }
    staged.files_all = files.len();
    staged.bytes_all = bytes[..fitting].iter().sum();
    for (file, bytes) in files.iter().zip(bytes) {
        let before = staged;
        let held = cache.file_unless(file, &mut |more| {
            staged.bytes += more;
            if more > 0 {
                progress(staged);
            }
            !stopped()
        })?;
        if held.is_none() {
            return Ok(before);
        }
        staged = before;
        staged.files += 1;
        staged.bytes += bytes;
        progress(staged);
    }
    Ok(staged)
}

/// The same, told in the log.
///
/// # Errors
/// As of [`stage`].
pub fn stage_and_tell(
    source: &dyn Source,
    samples: Range<usize>,
    cache: &Cache,
    stop: &AtomicBool,
) -> Result<(), DataError> {
    let staged = stage(source, samples, cache, &mut |_| {}, stop)?;
    let counts = cache.counts();
    tracing::info!(
        files = staged.files,
        of = staged.files_all,
        bytes = staged.bytes,
        beyond = staged.files_beyond,
        copied = counts.bytes_copied,
        seconds = counts.copying_seconds,
        "files are on this node's disk"
    );
    Ok(())
}
