//! How a fleet is started.

use std::path::PathBuf;
use std::sync::Arc;

use tradewind_common::RunId;
use tradewind_common::identity::Identity;
use tradewind_proto::auth::Credentials;
use tradewind_proto::authority::Authority;

use super::Fleet;
use crate::cluster::disk::Disks;

/// Servers keep their leases for so long unless a test says otherwise: longer than any test.
const LEASE_MS: u64 = 600_000;

/// How a fleet is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Servers of the fleet.
    pub servers: u32,
    /// Those that are started at first, from 0.
    pub started: u32,
    /// What they ask for.
    pub token: String,
    /// Under TLS, who says who belongs to them.
    pub authority: Option<Arc<Authority>>,
    /// The fleet's folder.
    pub folder: Option<PathBuf>,
    /// Length of a server's lease.
    pub lease_ms: u64,
    /// The run that this start of the fleet goes on with; what the start before left of its fleet is put
    /// aside.
    pub resume: Option<RunId>,
    /// No server is told to host the coordinator: they stand in for it.
    pub stand_in: bool,
    /// How long servers that are told to end wait for the last snapshots.
    pub linger_ms: u64,
    /// Servers that others reach through a gate: [`Fleet::gate`].
    pub gated: Vec<u32>,
    /// Servers that reach the coordinator through a gate: [`Fleet::bond`].
    pub bonds: Vec<u32>,
    /// Servers are processes, on these disks.
    pub disks: Option<Arc<Disks>>,
}

impl Setup {
    /// All of `servers` servers, without a folder, without a token.
    pub fn of(servers: u32) -> Self {
        Self {
            servers,
            started: servers,
            token: String::new(),
            authority: None,
            folder: None,
            lease_ms: LEASE_MS,
            resume: None,
            stand_in: false,
            linger_ms: 0,
            gated: Vec::new(),
            bonds: Vec::new(),
            disks: None,
        }
    }

    /// Under TLS.
    ///
    /// # Panics
    /// If there is no randomness.
    #[must_use]
    pub fn under_tls(mut self) -> Self {
        self.authority = Some(Arc::new(Authority::new("tests").expect("randomness")));
        self
    }

    pub(super) fn credentials(&self, identity: &Identity) -> Credentials {
        let pass = self.authority.as_ref();
        let pass = pass.map(|authority| authority.pass(identity).expect("a certificate"));
        Credentials::new(&self.token, pass.as_deref()).expect("a token of visible ASCII")
    }

    /// With a folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// As processes, each on a disk that can be made to fail.
    #[must_use]
    pub fn on_disks(mut self) -> Self {
        self.disks = Some(Arc::default());
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// If a port cannot be had.
    pub fn start(self) -> Fleet {
        Fleet::of(self)
    }
}
