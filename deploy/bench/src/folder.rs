//! Where processes of a measurement have their logs and addresses, and how it is run there.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Stop;
use tradewind_folder::runtime::one_thread;
use tradewind_launch::run::{Interruption, secret};

/// Gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn create() -> anyhow::Result<Self> {
        let name = format!("tradewind-bench-{}", &secret()?[..12]);
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves it for who reads the logs, if there are any.
    fn keep(self) {
        let _ = std::fs::remove_dir(&self.0);
        std::mem::forget(self);
    }
}

/// Measures in a folder of its own, to the end or until Ctrl-C.
pub(super) fn measured<T>(
    measure: impl AsyncFnOnce(&Path) -> anyhow::Result<T>,
) -> Result<T, Stop> {
    let runtime = one_thread().context("cannot start")?;
    let folder = Folder::create()?;
    let measured = runtime.block_on(async {
        let mut interruption = Interruption::new()?;
        tokio::select! {
            measured = measure(folder.path()) => Ok(measured?),
            by = interruption.wait() => Err(Stop::Interrupted(by)),
        }
    });
    if let Err(Stop::Failed(_)) = &measured {
        // The message names a log in it.
        folder.keep();
    }
    measured
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
