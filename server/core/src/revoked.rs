//! Certificates that are taken back.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tradewind_common::{GroupId, RunId};

/// Groups that may be revoked under one authority: the list travels whole.
pub const REVOKED_MAX: usize = 1024;

/// Groups that are revoked: certificates of their ranks are good for nothing any more.
pub type RevokedGroups = BTreeSet<(RunId, GroupId)>;

/// What is revoked, as it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// Names the authority that has issued the certificates; `None` where there are none.
    pub(super) authority: Option<String>,
    /// It only grows: how many there are says which state of it somebody has.
    pub(super) groups: RevokedGroups,
}
