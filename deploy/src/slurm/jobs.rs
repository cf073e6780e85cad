//! The jobs of a run: `slurm/jobs.json` in its folder.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// A job that was handed in for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) job: u32,
    /// Whether it has the servers.
    pub(super) servers: bool,
    /// Its groups.
    pub(super) groups: Vec<u32>,
}

/// All jobs of the run in this folder, in the order in which they were handed in.
pub(super) fn read(run: &Path) -> anyhow::Result<Vec<Job>> {
    let path = path(run);
    match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        text => {
            let name = || format!("cannot read {}", path.display());
            serde_json::from_str(&text.with_context(name)?).with_context(name)
        }
    }
}

/// Adds a job.
pub(super) fn add(run: &Path, job: Job) -> anyhow::Result<()> {
    let mut all = read(run)?;
    all.push(job);
    let path = path(run);
    let part = path.with_extension("part");
    let text = serde_json::to_string_pretty(&all)?;
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn path(run: &Path) -> PathBuf {
    run.join("slurm").join("jobs.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_kept_in_order() {
        let run = tempfile::tempdir().unwrap();
        std::fs::create_dir(run.path().join("slurm")).unwrap();
        assert_eq!(read(run.path()).unwrap(), []);
        let job = |job, groups: &[u32]| Job {
            job,
            servers: job == 4,
            groups: groups.to_vec(),
        };
        add(run.path(), job(4, &[0, 1])).unwrap();
        add(run.path(), job(5, &[2])).unwrap();
        assert_eq!(read(run.path()).unwrap(), [job(4, &[0, 1]), job(5, &[2])]);
        std::fs::write(path(run.path()), "[").unwrap();
        let error = read(run.path()).unwrap_err().to_string();
        assert!(error.contains("jobs.json"), "{error}");
    }
}
