//! Who may be hurt: never a server without which a shard would have no full copy.

use std::collections::BTreeSet;
use std::fmt;

use tradewind_common::ServerId;
use tradewind_common::holders::Holders;

use crate::launch::Member;

/// Who is meant by a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Rank {
        group: u32,
        rank: u32,
    },
    /// All ranks of it.
    Group(u32),
    Server(u32),
    /// Whichever server hosts it by then.
    Coordinator,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Rank { group, rank } => Member::Rank { group, rank }.fmt(f),
            Self::Group(group) => write!(f, "group {group}"),
            Self::Server(server) => Member::Server(server).fmt(f),
            Self::Coordinator => f.write_str("coordinator"),
        }
    }
}

/// What is known at the moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Situation {
    /// Whose processes are there.
    pub(crate) present: BTreeSet<Member>,
    /// Who suffers from a fault, or has not recovered yet.
    pub(crate) suffering: BTreeSet<Member>,
    /// What the coordinator said a moment ago; `None` if it said nothing.
    pub(crate) told: Option<Told>,
    /// A shard without another copy may go back to its last snapshot.
    pub(crate) may_restore: bool,
}

/// What the coordinator said.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The server that hosts it.
    pub(crate) host: u32,
    /// The run trains, and there is a snapshot.
    pub(crate) ready: bool,
    pub(crate) holders: Vec<Holders>,
    /// Servers that are up.
    pub(crate) up: BTreeSet<u32>,
}

impl Situation {
    /// Whose processes are hurt if `victim` is now; `None` if it may not be, or not yet.
    pub(crate) fn may_hurt(&self, victim: Victim) -> Option<Vec<Member>> {
        match victim {
            Victim::Rank { group, rank } => {
                let member = Member::Rank { group, rank };
                self.is_well(member).then(|| vec![member])
            }
            Victim::Group(group) => {
                let of = |m: &&Member| matches!(m, Member::Rank { group: g, .. } if *g == group);
                let ranks: Vec<Member> = self.present.iter().filter(of).copied().collect();
                let well = !ranks.is_empty() && ranks.iter().all(|rank| self.is_well(*rank));
                well.then_some(ranks)
            }
            Victim::Server(server) => self.server(server),
            Victim::Coordinator => self.server(self.told.as_ref()?.host),
        }
    }

    fn is_well(&self, member: Member) -> bool {
        self.present.contains(&member) && !self.suffering.contains(&member)
    }

    fn server(&self, server: u32) -> Option<Vec<Member>> {
        let told = self.told.as_ref()?;
        let member = Member::Server(server);
        let whole = |id: ServerId| {
            id.0 != server && told.up.contains(&id.0) && self.is_well(Member::Server(id.0))
        };
        let spared = |holders: &Holders| {
            // Without a primary nobody knows how full copies are.
            let Some(primary) = holders.primary else {
                return false;
            };
            if holders.role(ServerId(server)).is_none() {
                return whole(primary.server) || self.may_restore;
            }
            let mut full = holders.copies.iter().filter(|copy| copy.full);
            let copies = full.any(|copy| whole(copy.server));
            copies || whole(primary.server) || self.may_restore
        };
        let safe = told.ready && self.is_well(member) && told.holders.iter().all(spared);
        safe.then(|| vec![member])
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::Generation;
    use tradewind_common::holders::CopyHolder;

    use super::*;

    fn holders(primary: u32, copies: &[(u32, bool)]) -> Holders {
        let copy = |(server, full): &(u32, bool)| CopyHolder {
            server: ServerId(*server),
            since: Generation(1),
            full: *full,
        };
        Holders {
            copies: copies.iter().map(copy).collect(),
            ..Holders::alone(ServerId(primary))
        }
    }

    fn situation(holders: Vec<Holders>) -> Situation {
        let ranks = (0..2).map(|rank| Member::Rank { group: 0, rank });
        Situation {
            present: (0..3).map(Member::Server).chain(ranks).collect(),
            suffering: BTreeSet::new(),
            told: Some(Told {
                host: 0,
                ready: true,
                holders,
                up: (0..3).collect(),
            }),
            may_restore: false,
        }
    }

    #[test]
    fn the_last_full_copy_is_never_hurt() {
        let now = situation(vec![holders(0, &[(1, true)]), holders(1, &[(2, false)])]);
        assert!(now.may_hurt(Victim::Server(0)).is_some(), "1 has both");
        assert!(now.may_hurt(Victim::Coordinator).is_some(), "it is on 0");
        assert_eq!(now.may_hurt(Victim::Server(1)), None, "2 is not full");
        assert!(now.may_hurt(Victim::Server(2)).is_some(), "1 has all");
        let lone = situation(vec![holders(0, &[])]);
        assert_eq!(lone.may_hurt(Victim::Server(0)), None);
        let restored = Situation {
            may_restore: true,
            ..lone
        };
        assert!(restored.may_hurt(Victim::Server(0)).is_some());
    }

    #[test]
    fn copies_on_servers_that_suffer_or_are_gone_do_not_count() {
        let mut now = situation(vec![holders(0, &[(1, true)])]);
        now.suffering.insert(Member::Server(1));
        assert_eq!(now.may_hurt(Victim::Server(0)), None);
        let mut now = situation(vec![holders(0, &[(1, true)])]);
        now.told.as_mut().unwrap().up.remove(&1);
        assert_eq!(now.may_hurt(Victim::Server(0)), None);
        let mut now = situation(vec![holders(0, &[(1, true)])]);
        now.present.remove(&Member::Server(1));
        assert_eq!(now.may_hurt(Victim::Server(0)), None);
    }

    #[test]
    fn a_server_that_holds_nothing_is_left_alone_while_a_primary_suffers() {
        let mut now = situation(vec![holders(0, &[(1, true)])]);
        now.suffering.insert(Member::Server(0));
        assert_eq!(now.may_hurt(Victim::Server(2)), None);
        assert_eq!(now.may_hurt(Victim::Server(1)), None);
    }

    #[test]
    fn nothing_is_done_to_servers_while_the_coordinator_is_silent_or_the_run_not_ready() {
        let mut now = situation(vec![holders(0, &[(1, true)])]);
        now.told.as_mut().unwrap().ready = false;
        assert_eq!(now.may_hurt(Victim::Server(0)), None);
        now.told = None;
        assert_eq!(now.may_hurt(Victim::Server(0)), None);
        assert_eq!(now.may_hurt(Victim::Coordinator), None);
    }

    #[test]
    fn ranks_are_hurt_one_fault_at_a_time() {
        let mut now = situation(vec![]);
        let victim = Victim::Rank { group: 0, rank: 1 };
        assert_eq!(
            now.may_hurt(victim),
            Some(vec![Member::Rank { group: 0, rank: 1 }])
        );
        assert_eq!(now.may_hurt(Victim::Group(0)).unwrap().len(), 2);
        assert_eq!(now.may_hurt(Victim::Group(1)), None, "nobody is there");
        now.suffering.insert(Member::Rank { group: 0, rank: 1 });
        assert_eq!(now.may_hurt(victim), None);
        assert_eq!(now.may_hurt(Victim::Group(0)), None);
    }
}
