//! One group as the coordinator knows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tradewind_common::lease::Lease;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank};

use crate::ReplyTo;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupState {
    /// Its ranks come together; it is out of the view.
    Gathering,
    /// They have; this generation fences the former life.
    Joined(Generation),
    /// This generation lets it push.
    Admitting(Generation),
    /// It may push.
    Live,
    /// It is done.
    Left,
}

/// A rank that is in its group, or waits there for the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) life: u64,
    pub(super) store_address: String,
    pub(super) created: bool,
    /// It knows that it has joined: it has called in the group's life.
    pub(super) entered: bool,
    #[serde(skip)]
    pub(super) clock: Clock,
    /// 0 while it is not known.
    #[serde(skip)]
    pub(super) steps_per_second: f64,
    #[serde(skip)]
    pub(super) lease: Lease,
    #[serde(skip)]
    pub(super) joining: Option<ReplyTo>,
    #[serde(skip)]
    pub(super) awaiting: Option<ReplyTo>,
}

impl Member {
    pub(super) fn new(life: u64) -> Self {
        Self {
            life,
            store_address: String::new(),
            created: false,
            entered: false,
            clock: Clock(0),
            steps_per_second: 0.0,
            lease: Lease::default(),
            joining: None,
            awaiting: None,
        }
    }

    /// The callers that wait for an answer.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = ReplyTo> + use<> {
        let joining = self.joining.take().into_iter();
        joining.chain(self.awaiting.take())
    }
}

/// One group as the coordinator knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    pub(super) incarnation: Incarnation,
    pub(super) state: GroupState,
    pub(super) start: Clock,
    /// Whether it has been together since it last began.
    pub(super) formed: bool,
    /// By rank as configured: those that are in it.
    pub(super) members: BTreeMap<Rank, Member>,
    /// When the first of those that gather came.
    #[serde(skip)]
    pub(super) gathering_ms: u64,
}

impl Group {
    /// A group that nobody has joined after the life `incarnation`.
    pub(super) fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            state: GroupState::Gathering,
            start: Clock(0),
            formed: false,
            members: BTreeMap::new(),
            gathering_ms: 0,
        }
    }

    pub(super) fn holds_leases(&self) -> bool {
        matches!(
            self.state,
            GroupState::Joined(_) | GroupState::Admitting(_) | GroupState::Live
        )
    }

    pub(super) fn clock(&self) -> Clock {
        let clocks = self.members.values().map(|member| member.clock);
        clocks.max().unwrap_or_default()
    }

    /// Steps a second, by its heartbeats; 0 while that is not known.
    pub(super) fn speed(&self) -> f64 {
        let speeds = self.members.values().map(|member| member.steps_per_second);
        speeds.fold(0.0, f64::max)
    }

    pub(super) fn recover(&mut self, now_ms: u64, lease_ms: u64) {
        if self.state == GroupState::Gathering {
            // Their joins were lost with the coordinator that they waited for.
            self.members.clear();
        }
        for member in self.members.values_mut() {
            member.lease = Lease::grant(now_ms, lease_ms);
        }
    }

    pub(super) fn row(
        &self,
        (group, size): (GroupId, u32),
        draining: bool,
        now_ms: u64,
    ) -> GroupRow {
        let left = |member: &Member| {
            let left = member.lease.until_ms().saturating_sub(now_ms);
            if self.holds_leases() { left } else { 0 }
        };
        let rank = |(rank, member): (&Rank, &Member)| RankRow {
            rank: *rank,
            life: member.life,
            clock: member.clock,
            lease_left_ms: left(member),
        };
        GroupRow {
            group,
            size,
            incarnation: self.incarnation,
            state: self.state,
            clock: self.clock(),
            lease_left_ms: self.members.values().map(left).min().unwrap_or(0),
            ranks: self.members.iter().map(rank).collect(),
            draining,
        }
    }
}

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

/// A rank that asks to join.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// Its group.
    pub group: GroupId,
    /// Its number there, as configured.
    pub rank: Rank,
    /// Names the process.
    pub life: u64,
    /// A rendezvous store that it serves.
    pub store_address: String,
}

/// Who makes a call after joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The group.
    pub group: GroupId,
    /// Its life.
    pub incarnation: Incarnation,
    /// The rank in it, as configured.
    pub rank: Rank,
}

/// What a heartbeat tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beat {
    /// The group's clock.
    pub clock: Clock,
    /// How fast it computes; 0 if that is not known.
    pub steps_per_second: f64,
}

/// What a heartbeat is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beaten {
    /// The present one.
    pub generation: Generation,
    /// Steps a second of the fastest live group; 0 if none is known.
    pub steps_per_second_max: f64,
    /// The group shall leave.
    pub leave: bool,
}
