//! What the coordinator writes down before it acts, and reads when it takes over.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tradewind_common::identity::Identity;
use tradewind_common::{RunId, ServerId};

use super::fleet::Known;
use super::revoked::{Revoked, RevokedIdentities};
use super::run::{RunChange, WrittenRun};
use super::saved::{Passed, Saved};

/// Everything that a coordinator must know to go on for another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Durable {
    pub(super) servers: BTreeMap<ServerId, Known>,
    pub(super) runs: BTreeMap<RunId, WrittenRun>,
    pub(super) resuming: BTreeMap<RunId, Saved>,
    pub(super) passed: Passed,
    #[serde(default)]
    pub(super) revoked: Revoked,
}

/// What has changed since something was written down: no longer than the change, however much there is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Change {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) servers: BTreeMap<ServerId, Known>,
    /// Runs that are forgotten; one of the same name may have begun since.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) gone: BTreeSet<RunId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) runs: BTreeMap<RunId, RunChange>,
    /// All of them, if any has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resuming: Option<BTreeMap<RunId, Saved>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) passed: Option<Passed>,
    /// All of it, if any has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revoked: Option<Revoked>,
}

/// A change does not fit what it is to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("run {0} has changed, which there is not")]
pub struct Unfit(RunId);

impl Durable {
    /// Whether the certificates of a server are revoked that this authority has issued.
    pub fn shuts_out(&self, authority: &str, server: ServerId) -> bool {
        let server = Identity::Server(Some(server));
        self.revoked_of(authority).contains(&server)
    }

    /// Whose certificates are revoked that this authority has issued.
    pub fn revoked_of(&self, authority: &str) -> RevokedIdentities {
        match self.revoked.authority.as_deref() == Some(authority) {
            true => self.revoked.identities.clone(),
            false => RevokedIdentities::new(),
        }
    }

    /// Makes a change.
    ///
    /// # Errors
    /// If it is of a run that there is not. What it says before that is changed.
    pub fn change(&mut self, change: Change) -> Result<(), Unfit> {
        self.servers.extend(change.servers);
        self.runs.retain(|name, _| !change.gone.contains(name));
        for (name, run) in change.runs {
            match run {
                RunChange::Begun(run) => {
                    self.runs.insert(name, *run);
                }
                RunChange::Changed(changed) => {
                    let run = self.runs.get_mut(&name);
                    run.ok_or(Unfit(name))?.change(*changed);
                }
            }
        }
        if let Some(resuming) = change.resuming {
            self.resuming = resuming;
        }
        if let Some(passed) = change.passed {
            self.passed = passed;
        }
        if let Some(revoked) = change.revoked {
            self.revoked = revoked;
        }
        Ok(())
    }

    /// Whether the run is there, or shall be resumed.
    pub fn knows(&self, run: &RunId) -> bool {
        self.runs.contains_key(run) || self.resuming.contains_key(run)
    }
}
