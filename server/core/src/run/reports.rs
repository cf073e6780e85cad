//! What servers have said of the shards that they hold.

use std::collections::BTreeMap;

use tradewind_common::holders::Primary;
use tradewind_common::{Clock, Generation, ServerId, ShardId};

use super::outbox::Outbox;
use crate::fleet::Fleet;
use crate::view::Acknowledge;

/// What the holders of a run's shards have acknowledged, and how far groups have come at them.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    /// The highest clock that any holder of a shard has ever reported.
    clock_seen: Option<Clock>,
    acknowledged: BTreeMap<(ShardId, ServerId), Acknowledge>,
}

impl Reports {
    /// Nobody has said anything since this clock was reported.
    pub(super) fn since(clock_seen: Option<Clock>) -> Self {
        Self {
            clock_seen,
            acknowledged: BTreeMap::new(),
        }
    }

    pub(super) fn clock_seen(&self) -> Option<Clock> {
        self.clock_seen
    }

    /// The first clock that no group has pushed yet.
    pub(super) fn next_clock(&self) -> Clock {
        self.clock_seen.map_or(Clock(0), Clock::tick)
    }

    /// Somebody has seen a clock: no later life of a group may begin before it.
    pub(super) fn see(&mut self, clock: Option<Clock>, out: &mut Outbox) {
        if clock > self.clock_seen {
            self.clock_seen = clock;
            out.touch();
        }
    }

    /// Reports of the same server may overtake each other.
    pub(super) fn remember(&mut self, shard: ShardId, server: ServerId, seen: &Acknowledge) {
        let known = self.acknowledged.entry((shard, server)).or_default();
        known.generation = known.generation.max(seen.generation);
        known.complete |= seen.complete;
    }

    /// What a server said earlier does not count any more.
    pub(super) fn forget_server(&mut self, server: ServerId) {
        self.acknowledged.retain(|(_, holder), _| *holder != server);
    }

    /// What was said of a shard earlier does not count any more.
    pub(super) fn forget_shard(&mut self, shard: ShardId) {
        self.acknowledged.retain(|(of, _), _| *of != shard);
    }

    /// What a server has said of a shard.
    pub(super) fn of(&self, shard: ShardId, server: ServerId) -> Option<&Acknowledge> {
        self.acknowledged.get(&(shard, server))
    }

    /// Whether a server has every value of a shard.
    pub(super) fn is_complete(&self, shard: ShardId, server: ServerId) -> bool {
        self.of(shard, server).is_some_and(|seen| seen.complete)
    }

    /// What the primary of a shard has said since it is one.
    pub(super) fn followed(
        &self,
        shard: ShardId,
        primary: Option<Primary>,
    ) -> Option<&Acknowledge> {
        let primary = primary?;
        let seen = self.of(shard, primary.server)?;
        (seen.generation >= primary.since).then_some(seen)
    }

    /// Whether what a server has acknowledged of a generation shows that the coordinator is not cut off:
    /// for the one that it runs on, another one has to have acknowledged it as well.
    pub(super) fn reaches_others(
        &self,
        server: ServerId,
        generation: Generation,
        fleet: &Fleet,
    ) -> bool {
        let all = self.acknowledged.iter();
        let mut others = all.filter(|((_, of), _)| *of != server);
        !fleet.is_heard_anyway(server) || others.any(|(_, seen)| seen.generation >= generation)
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::RunId;

    use super::*;

    fn seen(generation: u64, complete: bool) -> Acknowledge {
        Acknowledge {
            generation: Generation(generation),
            complete,
            ..Acknowledge::default()
        }
    }

    #[test]
    fn an_older_report_takes_nothing_back() {
        let (shard, server) = (ShardId(0), ServerId(1));
        let mut reports = Reports::default();
        reports.remember(shard, server, &seen(4, true));
        reports.remember(shard, server, &seen(3, false));
        assert!(reports.is_complete(shard, server));
        let primary = |since| {
            let since = Generation(since);
            Some(Primary { server, since })
        };
        assert_eq!(reports.followed(shard, primary(5)), None);
        assert_eq!(reports.followed(shard, None), None);
        let followed = reports.followed(shard, primary(4));
        assert_eq!(followed.map(|seen| seen.generation), Some(Generation(4)));
        reports.forget_shard(shard);
        assert_eq!(reports.of(shard, server), None);
    }

    #[test]
    fn who_hears_only_its_own_host_may_be_cut_off() {
        let mut fleet = Fleet::new(3, 100);
        let mut reports = Reports::default();
        reports.remember(ShardId(0), ServerId(1), &seen(4, true));
        let reaches = |reports: &Reports, fleet: &Fleet, generation| {
            reports.reaches_others(ServerId(1), Generation(generation), fleet)
        };
        assert!(reaches(&reports, &fleet, 4));
        fleet.hosted_by(ServerId(1));
        assert!(!reaches(&reports, &fleet, 4));
        reports.remember(ShardId(1), ServerId(2), &seen(3, true));
        assert!(reaches(&reports, &fleet, 3) && !reaches(&reports, &fleet, 4));
        reports.forget_server(ServerId(2));
        assert!(!reaches(&reports, &fleet, 3));
    }

    #[test]
    fn groups_begin_past_the_highest_clock_that_was_seen() {
        let mut out = Outbox::new(RunId::new("r").unwrap(), Generation(1));
        let mut reports = Reports::default();
        assert_eq!(reports.next_clock(), Clock(0));
        reports.see(Some(Clock(7)), &mut out);
        assert!(out.take_changes().dirty);
        reports.see(Some(Clock(5)), &mut out);
        reports.see(None, &mut out);
        assert!(!out.take_changes().dirty);
        assert_eq!(reports.next_clock(), Clock(8));
    }
}
