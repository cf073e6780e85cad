//! Records what leaves a primary where it survives this process: rule 11.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tradewind_common::{BlockId, RunId, ServerId, ShardId};
use tradewind_process::supervise_blocking;

use crate::marks::{Boot, Marks};
use tradewind_core::mark::Mark;

/// Pause after a ceiling could not be raised.
const RETRY: Duration = Duration::from_secs(1);

/// The marks of one shard, by block.
#[derive(Debug)]
pub struct Recorder {
    marks: Marks,
    /// In the order of the marks.
    blocks: Vec<BlockId>,
    /// A ceiling is being raised: one at a time.
    raising: Arc<AtomicBool>,
}

impl Recorder {
    /// Opens the marks that a former life may have left. It waits for the disk.
    ///
    /// # Errors
    /// If there is no room for the file, or it cannot be read.
    pub(crate) fn open(
        folder: &Path,
        run: &RunId,
        holder: (ServerId, ShardId),
        blocks: Vec<BlockId>,
    ) -> io::Result<Self> {
        let marks = Marks::open(folder, run, holder, &blocks, Boot::of_this_machine())?;
        marks.reserve_ahead()?;
        Ok(Self {
            marks,
            blocks,
            raising: Arc::default(),
        })
    }

    /// Values that have come so far are about to leave.
    pub(super) fn note(&mut self, block: BlockId, mark: Mark) {
        let index = self.blocks.binary_search(&block).expect("own block");
        let (lineage, version) = (mark.lineage.0, mark.version);
        let covered = self.marks.note(index, lineage, version, mark.samples);
        if !covered && !self.raising.swap(true, Ordering::Relaxed) {
            let (reserve, raising) = (self.marks.reserve(), self.raising.clone());
            supervise_blocking("the raising of a ceiling", move || {
                if let Err(error) = reserve.ahead() {
                    tracing::warn!(
                        "should this machine die now, less than what is lost may be told: {error}"
                    );
                    std::thread::sleep(RETRY);
                }
                raising.store(false, Ordering::Relaxed);
            });
        }
    }
}
