//! Which runs are meant by the folders that were named: runs, fleets with all of theirs, and experiments.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tradewind_common::run_files;
use tradewind_folder::found::FoundRun;
use tradewind_folder::input::BadInput;

/// Runs on one page.
pub(crate) const RUNS_MAX: usize = 64;

/// The runs in these folders, in their order; the newest run in `runs/` if none is named.
pub(crate) fn find(named: &[PathBuf]) -> anyhow::Result<Vec<FoundRun>> {
    if named.is_empty() {
        return Ok(vec![FoundRun::find(None)?]);
    }
    let mut runs = Vec::new();
    let mut seen = BTreeSet::new();
    for folder in named {
        for path in runs_in(folder)? {
            let own = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if seen.insert(own) {
                runs.push(FoundRun::find(Some(&path))?);
            }
        }
    }
    match runs.len() {
        1..=RUNS_MAX => Ok(runs),
        count => {
            let text = format!("these are {count} runs; a page shows {RUNS_MAX}: name fewer");
            Err(BadInput(text).into())
        }
    }
}

/// Where the runs are that a folder stands for.
fn runs_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_experiment = folder.join("experiment.toml").is_file();
    let is_run = |path: &PathBuf| path.join(run_files::CONFIG).is_file();
    if is_experiment {
        let mut runs = entries(&folder.join("runs"));
        runs.retain(is_run);
        // A search for good settings has hundreds of them: those that were begun last are of interest.
        let begun = |run: &PathBuf| {
            fs::metadata(run.join(run_files::CONFIG))
                .and_then(|is| is.modified())
                .ok()
        };
        runs.sort_by_cached_key(|run| std::cmp::Reverse(begun(run)));
        runs.truncate(RUNS_MAX);
        runs.sort();
        if runs.is_empty() {
            let text = format!("no run of the experiment in {} has begun", folder.display());
            return Err(BadInput(text).into());
        }
        return Ok(runs);
    }
    let found = FoundRun::find(Some(folder))?;
    let mut runs = vec![folder.to_owned()];
    if found.is_fleet() {
        let named = entries(&folder.join("slurm/runs")).into_iter();
        let places = named.filter_map(|file| fs::read_to_string(file).ok());
        let places = places.map(|place| PathBuf::from(place.trim()));
        runs.extend(places.filter(is_run));
    }
    Ok(runs)
}

/// In the order of their names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::folder;

    #[test]
    fn runs_fleets_and_experiments_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["a", "experiment/runs/y", "experiment/runs/x", "fleet", "b"] {
            folder(&at(name));
        }
        fs::write(at("experiment/experiment.toml"), "").unwrap();
        fs::create_dir_all(at("experiment/runs/half")).unwrap();
        fs::create_dir_all(at("fleet/slurm/runs")).unwrap();
        fs::write(at("fleet/slurm/is-fleet"), "").unwrap();
        fs::write(at("fleet/slurm/runs/b"), at("b").display().to_string()).unwrap();
        let check = |named: &[&str], want: &[&str]| {
            let named: Vec<PathBuf> = named.iter().map(|name| at(name)).collect();
            let found = find(&named).unwrap();
            let found: Vec<&Path> = found.iter().map(|run| run.path.as_path()).collect();
            let want: Vec<PathBuf> = want.iter().map(|name| at(name)).collect();
            assert_eq!(found, want);
        };
        check(&["b", "a", "b"], &["b", "a"]);
        check(&["experiment"], &["experiment/runs/x", "experiment/runs/y"]);
        check(&["fleet", "a"], &["fleet", "b", "a"]);
        // Of many cells the last ones.
        for number in 0..=RUNS_MAX {
            let cell = at(&format!("many/runs/{number:03}"));
            folder(&cell);
            let config = fs::File::options()
                .write(true)
                .open(cell.join("config.toml"))
                .unwrap();
            let begun =
                std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            config.set_modified(begun).unwrap();
        }
        fs::write(at("many/experiment.toml"), "").unwrap();
        let found = find(&[at("many")]).unwrap();
        assert_eq!(
            (found.len(), &found[0].path),
            (RUNS_MAX, &at("many/runs/001"))
        );
        let error = find(&[at("many"), at("a")]).unwrap_err().to_string();
        assert!(error.starts_with("these are 65 runs"), "{error}");
        let error = find(&[at("nothing")]).unwrap_err().to_string();
        assert!(error.starts_with("there is no folder"), "{error}");
    }
}
