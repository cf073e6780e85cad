//! The lock of a folder: `.lock` in it, which goes with the process that holds it, however that ends.
//!
//! A lock that somebody holds and one that cannot be had are two things: some file systems have no
//! locks unless they are mounted with them, and who is told of a run under way there looks in vain.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

/// Where the kernel tells what is mounted.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Takes the lock of a folder; `None` if somebody else has it.
///
/// # Errors
/// The folder cannot be written, or cannot be locked: with its file system, and the way out.
pub fn take(folder: &Path) -> anyhow::Result<Option<File>> {
    take_by(folder, File::try_lock)
}

/// As [`take`], by this way of locking.
pub fn take_by(
    folder: &Path,
    try_lock: impl FnOnce(&File) -> Result<(), TryLockError>,
) -> anyhow::Result<Option<File>> {
    let path = folder.join(".lock");
    let file =
        File::create(&path).with_context(|| format!("cannot write into {}", folder.display()))?;
    match try_lock(&file) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
            let on = fs::canonicalize(folder).ok();
            let on = on.and_then(|folder| file_system(&mounts, &folder));
            let on = on.map_or_else(String::new, |(kind, at)| {
                format!(", which is on the {kind} file system at {}", at.display())
            });
            Err(anyhow!(
                "cannot lock {}{on}: {error}. A folder that is worked in needs file locks: have them switched on where the file system is mounted (Lustre: the option flock; NFS: its lock service), or choose a folder on another one with --out",
                path.display()
            ))
        }
    }
}

/// Whether somebody holds the lock of a folder.
pub fn is_held(folder: &Path) -> bool {
    // Nothing is left behind where nobody ever was.
    let file = File::open(folder.join(".lock"));
    file.is_ok_and(|file| match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        // Who holds it may be on a machine that has locks: nobody is called gone without knowing.
        Err(TryLockError::Error(_)) => true,
    })
}

/// The kind of the file system that a path is on, and where that is mounted.
fn file_system(mounts: &str, path: &Path) -> Option<(String, PathBuf)> {
    // 36 35 98:0 /root /where options … - kind source options
    let mount = |line: &str| {
        let (about, kind) = line.split_once(" - ")?;
        let at = PathBuf::from(unescaped(about.split(' ').nth(4)?));
        let kind = kind.split(' ').next()?.to_owned();
        path.starts_with(&at).then_some((kind, at))
    };
    // Of two at one place the later one is seen.
    let over = mounts.lines().filter_map(mount);
    over.max_by_key(|(_, at)| at.components().count())
}

/// Blanks and backslashes of a path are told as octal numbers.
fn unescaped(path: &str) -> String {
    let octal = [("\\040", " "), ("\\011", "\t"), ("\\134", "\\")];
    octal.iter().fold(path.to_owned(), |path, (code, text)| {
        path.replace(code, text)
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_file_system_without_locks_is_no_run_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let without = |_: &File| {
            // ENOSYS, as Lustre has it without the option.
            Err(TryLockError::Error(io::Error::from_raw_os_error(38)))
        };
        let error = take_by(folder.path(), without).unwrap_err().to_string();
        assert!(!error.contains("under way"), "{error}");
        for wanted in ["os error 38", " file system at /", "flock", "--out"] {
            assert!(error.contains(wanted), "{wanted} is not in {error}");
        }
        let held = |_: &File| Err(TryLockError::WouldBlock);
        assert!(take_by(folder.path(), held).unwrap().is_none());
        assert!(take(folder.path()).unwrap().is_some());
    }

    #[test]
    fn the_file_system_of_a_path_is_that_of_the_innermost_mount() {
        let mounts = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:30 / /scratch rw shared:5 - lustre mds@tcp:/fs rw,lazystatfs
41 22 0:31 / /home\\040of\\040all rw - nfs4 server:/home rw
42 40 0:32 / /scratch/quick rw - tmpfs tmpfs rw
43 42 0:33 / /scratch/quick rw - beegfs fs rw
damaged";
        let check = |path: &str, want: Option<(&str, &str)>| {
            let want = want.map(|(kind, at)| (kind.to_owned(), PathBuf::from(at)));
            assert_eq!(file_system(mounts, Path::new(path)), want);
        };
        check("/scratch/me/runs", Some(("lustre", "/scratch")));
        check("/scratchy", Some(("ext4", "/")));
        check("/home of all/me", Some(("nfs4", "/home of all")));
        check("/scratch/quick/r", Some(("beegfs", "/scratch/quick")));
        assert_eq!(file_system("", Path::new("/x")), None);
    }
}
