//! The places for connections: who gets one, and who gives way. A value, without sockets.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::limits::Limit;

/// Connections that have shown no valid token yet. Each may hold a part of one HTTP/2 frame of 1 MiB, so together
/// they hold 256 MiB at most. Those of a fleet show theirs within milliseconds.
const STRANGERS_MAX: usize = 256;

/// Connections in all, where the system sets no lower limit: a rank has two to the server with the coordinator, so
/// this is 131,072 ranks.
const CONNECTIONS_MAX: usize = 1 << 18;

/// Descriptors that connections leave to the server itself: files, and connections that it makes; a third where
/// there are few.
const KEPT_MAX: usize = 256;

/// A younger stranger gives no way, milliseconds: its first request may be on its way, on a slow machine, too.
pub(super) const GRACE_MS: u64 = 250;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Most {
    /// In all.
    pub(super) all: usize,
    /// That have shown no valid token yet: a quarter of all, so that they never take what others need.
    pub(super) strangers: usize,
    /// From one address but the machine's own, whatever they have shown: half, so that one machine that runs wild
    /// does not shut all others out.
    pub(super) per_address: usize,
}

impl Most {
    /// In a process that may have so many descriptors; `None` if there is no limit.
    pub(super) fn of(descriptors: Option<u64>) -> Self {
        let descriptors = descriptors.and_then(|d| usize::try_from(d).ok());
        let descriptors = descriptors.unwrap_or(usize::MAX);
        let kept = KEPT_MAX.min(descriptors / 3);
        let all = (descriptors - kept).clamp(2, CONNECTIONS_MAX);
        Self {
            all,
            strangers: (all / 4).clamp(1, STRANGERS_MAX),
            per_address: all / 2,
        }
    }
}

/// What is to be done about somebody who has just connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is admitted, under this number.
    Admitted(u64),
    /// This stranger is to be closed for that limit; then ask again.
    GiveWay(u64, Limit),
    /// Ask again when somebody has left or has shown a token, at the latest then.
    Wait(u64),
    /// It is turned away.
    Refused(Limit),
}

/// Who is connected.
#[derive(Debug)]
pub(super) struct Places {
    most: Most,
    next: u64,
    /// Who has shown no valid token yet, by number: in the order in which they came.
    strangers: BTreeMap<u64, Stranger>,
    /// Connections from each address, for as long as they are open.
    open: HashMap<IpAddr, usize>,
    all: usize,
    /// Strangers that were told to close, and have not yet.
    leaving: usize,
}

#[derive(Clone, Copy, Debug)]
struct Stranger {
    from: IpAddr,
    since_ms: u64,
    leaving: bool,
}

impl Places {
    pub(super) fn new(most: Most) -> Self {
        Self {
            most,
            next: 0,
            strangers: BTreeMap::new(),
            open: HashMap::new(),
            all: 0,
            leaving: 0,
        }
    }

    /// Somebody has connected.
    pub(super) fn ask(&mut self, from: IpAddr, now_ms: u64) -> Answer {
        let open = self.open.get(&from).copied().unwrap_or(0);
        if !from.is_loopback() && open >= self.most.per_address {
            return Answer::Refused(Limit::Address);
        }
        let limit = if self.all >= self.most.all {
            Limit::Connections
        } else if self.strangers.len() - self.leaving >= self.most.strangers {
            Limit::Strangers
        } else {
            return Answer::Admitted(self.admit(from, now_ms));
        };
        if let Some(number) = self.ripe(now_ms) {
            // Whoever has been told to close makes room, too.
            if limit == Limit::Strangers || self.leaving == 0 {
                self.tell(number);
                return Answer::GiveWay(number, limit);
            }
        }
        let ripens = |stranger: &Stranger| stranger.since_ms.saturating_add(GRACE_MS);
        let mut ripening = self.strangers.values().map(ripens);
        match ripening.find(|at_ms| *at_ms > now_ms) {
            Some(at_ms) => Answer::Wait(at_ms),
            None if self.leaving > 0 => Answer::Wait(now_ms.saturating_add(GRACE_MS)),
            None => Answer::Refused(limit),
        }
    }

    fn admit(&mut self, from: IpAddr, since_ms: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        let stranger = Stranger {
            from,
            since_ms,
            leaving: false,
        };
        self.strangers.insert(number, stranger);
        *self.open.entry(from).or_default() += 1;
        self.all += 1;
        number
    }

    /// Who gives way: of the address that has most strangers the one that has been silent for longest.
    fn ripe(&self, now_ms: u64) -> Option<u64> {
        let mut of: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        let staying = self.strangers.iter().filter(|(_, one)| !one.leaving);
        for (number, stranger) in staying {
            if now_ms.saturating_sub(stranger.since_ms) >= GRACE_MS {
                of.entry(stranger.from).or_insert((0, *number)).0 += 1;
            }
        }
        let crowded = of
            .values()
            .max_by_key(|(count, first)| (*count, u64::MAX - first));
        crowded.map(|(_, first)| *first)
    }

