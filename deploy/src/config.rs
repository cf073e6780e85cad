//! `tradewind config`.

use std::path::PathBuf;
use std::process::ExitCode;

use tradewind_common::exit::Exit;
use tradewind_config::page;
use tradewind_folder::config::{read, with_command};
use tradewind_folder::input;
use tradewind_process::{Docs, log};
use tradewind_server::telemetry;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration.
    #[arg(required_unless_present_any = ["keys", "statuses", "metrics"])]
    config: Option<PathBuf>,
    /// Override a key: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print all sections and keys in Markdown: docs/configuration.md.
    #[arg(long)]
    keys: bool,
    /// Print all exit statuses as a table in Markdown.
    #[arg(long)]
    statuses: bool,
    /// Print all metrics that servers publish as a table in Markdown.
    #[arg(long)]
    metrics: bool,
    /// Command of a PyTorch script of your own, which then is each rank: python train.py …
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.keys {
        return print(&page::markdown());
    }
    if arguments.statuses {
        return print(&Exit::markdown());
    }
    if arguments.metrics {
        return print(&telemetry::markdown());
    }
    let path = arguments.config.as_deref().expect("clap requires it");
    match read(path, &with_command(&arguments.set, &arguments.command)) {
        Ok(config) => print(config.resolved()),
        Err(error) => input::refuse(&error, Docs::CONFIGURATION).into(),
    }
}

fn print(text: &str) -> ExitCode {
    match log::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tradewind_process::complain!("it cannot be printed: {error}");
            ExitCode::FAILURE
        }
    }
}
