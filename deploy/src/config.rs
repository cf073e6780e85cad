//! `tradewind config`, and how every verb reads a configuration.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use tradewind_common::exit::Exit;
use tradewind_config::{Config, keys};
use tradewind_process::log;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration.
    #[arg(required_unless_present_any = ["keys", "statuses"])]
    config: Option<PathBuf>,
    /// Override a key: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print all keys as a table in Markdown.
    #[arg(long)]
    keys: bool,
    /// Print all exit statuses as a table in Markdown.
    #[arg(long)]
    statuses: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.keys {
        return print(&keys::markdown());
    }
    if arguments.statuses {
        return print(&Exit::markdown());
    }
    let path = arguments.config.as_deref().expect("clap requires it");
    match read(path, &arguments.set) {
        Ok(config) => print(config.resolved()),
        Err(error) => {
            eprintln!("{error:#}");
            Exit::BadInput.into()
        }
    }
}

fn print(text: &str) -> ExitCode {
    match log::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("it cannot be printed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads and checks a configuration. Data paths become absolute.
pub(crate) fn read(path: &Path, set: &[String]) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let absolute = std::fs::canonicalize(path)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let config = Config::parse(&text, &path.display().to_string(), folder, set)?;
    for line in config.idle() {
        eprintln!("note: {line}");
    }
    Ok(config)
}
