//! A fleet from the side of those who put runs on it: whether it is there, and whose a run's name is.
//!
//! Names are unique on a fleet: shards and snapshots go by them. `slurm/runs/NAME` in the fleet's folder
//! says in which folder the run of that name is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{sleep, timeout};
use tradewind_common::{RunId, run_files};
use tradewind_folder::run::make_folder;

use super::standing::unfinished;
use super::start::resumes;
use tradewind_folder::found::FoundRun;
use tradewind_folder::lock::is_held;
use tradewind_process::whole;

/// How often a run that leaves its fleet asks to be removed: a snapshot may be under way.
const LEAVING_TRIES: u32 = 60;

/// Pause before it asks again.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a fleet's coordinator may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The fleet in this folder.
pub(super) fn find(path: &Path) -> anyhow::Result<FoundRun> {
    let path = fs::canonicalize(path)
        .with_context(|| format!("there is no fleet in {}", path.display()))?;
    let place = FoundRun::find(Some(&path))?;
    if !place.is_fleet() {
        bail!(
            "{} is a run, and no fleet; `tradewind slurm serve` starts one",
            path.display()
        );
    }
    Ok(place)
}

/// Its job, which need not have started.
pub(super) fn job(fleet: &FoundRun) -> anyhow::Result<u32> {
    unfinished(&fleet.path)?.with_context(|| {
        let path = fleet.path.display();
        format!("the fleet in {path} has ended; `tradewind slurm serve CONFIG --out {path} --resume` starts it again")
    })
}

/// Makes a name that of the run in `folder`, which need not be there yet. `resume` goes on from the
/// snapshots that are on the fleet; without it there must be none.
pub(super) fn claim(fleet: &Path, name: &RunId, folder: &Path, resume: bool) -> anyhow::Result<()> {
    let path = fleet.join("slurm/runs").join(name.as_str());
    let write = || format!("cannot write {}", path.display());
    make_folder(&fleet.join("slurm/runs"))?;
    let text = folder.display().to_string();
    match fs::File::create_new(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let owner = PathBuf::from(fs::read_to_string(&path).with_context(write)?.trim());
            if owner != folder && owner.join(run_files::CONFIG).exists() {
                bail!(
                    "run {name} on the fleet in {} is that in {}; choose another name with --set run.name=…",
                    fleet.display(),
                    owner.display()
                );
            }
        }
        Err(error) => return Err(error).with_context(write),
    }
    if !resume && resumes(fleet, name)? {
        bail!(
            "the fleet in {} has snapshots of a run {name}; go on from them with --resume, or choose another name with --set run.name=…",
            fleet.display()
        );
    }
    // Names that begin with a dot are no runs.
    let beside = path.with_file_name(format!(".{name}-{}.part", std::process::id()));
    Ok(whole::write_by(beside, &path, text)?)
}

/// Takes a run off the fleet that it is on: others are on it, and what is left of this one is in
/// snapshots.
///
/// # Errors
/// It stays, and why.
pub(super) async fn leave(run: &FoundRun) -> anyhow::Result<()> {
    let name = &run.config.name;
    let left = async {
        let access = run.access()?;
        let there = run.coordinator()?;
        let there = there.context("the fleet has no coordinator")?;
        // A run that has failed has nobody to ask, and is removed all the same.
        let asked = access.drain(&there.address, name, &[]).await;
        let mut tries = 0;
        loop {
            match access.remove(&there.address, name).await {
                Ok(()) => return Ok(()),
                Err(_) if tries < LEAVING_TRIES => tries += 1,
                Err(error) => return Err(asked.err().unwrap_or(error)),
            }
            sleep(PAUSE).await;
        }
    };
    let left: anyhow::Result<()> = left.await;
    left.with_context(|| format!("run {name} stays on its fleet"))
}

/// Whether a run is on a fleet although it has nobody who would take it off.
pub(super) async fn is_left_behind(run: &FoundRun) -> bool {
    if !run.is_on_fleet() || run.ended().is_some() || is_held(&run.path) {
        return false;
    }
    let told = async {
        let access = run.access().ok()?;
        let there = run.coordinator().ok()??;
        let asked = access.status(&there.address, &run.config.name);
        timeout(ANSWER, asked).await.ok()?.ok()
    };
    told.await.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_on_a_fleet_belongs_to_one_run() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| root.path().join(name);
        for run in ["a", "b"] {
            fs::create_dir(folder(run)).unwrap();
            fs::write(folder(run).join("config.toml"), "").unwrap();
        }
        let name: RunId = RunId::new("climate").unwrap();
        let claim = |run: &str, resume| claim(&folder("fleet"), &name, &folder(run), resume);
        claim("a", false).unwrap();
        claim("a", false).unwrap();
        let error = claim("b", false).unwrap_err().to_string();
        assert!(
            error.contains("is that in ") && error.contains("/a;"),
            "{error}"
        );
        // The one before has been moved aside, or removed.
        fs::remove_dir_all(folder("a")).unwrap();
        claim("b", false).unwrap();
        assert!(claim("b", true).is_ok());
        let snapshot = folder("fleet/snapshots/climate/00000001");
        fs::create_dir_all(&snapshot).unwrap();
        fs::write(snapshot.join("manifest.json"), "{}").unwrap();
        let error = claim("b", false).unwrap_err().to_string();
        assert!(error.contains("go on from them with --resume"), "{error}");
        claim("b", true).unwrap();
    }
}
