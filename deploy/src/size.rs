//! What files have on disk.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Files that are looked at for the size of a folder.
const FILES_MAX: usize = 100_000;

/// What a file, or all files in a folder, have on disk; of many files those that were looked at. Links are
/// not followed.
pub(crate) fn bytes(path: &Path) -> u64 {
    let mut folders = match fs::symlink_metadata(path) {
        Ok(is) if is.is_dir() => vec![path.to_owned()],
        Ok(is) => return of_file(&is),
        Err(_) => return 0,
    };
    let (mut sum, mut seen) = (0, 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(is) = entry.metadata() else { continue };
            seen += 1;
            if seen > FILES_MAX {
                return sum;
            }
            match is.is_dir() {
                true => folders.push(entry.path()),
                false => sum += of_file(&is),
            }
        }
    }
    sum
}

fn of_file(is: &Metadata) -> u64 {
    512 * is.blocks()
}
