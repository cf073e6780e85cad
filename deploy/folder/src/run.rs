//! The folder of a run.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tradewind_common::run_files;

use crate::lock;
use tradewind_process::whole;

/// Pause between two looks.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// How often the lock of a folder is tried.
const LOCK_TRIES: u32 = 4;

/// `runs/<name>/`, held by one launcher at a time.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: File,
    /// Where a former run of the same name was moved.
    pub moved: Option<PathBuf>,
    /// The configuration that the run in this folder had before; `None` if it is a new run.
    before: Option<String>,
}

impl RunFolder {
    /// Makes the folder. What a former run left there is moved aside, never overwritten.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let moved = if path.join(run_files::CONFIG).exists() {
            drop(lock(path)?);
            let aside = free_name(path);
            fs::rename(path, &aside)
                .with_context(|| format!("cannot move {} aside", path.display()))?;
            Some(aside)
        } else {
            None
        };
        let is_empty = |p: &Path| fs::read_dir(p).is_ok_and(|mut entries| entries.next().is_none());
        if path.exists() && !is_empty(path) {
            bail!(
                "{} exists and is no run's folder; choose another with --out or --set run.name=…",
                path.display()
            );
        }
        make_folder(&path.join("logs"))?;
        let path = fs::canonicalize(path)?;
        // One that cannot be locked is nobody's; what was made here would be in the way of the next try.
        let lock = try_lock(&path).inspect_err(|_| {
            let _ = fs::remove_file(path.join(".lock"));
            let _ = fs::remove_dir(path.join("logs")).and_then(|()| fs::remove_dir(&path));
        })?;
        let lock = lock.with_context(|| under_way(&path))?;
        Ok(Self {
            path,
            _lock: lock,
            moved,
            before: None,
        })
    }

    /// Takes the folder of a run that has ended, to go on in it.
    pub fn reopen(path: &Path) -> anyhow::Result<Self> {
        let path = fs::canonicalize(path)?;
        let lock = lock(&path)?;
        let before = fs::read_to_string(path.join(run_files::CONFIG));
        let before =
            before.with_context(|| format!("cannot read the run in {}", path.display()))?;
        make_folder(&path.join("logs"))?;
        Ok(Self {
            path,
            _lock: lock,
            moved: None,
            before: Some(before),
        })
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration, with every key, that the run had before it was reopened; `None` if it is new.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// Writes a file so that readers see all of it or none.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        Ok(whole::write(&self.file(name), text)?)
    }

    /// Writes a file that only its owner may read, so that readers see all of it or none.
    pub fn write_secret(&self, name: &str, text: &str) -> anyhow::Result<()> {
        Ok(whole::write_secret(&self.file(name), text)?)
    }

    /// Removes the folder of a run that never began, and puts the former one back. One that was
    /// reopened stays, with its former configuration.
    pub fn discard(self) {
        if let Some(before) = &self.before {
            let _ = self.write_secret(run_files::CONFIG, before);
            return;
        }
        let _ = fs::remove_dir_all(&self.path);
        if let Some(moved) = &self.moved {
            let _ = fs::rename(moved, &self.path);
        }
    }
}

/// Makes a folder and those above it, in which nobody but their owner writes, whatever the umask: who can put files
/// there can make the run train on them.
///
/// # Errors
/// It cannot be made.
pub fn make_folder(path: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.with_context(|| format!("cannot make {}", path.display()))
}

/// Moves the coordinator's state aside, if there is some: the fleet that begins here is a new one, and
/// what it must know of the run is in a snapshot.
///
/// # Errors
/// It cannot be moved.
pub fn put_coordinator_aside(run: &Path) -> anyhow::Result<()> {
    let state = run.join(run_files::COORDINATOR);
    if state.exists() {
        let aside = free_name(&state);
        fs::rename(&state, &aside)
            .with_context(|| format!("cannot move {} aside", state.display()))?;
    }
    Ok(())
}

