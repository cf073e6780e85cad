//! What this server is to a shard, and in which view.

use tradewind_common::holders::{Holders, Role};
use tradewind_common::{Clock, Generation, GroupId, Incarnation, ServerId, ShardId};

use crate::log::{Confirm, Record};
use crate::refusal::Refusal;
use crate::replica::{Position, RecordPlace};
use crate::view::{View, ViewChange};

/// One server as a holder of one shard.
#[derive(Debug)]
pub(super) struct Holder {
    me: ServerId,
    shard: ShardId,
    view: View,
    /// What this server is to the shard in that view.
    role: Option<Role>,
    /// When the values were last restored.
    lineage: Generation,
    /// The highest clock seen in any push, or decided.
    clock_seen: Option<Clock>,
    /// As a copy: how far it has come in its primary's log.
    position: Position,
}

impl Holder {
    /// Server `me`, which is nothing to the shard before the first order.
    pub(super) fn new(me: ServerId, shard: ShardId) -> Self {
        Self {
            me,
            shard,
            view: View::default(),
            role: None,
            lineage: Generation::default(),
            clock_seen: None,
            position: Position::default(),
        }
    }

    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn role(&self) -> Option<Role> {
        self.role
    }

    /// What it is to be, as an order says.
    pub(super) fn role_in(&self, holders: &Holders) -> Option<Role> {
        holders.role(self.me)
    }

    pub(super) fn is_primary(&self) -> bool {
        matches!(self.role, Some(Role::Primary(_)))
    }

    pub(super) fn lineage(&self) -> Generation {
        self.lineage
    }

    pub(super) fn clock_seen(&self) -> Option<Clock> {
        self.clock_seen
    }

    /// The first clock that no group has pushed here.
    pub(super) fn next_clock(&self) -> Clock {
        self.clock_seen.map_or(Clock(0), Clock::tick)
    }

    /// A clock was seen in a push, or decided.
    pub(super) fn see(&mut self, clock: Option<Clock>) {
        self.clock_seen = self.clock_seen.max(clock);
    }

    /// Its values are of this lineage.
    pub(super) fn set_lineage(&mut self, lineage: Generation) {
        self.lineage = lineage;
    }

    /// Is this from now on.
    pub(super) fn set_role(&mut self, role: Option<Role>) {
        self.role = role;
    }

    /// Goes on to a later view, from this or one before it.
    pub(super) fn change_view(&mut self, change: &ViewChange) {
        let changed = self.view.change(change);
        changed.expect("it was checked where the change goes on from");
    }

    /// Refuses records of logs of before this one.
    pub(super) fn begin_log(&mut self, log: Generation) {
        self.position = Position::start(log);
    }

    /// Is to follow a log, and to be filled in it. Whether it is a new one, in which every block is sent
    /// anew.
    pub(super) fn reach(&mut self, log: Generation, fill: Generation) -> bool {
        self.position.reach(log, fill)
    }

    /// Refuses a group that is not in the view, in this life of it. Before the first view there are the
    /// groups of the specification, so many.
    pub(super) fn check(
        &self,
        group: GroupId,
        given: Incarnation,
        configured: u32,
    ) -> Result<(), Refusal> {
        let groups = self.view.groups.max(configured);
        if group.0 >= groups {
            let last = GroupId(groups - 1);
            return Err(Refusal::UnknownGroup { group, last });
        }
        match self.view.incarnation(group) {
            Some(current) if current == given => Ok(()),
            Some(current) => Err(Refusal::StaleIncarnation {
                group,
                given,
                current,
            }),
            None => Err(Refusal::NotLive(group)),
        }
    }

    /// What a record is to it. A copy follows the log that its order names, and no other, whatever it
    /// says of itself.
    pub(super) fn place(&self, record: &Record) -> Result<RecordPlace, Refusal> {
        let (log, fill) = (record.log, record.fill);
        let (named, copies) = match self.role {
            Some(Role::Copy(since)) => ((self.position.log(), since), true),
            Some(Role::Primary(since) | Role::Heir(since)) => ((since, since), false),
            Some(Role::Candidate) | None => return Err(Refusal::NotCopy(self.shard)),
        };
        if (log, fill) < named || (!copies && log <= named.0) {
            return Err(Refusal::StaleLog {
                given: (log, fill),
                newest: named,
            });
        }
        // The order for a later one is on its way, if it is one.
        if (log, fill) > named || !copies {
            return Err(Refusal::NotCopy(self.shard));
        }
        self.position.place(record.previous, record.seq)
    }

    /// A record is applied.
    pub(super) fn advance(&mut self, seq: u64) {
        self.position.advance(seq);
    }

    /// Says how far it has come in a log.
    pub(super) fn confirm(&self, log: Generation, fill: Generation) -> Confirm {
        Confirm {
            copy: self.me,
            log,
            fill,
            seq: self.position.seq(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogEntry;

    fn record(log: u64, fill: u64, seq: u64) -> Record {
        Record {
            log: Generation(log),
            fill: Generation(fill),
            previous: seq - 1,
            seq,
            entry: LogEntry::Probe,
        }
    }

    #[test]
    fn follows_only_the_log_that_its_order_names() {
        let mut holder = Holder::new(ServerId(1), ShardId(0));
        let not_copy = Err(Refusal::NotCopy(ShardId(0)));
        assert_eq!(holder.place(&record(4, 5, 1)), not_copy, "it is nobody");
        holder.set_role(Some(Role::Copy(Generation(5))));
        assert!(holder.reach(Generation(4), Generation(5)));
        assert_eq!(holder.place(&record(4, 5, 1)), Ok(RecordPlace::Next));
        holder.advance(1);
        assert_eq!(holder.place(&record(4, 5, 1)), Ok(RecordPlace::Had));
        assert_eq!(holder.confirm(Generation(4), Generation(5)).seq, 1);
        assert_eq!(holder.place(&record(6, 6, 1)), not_copy, "not named yet");
        let stale = holder.place(&record(3, 3, 1));
        assert!(matches!(stale, Err(Refusal::StaleLog { .. })), "{stale:?}");
        holder.set_role(Some(Role::Heir(Generation(7))));
        holder.begin_log(Generation(7));
        let stale = holder.place(&record(4, 5, 2));
        assert!(matches!(stale, Err(Refusal::StaleLog { .. })), "{stale:?}");
    }
}
