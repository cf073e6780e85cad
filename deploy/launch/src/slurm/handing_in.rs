//! Handing jobs in so that none is forgotten.
//!
//! Between the moment when Slurm takes a job and that when its number is written down, whoever hands it
//! in may be killed: a job that nobody knows of would train in the run's folder beside the next one.
//! So what is handed in stands in `slurm/jobs/NAME.pending` before, and that file is locked as long as
//! sbatch or this command runs. Who finds it unlocked asks Slurm whether it has taken the script.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::client;
use super::jobs::{self, Job};
use tradewind_folder::run::make_folder;
use tradewind_process::log::say;

/// A job whose number is not known yet.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Pending {
    script: PathBuf,
    /// Its number is 0.
    job: Job,
}

/// Slurm has not taken a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotTaken;

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sbatch refused the job")
    }
}

/// Hands a script in for the run in this folder, and writes the job down. `job` is what the script
/// becomes, whatever its number is. Returns the number.
///
/// # Errors
/// sbatch does not take it, or the folder cannot be written or locked.
pub(super) fn hand_in(
    run: &Path,
    script: &Path,
    options: &[String],
    job: Job,
) -> anyhow::Result<u32> {
    let folder = jobs::folder(run);
    let write = || format!("cannot write into {}", folder.display());
    make_folder(&folder)?;
    // Is removed however this function is left, but not if the process is killed.
    let mut file = tempfile::Builder::new()
        .prefix("")
        .suffix(SUFFIX)
        .tempfile_in(&folder)
        .with_context(write)?;
    file.as_file()
        .lock()
        .with_context(|| format!("cannot lock {}", file.path().display()))?;
    let pending = Pending {
        script: script.to_owned(),
        job,
    };
    file.write_all(&serde_json::to_vec(&pending)?)
        .with_context(write)?;
    // A lock is that of the open file: sbatch, whose standard input it is, holds it as well.
    let number = client::submit(script, options, file.as_file().try_clone()?).context(NotTaken)?;
    let job = Job {
        job: number,
        ..pending.job
    };
    if let Err(error) = jobs::add(run, &job) {
        // With the next command it is found by this.
        let _ = file.keep();
        return Err(error.context(format!(
            "Slurm has taken job {number}, which cannot be written down"
        )));
    }
    Ok(number)
}

/// All jobs of the run in this folder, with those that nobody has written down.
///
/// # Errors
/// Slurm does not answer, or the folder cannot be read or written.
pub(super) fn jobs_of(run: &Path) -> anyhow::Result<Vec<Job>> {
    settle(run, client::of_script)?;
    jobs::read(run)
}

/// Writes jobs down that were handed in by a command which was killed over it.
fn settle(
    run: &Path,
    of_script: impl Fn(&Path) -> anyhow::Result<Vec<client::Row>>,
) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(jobs::folder(run)) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        if !path.to_string_lossy().ends_with(SUFFIX) {
            continue;
        }
        // It may be done meanwhile.
        let Ok(file) = File::open(&path) else {
            continue;
        };
        wait_for(&file, &path)?;
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        // Who was killed before it stood there has not asked Slurm.
        if let Ok(Pending { script, job }) = serde_json::from_str(&text) {
            let taken = of_script(&script)?;
            let known = jobs::read(run)?;
            let mut numbers = taken.iter().filter_map(client::Row::number);
            let forgotten = numbers.find(|number| known.iter().all(|job| job.job != *number));
            if let Some(number) = forgotten {
                let job = Job { job: number, ..job };
                jobs::add(run, &job)?;
            }
        }
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Waits until nobody is handing it in, or is finding out about it.
fn wait_for(file: &File, path: &Path) -> anyhow::Result<()> {
    let lock = || format!("cannot lock {}", path.display());
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            say("a job is just being submitted; waiting for Slurm to take it");
            file.lock().with_context(lock)
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(lock),
    }
}

const SUFFIX: &str = ".pending";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn commands_that_find_a_forgotten_job_at_once_ask_once() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        fs::create_dir_all(jobs::folder(run)).unwrap();
        let path = jobs::folder(run).join(format!("x{SUFFIX}"));
        let job = Job {
            job: 0,
            leads: true,
            servers: true,
            groups: vec![],
        };
        let script = "/runs/r/slurm/job.sh".into();
        fs::write(&path, serde_json::to_vec(&Pending { script, job }).unwrap()).unwrap();
        let asked = AtomicU32::new(0);
        let settled = || {
            settle(run, |_| {
                asked.fetch_add(1, Ordering::Relaxed);
                Ok(Vec::new())
            })
        };
        std::thread::scope(|scope| {
            let handing_in = File::open(&path).unwrap();
            handing_in.lock().unwrap();
            let all = [scope.spawn(settled), scope.spawn(settled)];
            // Both have come to the lock, or one of them comes when nothing is left to do.
            std::thread::sleep(std::time::Duration::from_millis(200));
            drop(handing_in);
            for one in all {
                one.join().unwrap().unwrap();
            }
        });
        assert_eq!(asked.into_inner(), 1);
        assert!(!path.exists());
    }

    #[test]
    fn a_job_whose_number_nobody_wrote_down_is_found() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        let job = |job| Job {
            job,
            leads: true,
            servers: true,
            groups: vec![0],
        };
        let row = |job: &str| client::Row {
            job: job.into(),
            name: "r".into(),
            state: "PENDING".into(),
            elapsed: "0:00".into(),
            reason: "(Resources)".into(),
        };
        let left_behind = |text: &str| {
            fs::create_dir_all(jobs::folder(run)).unwrap();
            let path = jobs::folder(run).join(format!("x{SUFFIX}"));
            fs::write(&path, text).unwrap();
            path
        };
        let pending = serde_json::to_string(&Pending {
            script: "/runs/r/slurm/job.sh".into(),
            job: job(0),
        })
        .unwrap();
        let asked = |rows: &[client::Row]| {
            let rows = rows.to_vec();
            move |script: &Path| {
                assert_eq!(script, "/runs/r/slurm/job.sh");
                Ok(rows.clone())
            }
        };

        settle(run, |_| panic!("nothing is left behind")).unwrap();
        let path = left_behind(&pending[..9]);
        settle(run, |_| panic!("sbatch was not called yet")).unwrap();
        assert!(!path.exists());

        // Slurm did not take it.
        let path = left_behind(&pending);
        settle(run, asked(&[])).unwrap();
        assert_eq!(jobs::read(run).unwrap(), []);
        assert!(!path.exists());

        left_behind(&pending);
        settle(run, asked(&[row("7+0"), row("7+1")])).unwrap();
        assert_eq!(jobs::read(run).unwrap(), [job(7)]);

        // It wrote it down, and was killed then.
        left_behind(&pending);
        settle(run, asked(&[row("7+0"), row("7+1")])).unwrap();
        assert_eq!(jobs::read(run).unwrap(), [job(7)]);

        // The script was handed in before, and that job is known.
        left_behind(&pending);
        settle(run, asked(&[row("7+0"), row("7+1"), row("9+0")])).unwrap();
        assert_eq!(jobs::read(run).unwrap(), [job(7), job(9)]);

        let path = left_behind(&pending);
        settle(run, |_| anyhow::bail!("no answer")).unwrap_err();
        assert!(path.exists(), "it is asked again later");
    }
}
