//! A server that hosts the coordinator where nobody watches over the fleet: when the one that did is
//! out of reach, and does not say in the fleet's folder that it is alive either.
//!
//! Who stands in is safe whoever it is, for the folder lets one act (`store.rs`); this only says when.
//! Servers wait the longer the higher their number is, so that one of them finds another's claim. One
//! that is cut off from all others sees the coordinator's signs of life in the folder and leaves it
//! alone; a coordinator that hears nobody gives none.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tradewind_common::ServerId;

use crate::hosting::Hosting;
use crate::store::{Alive, read_alive};

/// A server waits by so much of a lease longer than the one before it.
const STEP: u32 = 4;

/// Numbers beyond this one wait no longer: of two that claim at once one wins.
const STEPS_MAX: u32 = 12;

/// Who may stand in.
pub(crate) struct StandIn {
    pub(crate) server: ServerId,
    /// Servers of the fleet.
    pub(crate) servers: u32,
    pub(crate) lease: Duration,
    pub(crate) folder: PathBuf,
    pub(crate) hosting: Hosting,
    /// Whether there is a bond with a coordinator.
    pub(crate) bonded: watch::Receiver<bool>,
}

impl StandIn {
    /// Stands in whenever that is needed. Returns when the process ends.
    pub(crate) async fn watch(mut self) {
        let step = self.lease / STEP;
        let patience = self.lease + step * self.server.0.min(STEPS_MAX);
        loop {
            if self.bonded.wait_for(|bonded| !bonded).await.is_err() {
                return;
            }
            let before = self.sign().await;
            match timeout(patience, self.bonded.wait_for(|bonded| *bonded)).await {
                Ok(Ok(_)) => continue,
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            let after = self.sign().await;
            if after.is_some() && after != before {
                tracing::warn!("the coordinator is out of reach, but says that it is alive");
                continue;
            }
            tracing::warn!("no coordinator for {patience:?}; hosting it here");
            let (hosting, servers) = (self.hosting.clone(), self.servers);
            let bonded = self.bonded.clone();
            // Another one may have been quicker.
            let begin = move || hosting.begin_if(servers, || !*bonded.borrow());
            match spawn_blocking(begin).await.map_err(Into::into).flatten() {
                Ok(Some(_)) => {}
                Ok(None) => tracing::info!("there is a coordinator again; not hosting it here"),
                Err(error) => tracing::error!("cannot host the coordinator: {error:#}"),
            }
        }
    }

    /// The last sign of life in the folder. One that does not answer holds up nobody else.
    async fn sign(&self) -> Option<Alive> {
        let folder = self.folder.clone();
        let sign = spawn_blocking(move || read_alive(&folder));
        sign.await.ok().flatten()
    }
}
