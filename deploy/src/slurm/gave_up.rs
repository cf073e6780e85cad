//! What a task leaves that cannot go on, for whoever leads its job: `slurm/gave-up-JOB-RESTARTS`.
//!
//! The file belongs to one start of one job: neither a later start nor another job of the run, whose
//! groups are its own, ends for it.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::start::Start;
use crate::failure::Failure;

/// Says who gave up, and why; the first one counts.
pub(super) fn write(run: &Path, start: Start, failure: &Failure) -> anyhow::Result<()> {
    eprintln!("{}", failure.text);
    let path = path(run, start);
    let text = serde_json::to_string_pretty(failure)?;
    let told = fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    match told {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot write {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// What the first one of this start said, if any did. What is only half written is told later.
pub(super) fn read(run: &Path, start: Start) -> Option<Failure> {
    let text = fs::read_to_string(path(run, start)).ok()?;
    serde_json::from_str(&text).ok()
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
        let failure = |text: &str| Failure::of_launcher(text.to_owned());
        write(run, start(7, 0), &failure("first")).unwrap();
        write(run, start(7, 0), &failure("second")).unwrap();
        assert_eq!(read(run, start(7, 0)), Some(failure("first")));
        assert_eq!(read(run, start(7, 1)), None, "the job was requeued");
        assert_eq!(read(run, start(8, 0)), None, "a job of groups alone");
        fs::write(path(run, start(7, 0)), "{\"text\": \"fir").unwrap();
        assert_eq!(read(run, start(7, 0)), None, "it is still being written");
    }
}
