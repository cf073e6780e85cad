//! How samples in files are read, as a configuration says: by how many readers, through which cache, and what
//! becomes of those that are damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tradewind_config::{CacheAt, Config, Damaged};
use tradewind_data::{Cache, Layout, Source};

use super::DataError;

/// What a task reads its files by.
#[derive(Clone, Debug)]
pub struct Reading {
    readers: usize,
    damaged: Damaged,
    cache: Option<Arc<Cache>>,
}

/// By one reader, where files are; the first damaged sample is an error.
impl Default for Reading {
    fn default() -> Self {
        Self {
            readers: 1,
            damaged: Damaged::End,
            cache: None,
        }
    }
}

impl Reading {
    /// As a configuration says. A cache whose folder begins with an environment variable that is not set is left
    /// out, with a warning.
    pub fn of(config: &Config) -> Self {
        Self {
            readers: config.loader.readers as usize,
            damaged: config.loader.damaged,
            cache: config.cache.as_ref().and_then(opened),
        }
    }

    /// Opens samples in any form that `tradewind data` understands; without a layout that which fits is taken.
    ///
    /// # Errors
    /// Files that cannot be used ([`tradewind_data::open`]).
    pub fn open(&self, path: &Path, layout: Option<&Layout>) -> Result<Arc<dyn Source>, DataError> {
        let source = tradewind_data::open(path, layout, self.readers, self.cache.clone())?;
        Ok(source.into())
    }

    /// Copies of files on this node's own disk, if the configuration wants any.
    pub(super) fn cache(&self) -> Option<&Arc<Cache>> {
        self.cache.as_ref()
    }

    /// The same, with other samples in the place of damaged ones.
    #[cfg(test)]
    pub(super) fn replacing(self) -> Self {
        Self {
            damaged: Damaged::Replace,
            ..self
        }
    }

    /// What becomes of samples that are damaged.
    pub(super) fn damaged(&self) -> Damaged {
        self.damaged
    }
}

fn opened(CacheAt { folder, bytes }: &CacheAt) -> Option<Arc<Cache>> {
    match with_variable(folder, |name| std::env::var(name).ok()) {
        Ok(path) => Some(Arc::new(Cache::open(&path, *bytes))),
        Err(name) => {
            tracing::warn!(
                "loader.cache = {folder:?}: ${name} is not set here, so that files are read where they are; set it for the ranks, or name a folder that every node has"
            );
            None
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
