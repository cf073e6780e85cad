//! What ranks call, and what they are answered.

use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank};

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
