//! Which run a verb is about: its folder, its name, and how its servers are reached.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use serde::Deserialize;
use tradewind_common::exit::Exit;
use tradewind_common::record::Measure;
use tradewind_common::run_files;
use tradewind_config::Config;
use tradewind_server::store::{Address, read_address};

use crate::cluster::Access;
use crate::events::Events;
use crate::input::BadInput;
use crate::records::read_evaluation;

/// Where runs are if nobody says otherwise.
const RUNS: &str = "runs";

/// A run's folder, seen from outside.
#[derive(Debug)]
pub struct FoundRun {
    /// The folder.
    pub path: PathBuf,
    /// The configuration in it.
    pub config: Config,
    /// The folder of its servers: its own, or that of a fleet that holds several runs.
    pub fleet: PathBuf,
}

/// In the folder of a fleet: that it is one.
pub const IS_FLEET: &str = "slurm/is-fleet";

/// Where a run's folder names the fleet's.
pub const FLEET: &str = "fleet";

impl FoundRun {
    /// The folder that was named, or the newest run's.
    pub fn find(named: Option<&Path>) -> anyhow::Result<Self> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => newest(Path::new(RUNS))?,
        };
        let file = path.join(run_files::CONFIG);
        if !path.is_dir() {
            return Err(BadInput(format!("there is no folder {}", path.display())).into());
        }
        if !file.is_file() {
            let what = "is no run's folder: it has no config.toml";
            return Err(BadInput(format!("{} {what}", path.display())).into());
        }
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let config = Config::parse(&text, &file.display().to_string(), &path, &[])?;
        let fleet = match fs::read_to_string(path.join(FLEET)) {
            Ok(fleet) => PathBuf::from(fleet.trim()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => path.clone(),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot read {}", path.join(FLEET).display()));
            }
        };
        Ok(Self {
            path,
            config,
            fleet,
        })
    }

    /// The right to talk to its servers.
    pub fn access(&self) -> anyhow::Result<Access> {
        let file = self.fleet.join(run_files::PERSON);
        let pem = match fs::read_to_string(&file) {
            Ok(pem) => Some(pem),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        Access::new(&self.token()?, pem.as_deref())
    }

    /// The secret of its processes.
    pub fn token(&self) -> anyhow::Result<String> {
        let file = self.path.join(run_files::TOKEN);
        let token = fs::read_to_string(&file)
            .with_context(|| format!("cannot read the run's token {}", file.display()))?;
        Ok(token.trim().to_owned())
    }

    /// Where its coordinator was last; `None` if it was nowhere yet.
    pub fn coordinator(&self) -> anyhow::Result<Option<Address>> {
        Ok(read_address(&self.fleet)?)
    }

    /// Whether its servers are there for other runs, too.
    pub fn is_on_fleet(&self) -> bool {
        self.fleet != self.path
    }

    /// Whether many runs can be on its servers: then it is no run itself.
    pub fn is_fleet(&self) -> bool {
        self.path.join(IS_FLEET).exists()
    }

    /// What happened in the run; on a fleet, in all of its runs.
    pub fn events(&self) -> Events {
        if self.is_fleet() {
            Events::of_fleet(&self.fleet)
        } else {
            Events::of(&self.fleet, &self.config.name)
        }
    }

    /// When the processes of the run were started last, in seconds since the Unix epoch: its
    /// configuration is written then.
    pub fn begun(&self) -> Option<f64> {
        let written = fs::metadata(self.path.join("config.toml")).and_then(|file| file.modified());
        let since = written.ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(since.as_secs_f64())
    }

    /// What a run that has ended has come to, in a line: its metric, how much was trained, and where
    /// the rest stands. `None` if it has not ended.
    pub fn result(&self) -> Option<String> {
        let ending = ending(&self.path)?;
        let metric = read_evaluation(&self.path).ok().map(|evaluation| {
            let Measure { name, unit, value } = evaluation.metric;
            format!("{name} {value:.3} {unit}; ")
        });
        let samples = ending.samples.map(|samples| samples.applied);
        let trained = samples.zip(ending.train_seconds);
        let trained = trained.map(|(samples, s)| format!("{samples} samples in {s:.1} s; "));
        let summary = self.path.join("summary.json");
        Some(format!(
            "{}{}summary in {}",
            metric.unwrap_or_default(),
            trained.unwrap_or_default(),
            summary.display()
        ))
    }

    /// How the run ended, if it has.
    pub fn ended(&self) -> Option<String> {
        Some(ending(&self.path)?.status)
    }
}

/// How a run ended, as its summary has it.
#[derive(Debug, Deserialize)]
struct Ending {
    status: String,
    /// Earlier versions wrote none.
    exit_status: Option<u8>,
    samples: Option<Samples>,
    train_seconds: Option<f64>,
}

/// What of the budget was applied.
#[derive(Debug, Deserialize)]
struct Samples {
    applied: u64,
}

fn ending(run: &Path) -> Option<Ending> {
    let text = fs::read_to_string(run.join(run_files::SUMMARY)).ok()?;
    serde_json::from_str(&text).ok()
}

/// With what the run in this folder ended, if it has.
pub fn exit(run: &Path) -> Option<Exit> {
    let ending = ending(run)?;
    let known = ending
        .exit_status
        .and_then(|status| Exit::of(status.into()));
    Some(known.unwrap_or(match ending.status.as_str() {
        "completed" => Exit::Done,
        "interrupted" => Exit::Interrupted,
        _ => Exit::Failed,
    }))
}

/// The run's folder in `runs` that was begun last.
fn newest(runs: &Path) -> anyhow::Result<PathBuf> {
    let begun = |entry: fs::DirEntry| -> Option<(SystemTime, PathBuf)> {
        let path = entry.path();
        let begun = fs::metadata(path.join(run_files::CONFIG))
            .ok()?
            .modified()
            .ok()?;
        Some((begun, path))
    };
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    match entries.filter_map(begun).max() {
        Some((_, path)) => Ok(path),
        None => {
            let runs = runs.display();
            Err(BadInput(format!("there is no run in {runs}/; name the run's folder")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::input;

    #[test]
    fn a_folder_that_is_no_run_is_named() {
        let root = tempfile::tempdir().unwrap();
        let error = |path: &Path| {
            let error = FoundRun::find(Some(path)).unwrap_err();
            assert_eq!(input::exit(&error), Exit::BadInput);
            error.to_string()
        };
        let missing = root.path().join("missing");
        assert_eq!(
            error(&missing),
            format!("there is no folder {}", missing.display())
        );
        assert!(error(root.path()).contains("is no run's folder"));
        let error = newest(root.path()).unwrap_err().to_string();
        assert!(error.starts_with("there is no run in "), "{error}");
    }

    #[test]
    fn the_run_that_was_begun_last_is_meant() {
        let root = tempfile::tempdir().unwrap();
        let early = SystemTime::UNIX_EPOCH;
        for (name, seconds) in [("b", 1), ("a", 3), ("c", 2)] {
            fs::create_dir(root.path().join(name)).unwrap();
            let file = fs::File::create(root.path().join(name).join("config.toml")).unwrap();
            file.set_modified(early + Duration::from_secs(seconds))
                .unwrap();
        }
        assert!(newest(root.path()).unwrap().ends_with("a"));
    }
}
