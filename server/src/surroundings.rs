//! What the shards of a server share, and what they have to say to the coordinator.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tradewind_common::{RunId, ServerId, ShardId};
use tradewind_core::order::{NotCaptured, ShardFile, ShardReport};
use tradewind_proto::auth::Credentials;

use crate::budget::Budget;
use crate::clock::Origin;
use crate::snapshot::Folder;

/// What a server has to say to the coordinator besides what it answers to orders. What is lost here
/// is asked for again: whoever registers anew is sent all orders anew.
#[derive(Clone, Debug)]
pub enum ReportToSend {
    /// Of a shard.
    Shard(RunId, ShardReport),
    /// A shard's part of a snapshot, by number.
    Captured(RunId, ShardId, u64, Result<ShardFile, NotCaptured>),
}

/// Reports that wait for the connection to the coordinator.
pub const REPORTS_MAX: usize = 1024;

/// What the shards of a server share.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Which server this is.
    pub server: ServerId,
    /// Its clock.
    pub origin: Origin,
    /// What the server shows, and asks of others.
    pub credentials: Credentials,
    /// The fleet's folder, if it has one.
    pub folder: Option<PathBuf>,
    /// Where reports go.
    pub reports: mpsc::Sender<ReportToSend>,
    /// Room for what arrives.
    pub(crate) arriving: Arc<Budget>,
}

impl Surroundings {
    /// Where the snapshots are.
    pub fn snapshots(&self) -> Option<Folder> {
        self.folder.clone().map(Folder::new)
    }
}
