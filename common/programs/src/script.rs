//! How a person's script is started as a rank: its own command, with the worker's arguments in a variable of
//! its environment.

use std::ffi::OsString;
use std::process::Command;

use clap::Parser;
use tradewind_common::environment;

use crate::WORKER;
use crate::worker::WorkerArguments;

/// Why a script cannot be started, or cannot read what it was started with.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It has no words.
    #[error("the command of the script is empty")]
    NoCommand,
    /// JSON has no other text.
    #[error("a script cannot be told {0:?}, which is not UTF-8")]
    NoText(OsString),
    /// The variable is no list of words.
    #[error("{variable} is no JSON list of words: {0}", variable = environment::WORKER)]
    NoWords(#[from] serde_json::Error),
    /// The words are none that a worker takes.
    #[error("{variable} has no arguments of a worker: {0}", variable = environment::WORKER)]
    NoArguments(#[from] clap::Error),
}

impl WorkerArguments {
    /// What starts the script whose `command` begins with its program: these arguments are in the variable
    /// [`environment::WORKER`], and what numbers the processes of another launcher is hidden from it.
    ///
    /// # Errors
    /// There is no command, or an argument is not UTF-8.
    pub fn to_script(&self, command: &[String]) -> Result<Command, ScriptError> {
        let (program, words) = command.split_first().ok_or(ScriptError::NoCommand)?;
        let mut command = Command::new(program);
        command.args(words);
        command.env(environment::WORKER, self.to_variable()?);
        let present = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for name in present.filter(|name| environment::is_of_launcher(name)) {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// The arguments that this process was started with, if it is a rank's script; `None` if it is not.
    ///
    /// # Errors
    /// The variable is damaged.
    pub fn from_environment() -> Result<Option<Self>, ScriptError> {
        let Some(text) = std::env::var_os(environment::WORKER) else {
            return Ok(None);
        };
        let text = text.into_string().map_err(ScriptError::NoText)?;
        Self::from_variable(&text).map(Some)
    }

    fn to_variable(&self) -> Result<String, ScriptError> {
        let words = self.words().into_iter().map(OsString::into_string);
        let words: Result<Vec<String>, OsString> = words.collect();
        Ok(serde_json::to_string(&words.map_err(ScriptError::NoText)?)?)
    }

    /// Reads what [`environment::WORKER`] has.
    ///
    /// # Errors
    /// It is no JSON list of words, or they are no arguments of a worker.
    pub fn from_variable(text: &str) -> Result<Self, ScriptError> {
        let words: Vec<String> = serde_json::from_str(text)?;
        let all = std::iter::once(WORKER.to_owned()).chain(words);
        Ok(Self::try_parse_from(all)?)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use super::*;
    use crate::worker::{CoordinatorArgument, EvaluateArguments, THREADS};

    fn evaluation(out: PathBuf) -> WorkerArguments {
        let coordinator = CoordinatorArgument::Address("node:1".into());
        let (config, milestones) = ("/runs/a \"run\"/config.toml".into(), None);
        WorkerArguments::from(EvaluateArguments {
            config,
            coordinator,
            out,
            milestones,
            group: None,
            rank: 0,
            local_rank: 0,
            host: None,
            threads: THREADS,
        })
    }

    #[test]
    fn a_script_reads_what_it_was_started_with() {
        let arguments = evaluation("/runs/ä".into());
        let words = ["python", "train.py", "--width=3"].map(str::to_owned);
        let command = arguments.to_script(&words).unwrap();
        assert_eq!(command.get_program(), "python");
        assert!(command.get_args().eq(["train.py", "--width=3"]));
        let mut variables = command.get_envs();
        let told = variables.find(|(name, _)| *name == OsStr::new(environment::WORKER));
        let told = told.and_then(|(_, value)| value?.to_str()).unwrap();
        assert_eq!(WorkerArguments::from_variable(told).unwrap(), arguments);
    }

    #[test]
    fn what_cannot_be_told_or_read_is_named() {
        let check = |error: ScriptError, want: &str| {
            let error = error.to_string();
            assert!(error.contains(want), "{error}");
        };
        let arguments = evaluation("out".into());
        check(arguments.to_script(&[]).unwrap_err(), "is empty");
        let damaged = OsString::from_vec(vec![b'o', 0xff]);
        let unspoken = evaluation(damaged.into()).to_script(&["sh".into()]);
        check(unspoken.unwrap_err(), "not UTF-8");
        let read = |text| WorkerArguments::from_variable(text).unwrap_err();
        check(
            read("[\"train\""),
            "TRADEWIND_WORKER is no JSON list of words: EOF",
        );
        check(read("[7]"), "expected a string");
        check(read("[]"), "Usage: tradewind-worker <COMMAND>");
        check(read("[\"train\", \"--group=x\"]"), "--group");
    }

    #[test]
    fn a_process_that_is_no_script_is_told_nothing() {
        assert_eq!(WorkerArguments::from_environment().unwrap(), None);
    }
}
