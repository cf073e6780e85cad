//! `tradewind export-run`: hands a run that has ended to MLflow, or to W&B's offline mode, through their own clients for
//! Python.

mod client;
mod content;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tradewind_common::exit::Exit;
use tradewind_folder::found::FoundRun;
use tradewind_folder::input::{self, BadInput};
use tradewind_process::Docs;
use tradewind_process::log::say;

use crate::clean;
use client::{MLFLOW, Service, WANDB};
use content::Content;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run's folder; the newest in runs/ if not given.
    run_folder: Option<PathBuf>,
    #[command(flatten)]
    to: To,
    /// The experiment of MLflow, or the project of W&B; it is made if there is none.
    #[arg(long, value_name = "NAME", default_value = "tradewind")]
    experiment: String,
    /// Leave model.safetensors out.
    #[arg(long)]
    without_model: bool,
    /// The Python that has the client; otherwise the first that has it of python3, python, and that which `make
    /// export-clients` makes.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
}

/// Where a run goes.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct To {
    /// To MLflow, at this address: http://HOST:PORT of a server, or a database such as sqlite:///mlflow.db.
    #[arg(long, value_name = "URI")]
    mlflow: Option<String>,
    /// Into this folder, as W&B's offline mode writes it; `wandb sync` sends it.
    #[arg(long, value_name = "DIR")]
    wandb_offline: Option<PathBuf>,
}

impl To {
    fn service(&self) -> (&'static Service, String) {
        match (&self.mlflow, &self.wandb_offline) {
            (Some(uri), _) => (&MLFLOW, uri.clone()),
            (None, Some(folder)) => (&WANDB, folder.display().to_string()),
            (None, None) => unreachable!("clap asks for one"),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    match export(arguments, &is_interrupted) {
        Ok(told) => {
            say(told);
            ExitCode::SUCCESS
        }
        Err(_) if is_interrupted.load(Ordering::Relaxed) => {
            tradewind_process::complain!("interrupted; the same command goes on");
            Exit::Interrupted.into()
        }
        Err(error) => input::fail(&error, Docs::WATCHING).into(),
    }
}

/// What there is to say of it.
fn export(arguments: &Arguments, is_interrupted: &Arc<AtomicBool>) -> anyhow::Result<String> {
    let run = FoundRun::find(arguments.run_folder.as_deref())?;
    let place = run.path.display();
    if let Some(why) = clean::in_use(&run)? {
        let told =
            format!("{place} is not exported, for {why}; a run is exported when it has ended");
        return Err(BadInput(told).into());
    }
    let (service, target) = arguments.to.service();
    let python = client::python(service, arguments.python.as_deref())?;
    let content = Content::of(&run, &arguments.experiment, !arguments.without_model)?;
    // The client hears of Ctrl-C as well, and tidies up.
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(is_interrupted))?;
    }
    client::export(&python, service, &target, &content)
}
