//! How every verb reads a configuration.

use std::path::Path;

use tradewind_config::Config;

use crate::input::BadInput;

/// Reads and checks a configuration. Data paths become absolute.
pub fn read(path: &Path, set: &[String]) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        BadInput(format!(
            "cannot read the configuration {}: {error}",
            path.display()
        ))
    })?;
    let absolute = std::fs::canonicalize(path)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let config = Config::parse(&text, &path.display().to_string(), folder, set)?;
    for line in config.idle() {
        tradewind_process::complain!("note: {line}");
    }
    Ok(config)
}
