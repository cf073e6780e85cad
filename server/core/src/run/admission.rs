//! When groups may push: all at once at the beginning, then each when it comes.

use tradewind_common::{Clock, Generation, GroupId};

use super::membership::Membership;
use super::outbox::Outbox;
use super::roster::Roster;

/// Whether the first clock of a run has been released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    formed: bool,
    since_ms: u64,
    /// A group that had not joined when it was looked last: while it has not, nobody else is asked.
    missing: GroupId,
}

impl Admission {
    /// Groups are awaited since `now_ms`, unless the first clock was released before.
    pub(super) fn since(formed: bool, now_ms: u64) -> Self {
        Self {
            formed,
            since_ms: now_ms,
            missing: GroupId(0),
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
        let followed = conditions.followed;
        if !self.formed {
            let waited_ms = conditions.now_ms.saturating_sub(self.since_ms);
            let enough =
                waited_ms >= conditions.grace_ms || self.everyone_has_joined(membership, roster);
            if !enough || !membership.all_fenced(followed) {
                return;
            }
        }
        let fenced = membership.fenced(followed);
        if fenced.is_empty() {
            return;
        }
        self.formed = true;
        let at = out.change();
        membership.admit(&fenced, conditions.start, at);
    }

    fn everyone_has_joined(&mut self, membership: &Membership, roster: &Roster) -> bool {
        let is_missing = |id: &GroupId| !membership.has_joined(*id);
        let mut missing = roster.awaited_from(self.missing).filter(is_missing);
        match missing.next() {
            Some(missing) => self.missing = missing,
            None => return true,
        }
        false
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