/// Removes what tells of the run's end, which is yet to come.
///
/// # Errors
/// It is there and cannot be removed.
pub fn forget_end(run: &Path) -> anyhow::Result<()> {
    for name in [run_files::SUMMARY, run_files::EVALUATION] {
        let path = run.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The lock goes with the launcher, however it ends.
fn lock(path: &Path) -> anyhow::Result<File> {
    try_lock(path)?.with_context(|| under_way(path))
}

/// `None` if another launcher has it.
fn try_lock(path: &Path) -> anyhow::Result<Option<File>> {
    // Whoever only looks has it for a moment.
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = lock::take(path)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

fn under_way(path: &Path) -> String {
    format!(
        "a run is under way in {}; wait for it, or choose another with --out or --set run.name=…",
        path.display()
    )
}

/// A name beside `path` that nothing has yet: with -1, -2, … behind it.
pub fn free_name(path: &Path) -> PathBuf {
    let numbered = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("-{n}"));
        PathBuf::from(name)
    };
    (1..)
        .map(numbered)
        .find(|aside| !aside.exists())
        .expect("numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::is_held;

    #[test]
    fn a_former_run_is_moved_aside_and_a_live_one_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("r");
        let first = RunFolder::create(&path).unwrap();
        first.write("config.toml", "first").unwrap();
        let error = RunFolder::create(&path).unwrap_err().to_string();
        assert!(error.contains("a run is under way"), "{error}");
        assert!(is_held(&path));
        drop(first);
        // A child that another test starts just now has the lock until it runs its program.
        let free = || {
            !is_held(&path) || {
                std::thread::sleep(LOOK);
                false
            }
        };
        assert!((0..LOCK_TRIES).any(|_| free()));
        let second = RunFolder::create(&path).unwrap();
        let aside = second.moved.clone().unwrap();
        assert_eq!(
            fs::read_to_string(aside.join("config.toml")).unwrap(),
            "first"
        );
        assert!(!path.join("config.toml").exists());
        second.discard();
        assert!(!aside.exists());
        assert_eq!(
            fs::read_to_string(path.join("config.toml")).unwrap(),
            "first"
        );
    }

    #[test]
    #[ignore = "plays a process, for the test below"]
    fn plays_a_process_with_the_umask_at_hand() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("deep/r");
        let run = RunFolder::create(&path).unwrap();
        run.write("token", "open to all").unwrap();
        run.write_secret("token", "secret").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&run.file("token")), 0o600);
        for folder in [&path, &path.join("logs")] {
            assert_eq!(mode(folder) & 0o022, 0, "{}", folder.display());
        }
    }

    #[test]
    fn secrets_are_their_owners_alone_and_nobody_else_writes_into_the_folder() {
        for umask in ["0", "022", "077"] {
            let played = std::process::Command::new("sh")
                .args(["-c", "umask \"$1\" && exec \"$0\" --exact --ignored \"$2\""])
                .arg(std::env::current_exe().unwrap())
                .args([umask, "run::tests::plays_a_process_with_the_umask_at_hand"])
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&played.stdout);
            let is_played = played.status.success() && told.contains("1 passed");
            assert!(is_played, "umask {umask}: {told}");
        }
    }

    #[test]
    fn a_run_is_gone_on_with_in_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("r");
        let first = RunFolder::create(&path).unwrap();
        first.write("config.toml", "first").unwrap();
        assert!(RunFolder::reopen(&path).is_err(), "it is under way");
        drop(first);
        let again = RunFolder::reopen(&path).unwrap();
        again.write("config.toml", "second").unwrap();
        again.discard();
        let kept = fs::read_to_string(path.join("config.toml")).unwrap();
        assert_eq!(kept, "first");
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("thesis.tex"), "x").unwrap();
        let error = RunFolder::create(root.path()).unwrap_err().to_string();
        assert!(error.contains("is no run's folder"), "{error}");
    }
}
