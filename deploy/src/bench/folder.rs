//! Where processes of a measurement have their logs and addresses.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::run::secret;

/// Gone when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn create() -> anyhow::Result<Self> {
        let name = format!("tradewind-bench-{}", &secret()?[..12]);
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves it for who reads the logs, if there are any.
    pub(crate) fn keep(self) {
        let _ = std::fs::remove_dir(&self.0);
        std::mem::forget(self);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
