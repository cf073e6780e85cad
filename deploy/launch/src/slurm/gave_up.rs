//! What a task leaves that cannot go on, for whoever leads its job: `slurm/gave-up-JOB-RESTARTS`.
//!
//! The file belongs to one start of one job: neither a later start nor another job of the run, whose
//! groups are its own, ends for it.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::NamedTempFile;

use super::start::Start;
use tradewind_folder::failure::Failure;

/// Says who gave up, and why; the first one counts.
///
/// # Errors
/// It cannot be written. What could not be written whole ends the job all the same, if there is room for
/// a name: nobody would tell it again.
pub(super) fn write(run: &Path, start: Start, failure: &Failure) -> anyhow::Result<()> {
    tradewind_process::complain!("{}", failure.text);
    let text = serde_json::to_string_pretty(failure)?;
    let path = path(run, start);
    let told = || {
        let mut beside = NamedTempFile::new_in(run.join("slurm"))?;
        let written = beside.write_all(text.as_bytes());
        match beside.persist_noclobber(&path) {
            Err(told) if told.error.kind() != ErrorKind::AlreadyExists => Err(told.error),
            _ => written,
        }
    };
    told().with_context(|| format!("cannot write {}", path.display()))
}

/// What the first one of this start said, if any did.
pub(super) fn read(run: &Path, start: Start) -> Option<Failure> {
    let path = path(run, start);
    let text = fs::read_to_string(&path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|_| {
        let path = path.display();
        Failure::of_launcher(format!(
            "a task gave up and could not write into {path} why; the logs of the run have its words"
        ))
    }))
}

fn path(run: &Path, Start { job, restarts }: Start) -> PathBuf {
    run.join("slurm").join(format!("gave-up-{job}-{restarts}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Member, Process, Role};

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
        let left = fs::read_dir(run.join("slurm")).unwrap().count();
        assert_eq!(left, 1, "nothing lies beside it");
    }

    #[test]
    fn all_that_is_known_of_a_rank_is_told() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        fs::create_dir(run.join("slurm")).unwrap();
        let start = Start {
            job: 7,
            restarts: 0,
        };
        let rank = Role::Member(Member::Rank { group: 1, rank: 2 });
        let arguments = ["-c", "exit 6"].map(String::from);
        let (sh, log) = (Path::new("sh"), run.join("log"));
        let mut process = Process::start(rank, sh, &arguments, &BTreeMap::new(), &log).unwrap();
        let ended = loop {
            if let Some(ended) = process.poll().unwrap() {
                break ended;
            }
        };
        let failure = Failure::from(ended);
        assert_eq!(failure.cause.exit_status, Some(6));
        write(run, start, &failure).unwrap();
        assert_eq!(read(run, start), Some(failure));
    }

    /// As it is where the disk was full: the job must not wait for one that is gone.
    #[test]
    fn a_task_that_gave_up_without_words_ends_its_start() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        fs::create_dir(run.join("slurm")).unwrap();
        let start = Start {
            job: 7,
            restarts: 0,
        };
        for text in ["", "{\"text\": \"fir"] {
            fs::write(path(run, start), text).unwrap();
            let text = read(run, start).unwrap().text;
            assert!(text.contains("slurm/gave-up-7-0"), "{text}");
        }
    }
}
