//! An open file that is read where it is, or from a copy once there is one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::once::Stamp;
use crate::{Cache, DataError, Held};

/// A file, and its copy. Whether there is one is found when it is read for the first time.
#[derive(Debug)]
pub(crate) struct Origin {
    path: PathBuf,
    file: File,
    /// What it was when it was opened.
    stamp: Stamp,
    cache: Option<Arc<Cache>>,
    held: OnceLock<Held>,
    making: Mutex<()>,
}

impl Origin {
    /// Opens it, to be read where it is.
    ///
    /// # Errors
    /// It is missing, or the system does not give it.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let failed = |error: io::Error| DataError::of_system(path, &error);
        let file = File::open(path).map_err(failed)?;
        let stamp = Stamp::of(&file.metadata().map_err(failed)?);
        Ok(Self {
            path: path.into(),
            file,
            stamp,
            cache: None,
            held: OnceLock::new(),
            making: Mutex::new(()),
        })
    }

    /// From now on it is read from a copy.
    pub fn cache(&mut self, cache: &Arc<Cache>) {
        self.cache = Some(Arc::clone(cache));
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Where to read numbers.
    ///
    /// # Errors
    /// It was changed, or cannot be read, when it was to be copied.
    pub fn reading(&self) -> Result<&File, DataError> {
        let Some(cache) = &self.cache else {
            return Ok(&self.file);
        };
        let held = match self.held.get() {
            Some(held) => held,
            None => {
                // One thread copies; the others wait.
                let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
                match self.held.get() {
                    Some(held) => held,
                    None => {
                        let held = cache.file(&self.path)?;
                        if held.stamp() != self.stamp {
                            return Err(DataError::changed(&self.path));
                        }
                        self.held.get_or_init(|| held)
                    }
                }
            }
        };
        Ok(held.file().unwrap_or(&self.file))
    }

    /// Whether it is what it was when it was opened. A copy stays what it is.
    ///
    /// # Errors
    /// It is gone.
    pub fn is_unchanged(&self) -> Result<bool, DataError> {
        if self.held.get().is_some_and(Held::is_copy) {
            return Ok(true);
        }
        let now = self.file.metadata();
        let now = now.map_err(|error| DataError::of_system(&self.path, &error))?;
        Ok(Stamp::of(&now) == self.stamp)
    }
}
