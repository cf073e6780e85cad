//! Membership as the coordinator decided it and a shard sees it.

use std::collections::BTreeMap;

use tradewind_common::{Clock, Generation, GroupId, Incarnation, ServerId};

/// One generation of a run's membership. Older views are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Orders views.
    pub generation: Generation,
    /// Groups that may push, with their first clock.
    pub live: BTreeMap<GroupId, (Incarnation, Clock)>,
    /// Incarnations that have joined and do not push yet.
    pub joined: BTreeMap<GroupId, Incarnation>,
    /// The one incarnation that may create; `None` once the run is ready.
    pub creator: Option<(GroupId, Incarnation)>,
    /// How many groups there are, those among them that are not here included.
    pub groups: u32,
}

impl View {
    /// Whether the run's values may be read and pushed to (rule 6).
    pub fn ready(&self) -> bool {
        self.generation > Generation(0) && self.creator.is_none()
    }

    /// The incarnation of a group that the view knows, live or not.
    pub fn incarnation(&self, group: GroupId) -> Option<Incarnation> {
        self.live
            .get(&group)
            .map(|(life, _)| *life)
            .or_else(|| self.joined.get(&group).copied())
    }
}

/// What a holder of a shard says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledge {
    /// The generation that it follows.
    pub generation: Generation,
    /// The highest clock seen in any push, or decided.
    pub clock_seen: Option<Clock>,
    /// Whether every block has a value.
    pub complete: bool,
    /// Of a primary: the copies that have everything, and since when each is one.
    pub full: Vec<(ServerId, Generation)>,
    /// Of a primary: the copies that have confirmed nothing for a lease while something waits for them,
    /// and since when each is one.
    pub stalled: Vec<(ServerId, Generation)>,
}
