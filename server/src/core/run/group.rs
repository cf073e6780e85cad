//! One group as the coordinator knows it.

use std::collections::BTreeMap;

use tradewind_common::lease::Lease;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank};

use crate::core::ReplyTo;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Some of its ranks have joined.
    Gathering,
    /// All have; this generation fences the former life.
    Joined(Generation),
    /// This generation lets it push.
    Admitting(Generation),
    /// It may push.
    Live,
    /// It is done.
    Left,
    /// A lease ran out.
    Dead,
}

impl GroupState {
    /// The word of the status page.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gathering => "gathering",
            Self::Joined(_) => "joined",
            Self::Admitting(_) => "admitting",
            Self::Live => "live",
            Self::Left => "left",
            Self::Dead => "dead",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) life: u64,
    pub(super) lease: Lease,
    pub(super) clock: Clock,
    pub(super) created: bool,
    pub(super) joining: Option<ReplyTo>,
    pub(super) awaiting: Option<ReplyTo>,
}

/// One group as the coordinator knows it.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) incarnation: Incarnation,
    pub(super) state: GroupState,
    pub(super) start: Clock,
    pub(super) store_address: String,
    pub(super) members: BTreeMap<Rank, Member>,
}

impl Group {
    pub(super) fn holds_leases(&self) -> bool {
        matches!(
            self.state,
            GroupState::Joined(_) | GroupState::Admitting(_) | GroupState::Live
        )
    }
}

/// A row of the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The group.
    pub group: GroupId,
    /// Its size.
    pub size: u32,
    /// Its latest life.
    pub incarnation: Incarnation,
    /// Where it stands.
    pub state: GroupState,
    /// Its clock, by its heartbeats.
    pub clock: Clock,
    /// Time left on the shortest of its leases, milliseconds.
    pub lease_left_ms: u64,
}

/// A rank that asks to join.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// Its group.
    pub group: GroupId,
    /// Its number there.
    pub rank: Rank,
    /// Names the process.
    pub life: u64,
    /// Where the group's store is; from rank 0.
    pub store_address: String,
}

/// Who makes a call after joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The group.
    pub group: GroupId,
    /// Its life.
    pub incarnation: Incarnation,
    /// The rank in it.
    pub rank: Rank,
}
