//! What the coordinator writes down before it acts, and reads when it takes over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tradewind_common::{RunId, ServerId};

use super::fleet::Known;
use super::run::WrittenRun;
use super::saved::{Passed, Saved};

/// Everything that a coordinator must know to go on for another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Durable {
    pub(super) servers: BTreeMap<ServerId, Known>,
    pub(super) runs: BTreeMap<RunId, WrittenRun>,
    pub(super) resuming: BTreeMap<RunId, Saved>,
    pub(super) passed: Passed,
}

impl Durable {
    /// Whether the run is there, or shall be resumed.
    pub fn knows(&self, run: &RunId) -> bool {
        self.runs.contains_key(run) || self.resuming.contains_key(run)
    }
}
