//! The times of each fault, from what was written down: events and finished clocks.

use serde::Serialize;
use tradewind_common::record::StepRecord;

use super::sort;
use crate::shared::Injected;
use tradewind_folder::events::Event;
use tradewind_launch::Member;

/// Clocks of different processes are one machine's, read a little apart.
const APART: f64 = 0.05;

/// Whatever comes later than this after a fault, and its lease, is not its doing.
const HORIZON: f64 = 30.0;

/// A group that has lost a rank so many seconds before a fault may still feel it.
const BEFORE: f64 = 6.0;

/// A fault, and how long things took, seconds; `None` where nothing came of it, or where another
/// fault came between.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Kind and victim.
    #[serde(skip)]
    pub sort: String,
    /// In full.
    pub fault: String,
    pub wall: f64,
    pub detection: Option<f64>,
    pub pause: Option<f64>,
    pub failover: Option<f64>,
    pub again: Option<f64>,
}

/// Measures all faults, which are in the order of time.
pub(super) fn measure(
    injected: &[Injected],
    records: &[StepRecord],
    events: &[Event],
    lease: f64,
) -> Vec<Measured> {
    let one = |(at, one): (usize, &Injected)| {
        let fault = Fault {
            one,
            next: injected.get(at + 1).map_or(f64::INFINITY, |next| next.wall),
            records,
            events,
            lease,
        };
        fault.measured()
    };
    injected.iter().enumerate().map(one).collect()
}

struct Fault<'a> {
    one: &'a Injected,
    /// When the next fault came.
    next: f64,
    records: &'a [StepRecord],
    events: &'a [Event],
    lease: f64,
}

