//! How samples in files are read, as a configuration says: by how many readers, through which cache, and what
//! becomes of those that are damaged.

use std::path::Path;
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
            cache: config.cache.as_ref().and_then(|CacheAt { folder, bytes }| {
                let cache = Cache::named(folder, *bytes);
                cache.map(Arc::new)
            }),
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
