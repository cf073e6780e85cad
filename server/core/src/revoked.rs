//! Certificates that are taken back.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tradewind_common::identity::Identity;

/// How many may be revoked under one authority: the list travels whole.
pub const REVOKED_MAX: usize = 1024;

/// Who is revoked: certificates with these names, and those of the ranks of a group that is among them, are good for
/// nothing any more.
pub type RevokedIdentities = BTreeSet<Identity>;

/// What is revoked, as it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
// A list that is not understood is not an empty one.
#[serde(deny_unknown_fields)]
pub struct Revoked {
    /// Names the authority that has issued the certificates; `None` where there are none.
    pub(super) authority: Option<String>,
    /// It only grows: how many there are says which state of it somebody has.
    #[serde(default)]
    pub(super) identities: RevokedIdentities,
}
