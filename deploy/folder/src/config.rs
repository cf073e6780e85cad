//! How every verb reads a configuration.

use std::path::Path;

use tradewind_config::{Config, ConfigError, command_override, program};

use crate::input::BadInput;
use crate::tasks;

/// Reads and checks a configuration. Paths in it become absolute.
pub fn read(path: &Path, set: &[String]) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        BadInput(format!(
            "cannot read the configuration {}: {error}",
            path.display()
        ))
    })?;
    let absolute = std::fs::canonicalize(path)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let config = parse(&text, &path.display().to_string(), folder, set)?;
    for line in config.idle() {
        tradewind_process::complain!("note: {line}");
    }
    Ok(config)
}

/// Checks a configuration; if it names a worker program (`model.program`), that is asked for its tasks. The
/// rest is as with [`Config::parse`].
///
/// # Errors
/// All that is wrong with it.
pub fn parse(text: &str, file: &str, folder: &Path, set: &[String]) -> Result<Config, ConfigError> {
    match program(text, folder, set) {
        None => Config::parse(text, file, folder, set),
        Some(program) => {
            let tasks = tasks::of(&program);
            Config::parse_with(&tasks, text, file, folder, set)
        }
    }
}

/// Overrides of a command line with the command of a script that stands behind `--`, if one does.
pub fn with_command(set: &[String], command: &[String]) -> Vec<String> {
    let command = (!command.is_empty()).then(|| command_override(command));
    set.iter().cloned().chain(command).collect()
}
