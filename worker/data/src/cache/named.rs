//! A cache as a configuration names it.

use std::path::{Path, PathBuf};

use crate::Cache;

impl Cache {
    /// A cache of so many bytes in a folder whose name may begin with `$` and the name of an environment variable, as
    /// `loader.cache` has it. Where that is not set there is none, and the log says so.
    pub fn named(folder: &str, bytes: u64) -> Option<Self> {
        match with_variable(folder, |name| std::env::var(name).ok()) {
            Ok(path) => Some(Self::open(&path, bytes)),
            Err(name) => {
                tracing::warn!(
                    "loader.cache = {folder:?}: ${name} is not set here, so that files are read where they are; set it for the ranks, or name a folder that every node has"
                );
                None
            }
        }
    }
}

/// A folder whose name may begin with `$` and the name of a variable; the name of one that is not set is the error.
fn with_variable(folder: &str, value: impl Fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    let Some(rest) = folder.strip_prefix('$') else {
        return Ok(folder.into());
    };
    let (name, below) = rest.split_once('/').unwrap_or((rest, ""));
    match value(name).filter(|value| !value.is_empty()) {
        Some(value) => Ok(Path::new(&value).join(below)),
        None => Err(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_may_begin_with_a_variable() {
        let value = |name: &str| match name {
            "TMPDIR" => Some("/scratch/7".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let folder = |text| with_variable(text, value);
        assert_eq!(folder("/a/$b"), Ok("/a/$b".into()));
        assert_eq!(folder("$TMPDIR/x/y"), Ok("/scratch/7/x/y".into()));
        assert_eq!(folder("$TMPDIR"), Ok("/scratch/7".into()));
        assert_eq!(folder("$EMPTY/x"), Err("EMPTY".into()));
        assert_eq!(folder("$OTHER/x"), Err("OTHER".into()));
    }
}
