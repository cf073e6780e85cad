//! Groups and ranks on the status page.

use tradewind_common::{Clock, GroupId, Incarnation, Rank};

use super::group::GroupState;

/// A row of the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The group.
    pub group: GroupId,
    /// Its ranks as configured.
    pub size: u32,
    /// Its latest life.
    pub incarnation: Incarnation,
    /// Where it stands.
    pub state: GroupState,
    /// Its clock, by its heartbeats.
    pub clock: Clock,
    /// Time left on the shortest of its leases, milliseconds.
    pub lease_left_ms: u64,
    /// Those that are in it, or wait there for the others.
    pub ranks: Vec<RankRow>,
    /// It has been asked to leave.
    pub draining: bool,
}

impl GroupRow {
    /// The word of the status page.
    pub fn word(&self) -> &'static str {
        match self.state {
            GroupState::Gathering if self.ranks.is_empty() => "dead",
            GroupState::Gathering => "gathering",
            GroupState::Joined(_) => "joined",
            GroupState::Admitting(_) => "admitting",
            GroupState::Live => "live",
            GroupState::Left => "left",
        }
    }
}

/// A rank on the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankRow {
    /// As configured.
    pub rank: Rank,
    /// The process, as it named itself.
    pub life: u64,
    /// Its clock, by its heartbeats.
    pub clock: Clock,
    /// Time left on its lease, milliseconds.
    pub lease_left_ms: u64,
}
