//! Changes behind a state: a file that is only appended to. Each change stands there with its checksum.
//!
//! A change that is cut off at the end of the file was never acted on: whoever wrote it had not been told
//! that it is durable. Anything else that does not have its checksum is damage.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::disk;

/// What ends a change; a change itself is JSON on one line.
const END: &[u8] = b"\n}\n";

/// Changes that are being written.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Journal {
    /// One without changes, in place of what is there under this name; its owner alone may read it, as the
    /// state.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path).map_err(disk::at(&path))?;
        file.sync_all().map_err(disk::at(&path))?;
        path.parent().map_or(Ok(()), disk::sync_folder)?;
        Ok(Self {
            file,
            path,
            bytes: 0,
        })
    }

    /// Writes a change behind the others; once it has returned, it is durable. After an error it may be
    /// there, whole or in part: nothing can be written behind it.
    pub(super) fn append(&mut self, change: &[u8]) -> io::Result<()> {
        let bytes = disk::with_checksum(change);
        self.file.write_all(&bytes).map_err(disk::at(&self.path))?;
        self.file.sync_data().map_err(disk::at(&self.path))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// How much is written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The changes in a file, oldest first; what is wrong with it, if something is.
pub(super) fn read(path: &Path) -> io::Result<Result<Vec<Vec<u8>>, String>> {
    Ok(understand(&fs::read(path)?))
}

fn understand(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let (mut rest, mut changes) = (bytes, Vec::new());
    while let Some(end) = rest.windows(END.len()).position(|window| window == END) {
        let (change, after) = rest.split_at(end + END.len());
        match disk::check_checksum(change) {
            Ok(change) => changes.push(change.to_vec()),
            // Of a file that a machine has died over parts may be there that were not written yet, as zeros.
            Err(_) if after.is_empty() && change.contains(&0) => break,
            Err(what) => return Err(format!("of change {} in it {what}", changes.len() + 1)),
        }
        rest = after;
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_was_never_written_and_what_is_damaged_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(path.clone()).unwrap();
        let written = [&b"{\"a\":1}"[..], b"{\"b\":2}", b"{\"c\":3}"];
        for change in written {
            journal.append(change).unwrap();
        }
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, journal.bytes());
        assert_eq!(read(&path).unwrap().unwrap(), written);
        let each = bytes.len() / 3;
        for cut in 0..bytes.len() {
            let left = understand(&bytes[..cut]).unwrap();
            assert_eq!(left, written[..cut / each], "cut off at {cut}");
            let mut zeros = bytes.clone();
            zeros[cut..].fill(0);
            let left = understand(&zeros).unwrap();
            assert_eq!(left, written[..cut / each], "not written from {cut} on");
        }
        for place in 0..2 * each {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            let error = understand(&damaged).unwrap_err();
            let number = place / each + 1;
            assert!(
                error.starts_with(&format!("of change {number} in it")),
                "damaged at {place}: {error}"
            );
        }
    }
}
