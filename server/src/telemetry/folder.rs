//! How much room there is where snapshots and events go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::gauge;
use rustix::fs::statvfs;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::are_served;
use super::table::{FOLDER_FREE, FOLDER_SIZE};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(10);

/// Looks at the file system of a folder again and again, where somebody is told. One that does not answer
/// holds nobody up.
pub(crate) async fn watch_room(folder: PathBuf) {
    if !are_served() {
        return;
    }
    loop {
        let folder = folder.clone();
        let looked = spawn_blocking(move || room(&folder)).await;
        if let Ok(Some((free, size))) = looked {
            gauge!(FOLDER_FREE.name).set(free as f64);
            gauge!(FOLDER_SIZE.name).set(size as f64);
        }
        sleep(LOOK).await;
    }
}

/// Bytes that are free for users without privileges, and all that there are; `None` if that cannot be told.
pub(super) fn room(folder: &Path) -> Option<(u64, u64)> {
    let is = statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(is.f_frsize);
    Some((bytes(is.f_bavail), bytes(is.f_blocks)))
}
