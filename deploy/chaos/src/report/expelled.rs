//! Those who were slow, or silent for a part of their lease, are not taken for dead.

use tradewind_core::event::LEASE_RAN_OUT;

use crate::schedule::FaultKind;
use crate::shared::Injected;
use tradewind_folder::events::Event;
use tradewind_launch::Member;

/// Whatever was done to a member so many seconds before may show in what happens to it now.
const BEFORE: f64 = 15.0;

/// Members that were expelled although they were silent for half of the lease (in seconds) at most.
pub(super) fn expelled(injected: &[Injected], events: &[Event], lease: f64) -> Vec<String> {
    let short = |one: &&Injected| match one.fault.kind {
        FaultKind::Slow => true,
        FaultKind::Stop => one.fault.lasts <= lease / 2.0,
        FaultKind::Kill | FaultKind::Cut | FaultKind::Full => false,
    };
    let mut wrong = Vec::new();
    for one in injected.iter().filter(short) {
        let end = one.wall + one.fault.lasts + lease / 2.0;
        for member in &one.members {
            let of = |event: &&Event| {
                let within = (one.wall..end).contains(&event.wall);
                within && event.text.contains(LEASE_RAN_OUT) && about(event) == Some(*member)
            };
            let Some(event) = events.iter().find(of) else {
                continue;
            };
            let others = injected.iter().filter(|other| other.wall != one.wall);
            let mut near =
                others.filter(|other| (one.wall - BEFORE..event.wall).contains(&other.wall));
            // Nobody's lease runs on while there is no coordinator, but it is heard late.
            let server = |member: &Member| matches!(member, Member::Server(_));
            if !near.any(|other| other.members.contains(member) || other.members.iter().any(server))
            {
                wrong.push(format!(
                    "{member} was expelled for being slow: {}",
                    event.text
                ));
            }
        }
    }
    wrong
}

fn about(event: &Event) -> Option<Member> {
    match event.kind.as_str() {
        "server_lost" => Some(Member::Server(event.server?)),
        "rank_lost" => Some(Member::Rank {
            group: event.group?,
            rank: event.rank?,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Fault, Way};
    use crate::victim::Victim;

    #[test]
    fn who_was_slow_or_silent_for_a_moment_stays() {
        let (group, rank) = (1, 0);
        let member = Member::Rank { group, rank };
        let injected = |wall, kind, lasts| Injected {
            fault: Fault {
                at: 0.0,
                kind,
                victim: Victim::Rank { group, rank },
                lasts,
                way: Way::Silent,
            },
            wall,
            members: vec![member],
        };
        let text = format!("{member} is lost, and the group forms again: {LEASE_RAN_OUT}");
        let events = [Event::of(101.5, "rank_lost", text, member, 1)];
        let found = |faults: &[Injected]| expelled(faults, &events, 2.0).len();
        assert_eq!(found(&[injected(100.0, FaultKind::Stop, 1.0)]), 1);
        assert_eq!(found(&[injected(100.0, FaultKind::Slow, 4.0)]), 1);
        assert_eq!(
            found(&[injected(99.5, FaultKind::Stop, 3.0)]),
            0,
            "it was silent"
        );
        let before = injected(95.0, FaultKind::Kill, 0.0);
        assert_eq!(found(&[before, injected(100.0, FaultKind::Stop, 1.0)]), 0);
    }
}
