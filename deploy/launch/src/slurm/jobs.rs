//! The jobs of a run: `slurm/jobs/NUMBER.json` in its folder. A file for each, so that two commands that
//! hand jobs in at once do not lose one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use tradewind_folder::run::make_folder;
use tradewind_process::whole;

/// A job that was handed in for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) job: u32,
    /// Whether it leads the run: it has the servers, or on a fleet the groups that start together.
    pub(super) leads: bool,
    /// Whether it has the servers.
    pub(super) servers: bool,
    /// Its groups.
    pub(super) groups: Vec<u32>,
}

/// All jobs of the run in this folder, in the order of their numbers, which is that of handing in.
pub(super) fn read(run: &Path) -> anyhow::Result<Vec<Job>> {
    let folder = folder(run);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = || format!("cannot read {}", path.display());
        let text = fs::read_to_string(&path).with_context(name)?;
        all.push(serde_json::from_str::<Job>(&text).with_context(name)?);
    }
    all.sort_by_key(|job| job.job);
    Ok(all)
}

/// The job that leads the run, if one was handed in.
pub(super) fn lead(run: &Path) -> anyhow::Result<Option<u32>> {
    let mut all = read(run)?.into_iter();
    Ok(all.rfind(|job| job.leads).map(|job| job.job))
}

/// Adds a job.
pub(super) fn add(run: &Path, job: &Job) -> anyhow::Result<()> {
    let path = folder(run).join(format!("{}.json", job.job));
    make_folder(&folder(run))?;
    Ok(whole::write(&path, serde_json::to_string(job)?)?)
}

/// Where they stand.
pub(super) fn folder(run: &Path) -> PathBuf {
    run.join("slurm").join("jobs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_kept_in_order() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        assert_eq!(read(run).unwrap(), []);
        assert_eq!(lead(run).unwrap(), None);
        let job = |job, groups: &[u32]| Job {
            job,
            leads: job == 4,
            servers: job == 4,
            groups: groups.to_vec(),
        };
        for one in [job(10, &[2]), job(4, &[0, 1])] {
            add(run, &one).unwrap();
        }
        assert_eq!(read(run).unwrap(), [job(4, &[0, 1]), job(10, &[2])]);
        assert_eq!(lead(run).unwrap(), Some(4));
        fs::write(folder(run).join("11.json"), "[").unwrap();
        let error = read(run).unwrap_err().to_string();
        assert!(error.contains("jobs/11.json"), "{error}");
    }
}
