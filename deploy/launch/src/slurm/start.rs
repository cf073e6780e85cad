//! Whose start of a job the run's folder belongs to: `slurm/start.json`.
//!
//! A job may be started several times, and after it another one. What the start before left of its
//! fleet is of no use: servers that are gone, and a coordinator's address. The first server's task of a
//! start puts that aside and says whose start it is; the others wait for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tradewind_common::RunId;
use tradewind_server::snapshot::{Folder, manifest};

use crate::LOOK;
use tradewind_folder::run::{forget_end, make_folder, put_coordinator_aside};
use tradewind_process::whole;

/// How long a task waits for that of the first server: nodes of a job do not start at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// One start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) job: u32,
    /// How often the job was started before.
    pub(super) restarts: u32,
}

impl Start {
    /// The one that the folder belongs to; `None` before the first.
    pub(super) fn read(run: &Path) -> Option<Self> {
        let text = fs::read_to_string(path(run)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Makes the folder this start's. Whether it was not before: then servers begin. What a fleet of
    /// many runs knows of them stays.
    pub(super) fn begin(self, run: &Path, keeps: bool) -> anyhow::Result<bool> {
        if Self::read(run) == Some(self) {
            return Ok(false);
        }
        if !keeps {
            put_coordinator_aside(run)?;
        }
        forget_end(run)?;
        let folder = run.join("slurm");
        make_folder(&folder)?;
        whole::write(&path(run), serde_json::to_string(&self)?)?;
        Ok(true)
    }

    /// Waits until the folder is this start's.
    pub(super) async fn begun(self, run: &Path) -> anyhow::Result<()> {
        let mut waited = Duration::ZERO;
        while Self::read(run) != Some(self) {
            if waited >= PATIENCE {
                bail!(
                    "no server of job {} has begun after {PATIENCE:?}; look for its log in {}",
                    self.job,
                    run.join("logs").display()
                );
            }
            tokio::time::sleep(LOOK).await;
            waited += LOOK;
        }
        Ok(())
    }
}

/// Whether there is a snapshot that a fleet can go on from. That it cannot be told does not mean that
/// there is none: the run would begin anew.
pub(super) fn resumes(run: &Path, name: &RunId) -> anyhow::Result<bool> {
    let folder = Folder::new(run);
    let numbers = manifest::list(&folder, name).with_context(|| {
        let snapshots = folder.run(name);
        format!("cannot look for snapshots in {}", snapshots.display())
    })?;
    Ok(!numbers.is_empty())
}

/// The next life of a server: one past all that the folder knows of, whoever asks.
pub(super) fn next_life(run: &Path, server: u32) -> anyhow::Result<u64> {
    let lives = run.join("slurm").join("lives");
    make_folder(&lives)?;
    let prefix = format!("server-{server}-");
    let entries =
        fs::read_dir(&lives).with_context(|| format!("cannot read {}", lives.display()))?;
    let known = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix(&prefix)?.parse::<u64>().ok()
    });
    let mut life = known.max().unwrap_or(0);
    loop {
        life += 1;
        let claim = lives.join(format!("{prefix}{life}"));
        match fs::File::create_new(&claim) {
            Ok(_) => return Ok(life),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make {}", claim.display()));
            }
        }
    }
}

fn path(run: &Path) -> PathBuf {
    run.join("slurm").join("start.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_puts_the_fleet_before_it_aside_once() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        let state = run.join("coordinator");
        let start = |restarts| Start { job: 7, restarts };
        assert!(start(0).begin(run, false).unwrap());
        fs::create_dir(&state).unwrap();
        assert!(
            !start(0).begin(run, false).unwrap(),
            "a server of it that was started again"
        );
        assert!(state.exists());
        assert!(start(1).begin(run, true).unwrap() && state.exists());
        assert!(start(2).begin(run, false).unwrap(), "the job was requeued");
        assert!(!state.exists() && run.join("coordinator-1").exists());
        assert_eq!(Start::read(run), Some(start(2)));
    }

    #[test]
    fn lives_of_a_server_grow_and_are_given_out_once() {
        let run = tempfile::tempdir().unwrap();
        let next = |server| next_life(run.path(), server).unwrap();
        assert_eq!((next(0), next(0), next(1), next(0)), (1, 2, 1, 3));
        fs::create_dir_all(run.path().join("slurm/lives")).unwrap();
        fs::write(run.path().join("slurm/lives/server-1-9"), "").unwrap();
        assert_eq!(next(1), 10, "another task of this server has had some");
    }
}
