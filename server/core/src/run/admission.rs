//! When groups may push: all at once at the beginning, then each when it comes.

use tradewind_common::{Clock, Generation};

use super::membership::Membership;
use super::outbox::Outbox;
use super::roster::Roster;

/// Whether the first clock of a run has been released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    formed: bool,
    since_ms: u64,
}

impl Admission {
    /// Groups are awaited since `now_ms`, unless the first clock was released before.
    pub(super) fn since(formed: bool, now_ms: u64) -> Self {
        Self {
            formed,
            since_ms: now_ms,
        }
    }

    /// Whether the first clock has been released.
    pub(super) fn is_formed(&self) -> bool {
        self.formed
    }

    /// Lets groups push whose former life every shard has fenced. At the beginning they are waited for
    /// until the start grace of `grace_ms` is over; those that came on top are not. They begin at `start`,
    /// which is past the highest clock that any shard has seen.
    pub(super) fn admit(
        &mut self,
        membership: &mut Membership,
        roster: &Roster,
        conditions: Conditions,
        out: &mut Outbox,
    ) {
        let mut awaited = roster.awaited();
        let everyone = awaited.all(|id| membership.has_joined(id));
        let waited_ms = conditions.now_ms.saturating_sub(self.since_ms);
        if !(self.formed || everyone || waited_ms >= conditions.grace_ms) {
            return;
        }
        let fenced = membership.fenced(conditions.followed);
        if fenced.is_empty() || (!self.formed && fenced.len() < membership.joining()) {
            return;
        }
        self.formed = true;
        let at = out.change();
        membership.admit(&fenced, conditions.start, at);
    }
}

/// What groups are admitted by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// The generation that every shard's primary follows; `None` if one follows none.
    pub(super) followed: Option<Generation>,
    /// The first clock that no group has pushed.
    pub(super) start: Clock,
    /// How long configured groups are waited for at the beginning.
    pub(super) grace_ms: u64,
    pub(super) now_ms: u64,
}
