//! `tradewind run`: a whole run on this machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tradewind_folder::config::{self, with_command};
use tradewind_folder::{input, runtime::one_thread};
use tradewind_launch::run::{NoHooks, launch};
use tradewind_process::Docs;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration.
    config: PathBuf,
    /// Override a key: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The run's folder; runs/NAME if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on from the newest snapshot in the run's folder, instead of from the beginning. The
    /// numbers of servers and groups may be others than before.
    #[arg(long)]
    resume: bool,
    /// Command of a PyTorch script of your own, which then is each rank: python train.py …
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let set = with_command(&arguments.set, &arguments.command);
    let config = match config::read(&arguments.config, &set) {
        Ok(config) => config,
        Err(error) => {
            return input::refuse(&error, Docs::CONFIGURATION).into();
        }
    };
    let runtime = one_thread();
    let ran = runtime.map_err(Into::into).and_then(|runtime| {
        let out = arguments.out.clone();
        let out = out.unwrap_or_else(|| Path::new("runs").join(config.name.as_str()));
        let mut hooks = NoHooks::default();
        runtime.block_on(launch(&config, &out, arguments.resume, &mut hooks))
    });
    match ran {
        Ok(exit) => exit.into(),
        Err(error) => input::fail(&error, Docs::RUN_FOLDER).into(),
    }
}
