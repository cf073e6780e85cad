//! What a process uses, and how large files are, as Linux tells it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;
use tradewind_process::usage::Status;

/// At a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    /// Resident.
    pub(super) memory_bytes: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
}

impl Usage {
    /// The larger of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
        }
    }
}

/// Of a process; `None` if it is not there any more.
pub(super) fn usage(pid: u32) -> Option<Usage> {
    let status = Status::of(pid)?;
    Some(Usage {
        memory_bytes: status.resident_bytes()?,
        threads: status.threads()?,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
    })
}

/// Bytes of the files in a folder and below it, by name, with N for numbers: those of a kind together.
pub(super) fn files(folder: &Path) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            // A file may be gone before it is looked at.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let path = entry.path();
            if metadata.is_dir() {
                folders.push(path);
            } else if let Ok(name) = path.strip_prefix(folder) {
                *sizes.entry(kind(&name.to_string_lossy())).or_default() += metadata.len();
            }
        }
    }
    sizes
}

fn kind(name: &str) -> String {
    let mut kind = String::new();
    for letter in name.chars() {
        match letter {
            '0'..='9' if kind.ends_with('N') => {}
            '0'..='9' => kind.push('N'),
            other => kind.push(other),
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_a_folder_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("log")).unwrap();
        for (name, bytes) in [
            ("log/server-0.log", 3),
            ("log/server-12.log", 4),
            ("a.json", 5),
        ] {
            fs::write(folder.path().join(name), vec![0; bytes]).unwrap();
        }
        let found = files(folder.path());
        let want = [("a.json".to_owned(), 5), ("log/server-N.log".to_owned(), 7)];
        assert_eq!(found, BTreeMap::from(want));
        let before = usage(std::process::id()).unwrap();
        assert!(
            before.memory_bytes > 100_000 && before.threads > 0,
            "{before:?}"
        );
        let open: Vec<_> = (0..50)
            .map(|_| fs::File::open(folder.path().join("a.json")))
            .collect();
        let after = usage(std::process::id()).unwrap();
        assert!(
            after.descriptors >= before.descriptors + 40,
            "{after:?} {}",
            open.len()
        );
        assert_eq!(usage(u32::MAX), None);
    }
}