    fn tell(&mut self, number: u64) {
        let stranger = self.strangers.get_mut(&number).expect("it is there");
        stranger.leaving = true;
        self.leaving += 1;
    }

    /// The stranger that has been silent for longest, which is told to close.
    pub(super) fn oldest(&mut self) -> Option<u64> {
        let staying = self.strangers.iter().find(|(_, one)| !one.leaving);
        let number = staying.map(|(number, _)| *number)?;
        self.tell(number);
        Some(number)
    }

    /// It has shown what is asked for.
    pub(super) fn show(&mut self, number: u64) {
        let removed = self.strangers.remove(&number);
        self.leaving -= usize::from(removed.is_some_and(|one| one.leaving));
    }

    /// It is closed.
    pub(super) fn leave(&mut self, number: u64, from: IpAddr) {
        self.show(number);
        self.all -= 1;
        if let Some(open) = self.open.get_mut(&from) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(&from);
            }
        }
    }

    /// How many have shown what is asked for, and how many have not.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.all - self.strangers.len(), self.strangers.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most {
        all: 8,
        strangers: 3,
        per_address: 4,
    };

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[track_caller]
    fn admitted(places: &mut Places, from: IpAddr, now_ms: u64) -> u64 {
        match places.ask(from, now_ms) {
            Answer::Admitted(number) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn connections_leave_descriptors_for_files() {
        let cases = [
            (Some(128), (86, 21, 43)),
            (Some(1024), (768, 192, 384)),
            (Some(1 << 20), (1 << 18, 256, 1 << 17)),
            (None, (1 << 18, 256, 1 << 17)),
            // Not a server that works, but one that says so.
            (Some(0), (2, 1, 1)),
        ];
        for (descriptors, (all, strangers, per_address)) in cases {
            let want = Most {
                all,
                strangers,
                per_address,
            };
            assert_eq!(Most::of(descriptors), want, "{descriptors:?}");
        }
    }

    #[test]
    fn the_oldest_stranger_gives_way_once_it_has_had_its_time() {
        let mut places = Places::new(MOST);
        for now_ms in 0..3 {
            admitted(&mut places, HERE, now_ms);
        }
        assert_eq!(places.ask(HERE, 3), Answer::Wait(GRACE_MS));
        let later = GRACE_MS;
        let gives_way = Answer::GiveWay(0, Limit::Strangers);
        assert_eq!(places.ask(HERE, later), gives_way);
        // It need not have closed already.
        assert_eq!(admitted(&mut places, HERE, later), 3);
        places.leave(0, HERE);
        assert_eq!(places.count(), (0, 3));
    }

    #[test]
    fn who_has_shown_a_token_gives_no_way_and_takes_no_place_of_strangers() {
        let mut places = Places::new(MOST);
        for number in 0..7 {
            assert_eq!(admitted(&mut places, HERE, 0), number);
            places.show(number);
        }
        assert_eq!(admitted(&mut places, HERE, 0), 7);
        assert_eq!(places.count(), (7, 1));
        // Full: the only stranger gives way, and nobody is admitted before it has left.
        let gives_way = Answer::GiveWay(7, Limit::Connections);
        assert_eq!(places.ask(HERE, GRACE_MS), gives_way);
        let wait = Answer::Wait(2 * GRACE_MS);
        assert_eq!(places.ask(HERE, GRACE_MS), wait);
        places.leave(7, HERE);
        assert_eq!(admitted(&mut places, HERE, GRACE_MS), 8);
        places.show(8);
        let refused = Answer::Refused(Limit::Connections);
        assert_eq!(places.ask(HERE, 1 << 40), refused);
    }

    #[test]
    fn of_several_addresses_the_one_with_most_strangers_gives_way() {
        let mut places = Places::new(MOST);
        for (from, now_ms) in [(1, 0), (2, 1), (2, 2)] {
            admitted(&mut places, ip(from), now_ms);
        }
        let gives_way = Answer::GiveWay(1, Limit::Strangers);
        assert_eq!(places.ask(ip(3), 1_000), gives_way);
    }

    #[test]
    fn one_address_does_not_take_all_places() {
        let mut places = Places::new(MOST);
        for _ in 0..4 {
            let number = admitted(&mut places, ip(1), 0);
            places.show(number);
        }
        assert_eq!(places.ask(ip(1), 0), Answer::Refused(Limit::Address));
        admitted(&mut places, ip(2), 0);
        places.leave(0, ip(1));
        admitted(&mut places, ip(1), 0);
        assert_eq!(places.open.len(), 2);
    }

    #[test]
    fn nothing_is_left_of_who_has_gone() {
        let mut places = Places::new(MOST);
        for round in 0..100 {
            let number = admitted(&mut places, ip(round), 0);
            match round % 3 {
                0 => places.show(number),
                1 => assert_eq!(places.oldest(), Some(number)),
                _ => {}
            }
            places.leave(number, ip(round));
        }
        assert_eq!(places.oldest(), None);
        assert_eq!((places.count(), places.open.len()), ((0, 0), 0));
        assert_eq!(places.leaving, 0);
    }
}
