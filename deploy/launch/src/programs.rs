//! The programs of a run: the server's, and what starts a rank.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use tradewind_common::environment::{CERTIFICATE, OMP_NUM_THREADS, TOKEN};
use tradewind_config::Config;
use tradewind_folder::input::BadInput;
use tradewind_programs::worker::WorkerArguments;
use tradewind_programs::{SERVER, WORKER};

/// The programs of a run.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `tradewind-server`, which lies beside `tradewind` itself.
    pub server: PathBuf,
    /// What a rank is.
    pub rank: RankProgram,
}

/// What a rank is.
#[derive(Clone, Debug)]
pub enum RankProgram {
    /// `tradewind-worker` beside `tradewind`, or that of the configuration.
    Worker(PathBuf),
    /// A person's script, by the words that start it.
    Script(Vec<String>),
}

impl Programs {
    /// Those of a configuration.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn of(config: &Config) -> anyhow::Result<Self> {
        let rank = match (config.command.as_slice(), &config.program) {
            ([program, ..], _) => {
                find(program).map_err(|why| BadInput(format!("model.command: {why}")))?;
                RankProgram::Script(config.command.clone())
            }
            ([], Some(own)) if own.is_file() => RankProgram::Worker(own.clone()),
            ([], Some(own)) => bail!("model.program: {} is missing; build it", own.display()),
            ([], None) => RankProgram::Worker(beside(WORKER)?),
        };
        let server = beside(SERVER)?;
        Ok(Self { server, rank })
    }
}

impl RankProgram {
    /// What starts it with these arguments and with these variables; threads that a person has chosen for a
    /// script stay.
    ///
    /// # Errors
    /// A script cannot be told the arguments.
    pub fn command(
        &self,
        arguments: &WorkerArguments,
        environment: &BTreeMap<&'static str, String>,
    ) -> anyhow::Result<Command> {
        let mut command = match self {
            Self::Worker(program) => arguments.to_command(program),
            Self::Script(words) => arguments.to_script(words)?,
        };
        let is_script = matches!(self, Self::Script(_));
        let chosen = is_script && std::env::var_os(OMP_NUM_THREADS).is_some();
        let set = environment.iter();
        command.envs(set.filter(|(name, _)| !chosen || **name != OMP_NUM_THREADS));
        Ok(command)
    }
}

/// A program that lies beside `tradewind` itself.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where tradewind lies")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        bail!(
            "{} is missing; build it with `cargo build --bins`",
            path.display()
        );
    }
    Ok(path)
}

/// What a process of a run that computes with so many threads is told besides its arguments: the token, and under TLS
/// its key with its certificates.
pub fn environment(
    token: &str,
    pass: Option<&str>,
    threads: impl ToString,
) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (TOKEN, token.to_owned()),
        // Those of whoever starts it are not the process's own.
        (CERTIFICATE, pass.unwrap_or_default().to_owned()),
        (OMP_NUM_THREADS, threads.to_string()),
    ])
}

/// Looks for a program as a shell does; why there is none.
fn find(program: &str) -> Result<(), String> {
    let can_run = |found: &Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    let is_program = |path: &Path| path.metadata().is_ok_and(|found| can_run(&found));
    if program.contains('/') {
        return match is_program(Path::new(program)) {
            true => Ok(()),
            false => Err(format!("{program} is no program that can be run")),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&folders).any(|folder| is_program(&folder.join(program))) {
        true => Ok(()),
        false => Err(format!(
            "there is no program {program:?} in PATH, which is {}",
            folders.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        assert_eq!(find("sh"), Ok(()));
        assert_eq!(find("/bin/sh"), Ok(()));
        let missing = find("pyhton").unwrap_err();
        let want = "there is no program \"pyhton\" in PATH, which is ";
        assert!(missing.starts_with(want), "{missing}");
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let refused = find(own).unwrap_err();
        assert_eq!(refused, format!("{own} is no program that can be run"));
    }
}