impl Fault<'_> {
    fn measured(&self) -> Measured {
        let lost = self.lost();
        let wall = self.one.wall;
        Measured {
            sort: sort(self.one),
            fault: self.one.fault.to_string(),
            wall,
            detection: lost.map(|lost| (lost - wall).max(0.0)),
            pause: self.pause(),
            failover: lost.and_then(|lost| self.failover(lost)),
            again: lost.and_then(|lost| self.again(lost)),
        }
    }

    fn end(&self) -> f64 {
        self.one.wall + self.one.fault.lasts + self.lease + HORIZON
    }

    fn group(&self) -> Option<u32> {
        match self.one.members.first()? {
            Member::Rank { group, .. } => Some(*group),
            Member::Server(_) => None,
        }
    }

    /// Events from the fault on.
    fn after<'s>(&'s self, from: f64, kind: &'s str) -> impl Iterator<Item = &'s Event> {
        let (from, end) = (from - APART, self.end());
        let events = self.events.iter();
        events.filter(move |e| e.kind == kind && e.wall >= from && e.wall <= end)
    }

    /// When the coordinator noted that the victim was gone.
    fn lost(&self) -> Option<f64> {
        let of = |event: &Event| match self.one.members.first() {
            Some(Member::Server(server)) => event.server == Some(*server),
            Some(Member::Rank { group, .. }) => event.group == Some(*group),
            None => false,
        };
        let kind = match self.group() {
            Some(_) => "rank_lost",
            None => "server_lost",
        };
        let found = self.after(self.one.wall, kind).find(|event| of(event));
        // What the next fault has done is not this one's.
        found
            .map(|event| event.wall)
            .filter(|wall| *wall < self.next)
    }

    /// From the loss of a server to the first clock after its shards had other primaries.
    fn failover(&self, lost: f64) -> Option<f64> {
        self.group().is_none().then_some(())?;
        let within = |event: &&Event| event.wall < lost + self.lease && event.wall < self.next;
        let promoted = self.after(lost, "promoted").filter(within).last()?.wall;
        let clock = self.records.iter().find(|record| record.wall > promoted)?;
        Some((clock.wall - lost).max(0.0))
    }

    /// From the loss of a rank to the first clock of its group's next life.
    fn again(&self, lost: f64) -> Option<f64> {
        let group = self.group()?;
        let formed = self.after(lost, "group_formed");
        let formed = { formed }.find(|event| event.group == Some(group))?.wall;
        let mut of = self.records.iter().filter(|record| record.group == group);
        let clock = of.find(|record| record.wall > formed)?;
        (clock.wall < self.next).then_some(clock.wall - lost)
    }

    /// How much longer than usual the clocks of groups took that were not hurt themselves.
    fn pause(&self) -> Option<f64> {
        let wall = self.one.wall;
        let end = self
            .next
            .min(wall + self.one.fault.lasts + self.lease + 1.0);
        let mut longest: Option<f64> = None;
        let mut groups: Vec<u32> = self.records.iter().map(|record| record.group).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups
            .into_iter()
            .filter(|group| Some(*group) != self.group())
        {
            let hurt = |event: &Event| {
                event.group == Some(group) && (wall - BEFORE..end).contains(&event.wall)
            };
            let disturbed = self.events.iter().any(|e| e.kind == "rank_lost" && hurt(e));
            let of = self.records.iter().filter(|record| record.group == group);
            let mut walls: Vec<f64> = of.map(|record| record.wall).collect();
            walls.sort_by(f64::total_cmp);
            let mut gaps: Vec<f64> = walls.windows(2).map(|two| two[1] - two[0]).collect();
            let around = walls.windows(2).filter(|two| two[1] > wall && two[0] < end);
            let most = around.map(|two| two[1] - two[0]).reduce(f64::max);
            gaps.sort_by(f64::total_cmp);
            if let (false, Some(most), Some(usual)) = (disturbed, most, gaps.get(gaps.len() / 2)) {
                let more = (most - usual).max(0.0);
                longest = Some(longest.map_or(more, |longest| longest.max(more)));
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Fault as Planned, FaultKind, Way};
    use crate::victim::Victim;
    use tradewind_common::record::fixture::run;

    fn injected(wall: f64, kind: FaultKind, victim: Victim, member: Member) -> Injected {
        let fault = Planned {
            at: 0.0,
            kind,
            victim,
            lasts: 0.0,
            way: Way::Silent,
        };
        Injected {
            fault,
            wall,
            members: vec![member],
        }
    }

    /// A clock of each of two groups every second.
    fn records(until: u32, missing: impl Fn(u32, u32) -> bool) -> Vec<StepRecord> {
        let one = &run(1, 1)[0];
        let all = (0..until).flat_map(|second| (0..2).map(move |group| (second, group)));
        let kept = all.filter(|(second, group)| !missing(*second, *group));
        let record = |(second, group)| StepRecord {
            wall: f64::from(second),
            group,
            clock: u64::from(second),
            ..one.clone()
        };
        kept.map(record).collect()
    }

    #[test]
    fn a_killed_rank() {
        let (group, rank) = (0, 1);
        let victim = Victim::Rank { group, rank };
        let member = Member::Rank { group, rank };
        let faults = [injected(10.5, FaultKind::Kill, victim, member)];
        let gone = |second, group| match group {
            0 => (11..15).contains(&second),
            _ => second == 11,
        };
        let of = |wall, kind: &str| Event::of(wall, kind, String::new(), member, 1);
        let events = [of(10.75, "rank_lost"), of(13.0, "group_formed")];
        let measured = measure(&faults, &records(30, gone), &events, 2.0);
        assert_eq!(measured[0].detection, Some(0.25));
        assert_eq!(measured[0].again, Some(15.0 - 10.75));
        assert_eq!(measured[0].pause, Some(1.0), "a gap of 2 s, usually 1 s");
        assert_eq!(measured[0].failover, None);
        assert_eq!(measured[0].sort, "kill rank");
    }

    #[test]
    fn a_killed_server_and_what_the_next_fault_does() {
        let member = Member::Server(1);
        let kill = |wall| injected(wall, FaultKind::Kill, Victim::Server(1), member);
        let of = |wall, kind: &str| Event::of(wall, kind, String::new(), member, 1);
        let events = [
            of(5.5, "server_lost"),
            of(5.75, "promoted"),
            of(20.5, "server_lost"),
        ];
        let measured = measure(
            &[kill(5.25), kill(12.25)],
            &records(30, |_, _| false),
            &events,
            2.0,
        );
        assert_eq!(measured[0].detection, Some(0.25));
        assert_eq!(measured[0].failover, Some(0.5));
        assert_eq!(measured[0].again, None);
        assert_eq!(measured[1].detection, Some(8.25));
        assert_eq!(measured[1].failover, None, "nobody was promoted");
    }
}
