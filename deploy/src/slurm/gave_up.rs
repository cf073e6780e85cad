//! What a task leaves that cannot go on, for whoever leads its job: `slurm/gave-up-JOB-RESTARTS`.
//!
//! The file belongs to one start of one job: neither a later start nor another job of the run, whose
//! groups are its own, ends for it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::start::Start;

/// Says who gave up, and why; the first one counts.
pub(super) fn write(run: &Path, start: Start, why: &str) -> anyhow::Result<()> {
    eprintln!("{why}");
    let path = path(run, start);
    let told = fs::File::create_new(&path).and_then(|mut file| file.write_all(why.as_bytes()));
    match told {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot write {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// What the first one of this start said, if any did.
pub(super) fn read(run: &Path, start: Start) -> Option<String> {
    fs::read_to_string(path(run, start)).ok()
}

fn path(run: &Path, Start { job, restarts }: Start) -> PathBuf {
    run.join("slurm").join(format!("gave-up-{job}-{restarts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gave_up_first_is_told_to_its_own_start_alone() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        fs::create_dir(run.join("slurm")).unwrap();
        let start = |job, restarts| Start { job, restarts };
        write(run, start(7, 0), "first").unwrap();
        write(run, start(7, 0), "second").unwrap();
        assert_eq!(read(run, start(7, 0)).as_deref(), Some("first"));
        assert_eq!(read(run, start(7, 1)), None, "the job was requeued");
        assert_eq!(read(run, start(8, 0)), None, "a job of groups alone");
    }
}
