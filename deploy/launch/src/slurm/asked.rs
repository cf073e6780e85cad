//! What is asked to become jobs, and what of it cannot.

use std::path::{Path, PathBuf};

use anyhow::bail;
use tradewind_config::{Config, SLURM_ENDING_S};

use tradewind_folder::config;

/// Slurm's `--signal` takes at most 65,535 s, some of which are for the end of processes.
const NOTICE_MS_MAX: u64 = (65_535 - SLURM_ENDING_S) * 1000;

/// What is to become jobs.
#[derive(Debug, clap::Args)]
pub(super) struct Asked {
    /// The configuration.
    config: PathBuf,
    /// Override a key: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder, on a file system that all nodes share; runs/NAME if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Command of a PyTorch script of your own, which then is each rank: python train.py …
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Asked {
    /// The configuration, and the run's folder, absolute.
    ///
    /// # Errors
    /// One of them cannot be.
    pub(super) fn read(&self) -> anyhow::Result<(Config, PathBuf)> {
        let set = config::with_command(&self.set, &self.command);
        let config = config::read(&self.config, &set)?;
        let out = self.out.clone();
        let out = out.unwrap_or_else(|| Path::new("runs").join(config.name.as_str()));
        let out = std::path::absolute(out)?;
        check_path(&out)?;
        Ok((config, out))
    }
}

/// sbatch takes the log's path out of a comment: what it reads as the end of a word, as a comment or as a
/// number of the job cannot be in it.
fn check_path(out: &Path) -> anyhow::Result<()> {
    let text = out.display().to_string();
    let bad = |c: char| c.is_whitespace() || "#%\"'\\".contains(c);
    match text.chars().find(|c| bad(*c)) {
        Some(c) => bail!("sbatch would misread {c:?} in {text}; choose another folder with --out"),
        None => Ok(()),
    }
}

/// What Slurm cannot do, or what only `tradewind run` does.
///
/// # Errors
/// The key that asks for it.
pub fn check(config: &Config) -> anyhow::Result<()> {
    let notice_ms = config.liveness.notice_ms;
    if notice_ms > NOTICE_MS_MAX {
        bail!(
            "liveness.notice_ms = {notice_ms} is more than Slurm tells a job before its time limit, {NOTICE_MS_MAX}"
        );
    }
    if config.stragglers.dying.is_some() {
        bail!(
            "stragglers.profile = \"dying\" is for `tradewind run`, which kills the group; in a job of Slurm nobody would"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_would_do_in_a_job_is_refused() {
        let text = "run.name = \"r\"\ndata.files = [\"x\"]\ndata.variable = \"x\"\n\
            data.validation = [1, 2]\ndata.held_out = [2, 3]\ntrain.samples = 80\n\
            optimizer.learning_rate = 0.1\ncluster.groups = [1, 1]\n";
        let of = |profile: &str| {
            let set = [format!("stragglers.profile={profile}")];
            Config::parse(text, "c", Path::new("/"), &set).unwrap()
        };
        assert!(check(&of("none")).is_ok());
        let late = [String::from("liveness.notice_ms=65505001")];
        let late = Config::parse(text, "c", Path::new("/"), &late).unwrap();
        let refused = check(&late).unwrap_err().to_string();
        assert!(
            refused.starts_with("liveness.notice_ms = 65505001"),
            "{refused}"
        );
        assert!(check_path(Path::new("/scratch/me/runs/a-1")).is_ok());
        for path in ["/my runs/a", "/runs/a%j", "/runs/#1"] {
            let refused = check_path(Path::new(path)).unwrap_err().to_string();
            assert!(refused.contains(path), "{refused}");
        }
        let refused = check(&of("dying")).unwrap_err().to_string();
        assert!(
            refused.starts_with("stragglers.profile = \"dying\""),
            "{refused}"
        );
    }
}
