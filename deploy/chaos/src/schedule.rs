//! Which faults happen when: drawn from a seed, or read from a script. No clock and no process is
//! looked at here.

mod combination;
mod random;
mod script;

use std::fmt;

use super::victim::Victim;
use combination::combination;
use random::Random;
pub use script::parse;

/// What happens to a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// kill -9.
    Kill,
    /// SIGSTOP, and SIGCONT after a while.
    Stop,
    /// Stopped for most of the time.
    Slow,
    /// Its connections are cut: to the servers, and of a server to anybody.
    Cut,
    /// No file can be written, as on a full disk: of servers.
    Full,
}

impl FaultKind {
    pub const ALL: [Self; 5] = [Self::Kill, Self::Stop, Self::Slow, Self::Cut, Self::Full];

    /// As in scripts and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Slow => "slow",
            Self::Cut => "cut",
            Self::Full => "full",
        }
    }

    /// All words, for people.
    pub fn words() -> String {
        Self::ALL.map(Self::word).join(", ")
    }

    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Whether one would end or change the other at the same victim.
    pub fn clashes(self, other: Self) -> bool {
        let signals = |kind| matches!(kind, Self::Stop | Self::Slow);
        self != Self::Kill && (self == other || signals(self) && signals(other))
    }
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What is sent does not arrive, and nobody is told.
    Silent,
    /// It breaks.
    Reset,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Seconds since training began.
    pub at: f64,
    pub kind: FaultKind,
    pub victim: Victim,
    /// Seconds; 0 of a kill.
    pub lasts: f64,
    /// Of a cut.
    pub way: Way,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.victim)?;
        match (self.kind, self.way) {
            (FaultKind::Kill, _) => Ok(()),
            (FaultKind::Cut, Way::Reset) => write!(f, " {:.1}s reset", self.lasts),
            (FaultKind::Cut, Way::Silent)
            | (FaultKind::Stop | FaultKind::Slow | FaultKind::Full, _) => {
                write!(f, " {:.1}s", self.lasts)
            }
        }
    }
}

/// What faults are drawn for.
#[derive(Clone, Debug)]
pub struct Field {
    pub servers: u32,
    /// Ranks of each group.
    pub groups: Vec<u32>,
    /// Seconds.
    pub lease: f64,
    pub kinds: Vec<FaultKind>,
    /// Servers are hurt, too.
    pub hurt_servers: bool,
    /// Half of the time several faults come within a lease.
    pub combinations: bool,
}

/// Faults without end, in the order of time: one, or several within a lease, every `every` seconds on
/// average.
pub fn drawn(field: Field, seed: u64, every: f64) -> impl Iterator<Item = Fault> {
    let mut random = Random::new(seed);
    let gap = move |random: &mut Random| {
        // Far apart or close together, but neither all at once nor never.
        let gap = -(1.0 - random.fraction()).ln();
        every * gap.clamp(0.2, 2.6)
    };
    let mut next = gap(&mut random);
    // What is drawn and does not come before everything else that is.
    let mut drawn: Vec<Fault> = Vec::new();
    std::iter::from_fn(move || {
        while drawn.first().is_none_or(|first| first.at > next) {
            if field.combinations && random.fraction() < 0.5 {
                drawn.extend(combination(&field, &mut random, next));
            } else {
                drawn.push(draw(&field, &mut random, next));
            }
            drawn.sort_by(|a, b| a.at.total_cmp(&b.at));
            next += gap(&mut random);
        }
        Some(drawn.remove(0))
    })
}

fn draw(field: &Field, random: &mut Random, at: f64) -> Fault {
    let kind = field.kinds[random.below(field.kinds.len())];
    let victim = match kind {
        // Of a rank nothing is seen any more when it cannot write.
        FaultKind::Full if random.fraction() < 0.5 => Victim::Servers,
        FaultKind::Full => Victim::Server(random.below(field.servers as usize) as u32),
        FaultKind::Kill | FaultKind::Stop | FaultKind::Slow | FaultKind::Cut => {
            draw_victim(field, random)
        }
    };
    let long = random.fraction() < 0.5;
    let part = random.fraction();
    let lasts = match (kind, long) {
        (FaultKind::Kill, _) => 0.0,
        (FaultKind::Slow | FaultKind::Full, _) => 2.0 + 3.0 * part,
        // Enough for the lease to run out, or surely not.
        (_, true) => field.lease * (1.3 + 1.2 * part),
        (_, false) => field.lease * (0.2 + 0.3 * part),
    };
    Fault {
        at,
        kind,
        victim,
        lasts,
        way: draw_way(random),
    }
}

fn draw_way(random: &mut Random) -> Way {
    match random.below(3) {
        0 => Way::Reset,
        _ => Way::Silent,
    }
}

fn draw_victim(field: &Field, random: &mut Random) -> Victim {
    let dice = random.fraction();
    let group = random.below(field.groups.len());
    let rank = random.below(field.groups[group] as usize) as u32;
    let server = random.below(field.servers as usize) as u32;
    let group = group as u32;
    match dice {
        _ if !field.hurt_servers && dice < 0.8 => Victim::Rank { group, rank },
        _ if !field.hurt_servers => Victim::Group(group),
        _ if dice < 0.45 => Victim::Rank { group, rank },
        _ if dice < 0.57 => Victim::Group(group),
        _ if dice < 0.87 => Victim::Server(server),
        _ => Victim::Coordinator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field() -> Field {
        Field {
            servers: 3,
            groups: vec![2, 2, 2],
            lease: 2.0,
            kinds: FaultKind::ALL.to_vec(),
            hurt_servers: true,
            combinations: false,
        }
    }

    fn together() -> Field {
        Field {
            combinations: true,
            ..field()
        }
    }

    #[test]
    fn a_seed_always_draws_the_same() {
        let take = |seed| drawn(together(), seed, 5.0).take(100).collect::<Vec<_>>();
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }

    #[test]
    fn all_kinds_and_victims_come_up_at_the_pace_that_is_asked_for() {
        let faults: Vec<Fault> = drawn(field(), 1, 5.0).take(1000).collect();
        for kind in FaultKind::ALL {
            let of = faults.iter().filter(|fault| fault.kind == kind).count();
            assert!((120..280).contains(&of), "{of} of {kind:?}");
        }
        let servers = |fault: &&Fault| matches!(fault.victim, Victim::Server(_));
        assert!(faults.iter().filter(servers).count() > 200);
        assert!(faults.iter().any(|f| f.victim == Victim::Coordinator));
        let mean = faults.last().unwrap().at / 1000.0;
        assert!((4.0..6.0).contains(&mean), "{mean}");
    }

    #[test]
    fn several_come_within_a_lease_and_all_in_the_order_of_time() {
        let faults: Vec<Fault> = drawn(together(), 2, 30.0).take(2000).collect();
        assert!(faults.is_sorted_by(|a, b| a.at <= b.at));
        let near = |two: &&[Fault]| two[1].at - two[0].at <= 2.0;
        let near = faults.windows(2).filter(near).count();
        assert!((500..1500).contains(&near), "{near}");
        let has = |victim: &dyn Fn(&Victim) -> bool| faults.iter().any(|f| victim(&f.victim));
        assert!(has(&|v| *v == Victim::All), "everything at once");
        assert!(has(&|v| *v == Victim::Servers));
        assert!(has(&|v| matches!(v, Victim::Node(_))));
        assert!(has(&|v| matches!(v, Victim::Primary(_))));
        // The next one comes while the coordinator is cut off.
        let cut = |two: &[Fault]| {
            let (first, second) = (two[0], two[1]);
            (first.kind, first.victim) == (FaultKind::Cut, Victim::Coordinator)
                && second.kind == FaultKind::Kill
                && matches!(second.victim, Victim::Server(_))
                && second.at < first.at + first.lasts.min(2.0)
        };
        assert!(faults.windows(2).any(cut));
    }

    #[test]
    fn combinations_are_made_of_the_kinds_that_are_asked_for() {
        let field = Field {
            kinds: vec![FaultKind::Kill, FaultKind::Cut],
            ..together()
        };
        let faults: Vec<Fault> = drawn(field, 4, 5.0).take(500).collect();
        assert!(
            faults
                .iter()
                .all(|f| f.kind == FaultKind::Kill || f.kind == FaultKind::Cut)
        );
        let lone = Field {
            servers: 1,
            groups: vec![1],
            ..together()
        };
        for fault in drawn(lone, 4, 5.0).take(500) {
            if let Victim::Server(server) | Victim::Node(server) | Victim::Primary(server) =
                fault.victim
            {
                assert_eq!(server, 0, "{fault}");
            }
        }
    }

    #[test]
    fn what_ought_to_be_noticed_outlasts_the_lease_and_the_rest_does_not() {
        for fault in drawn(field(), 3, 1.0).take(500) {
            if matches!(fault.kind, FaultKind::Stop | FaultKind::Cut) {
                assert!(fault.lasts <= 1.0 || fault.lasts >= 2.6, "{fault}");
            }
        }
    }

    #[test]
    fn servers_may_be_left_alone() {
        let field = Field {
            hurt_servers: false,
            kinds: vec![FaultKind::Kill, FaultKind::Stop],
            ..field()
        };
        let hurt = |f: Fault| matches!(f.victim, Victim::Server(_) | Victim::Coordinator);
        assert!(!drawn(field, 5, 1.0).take(300).any(hurt));
    }

    #[test]
    fn only_what_changes_the_other_clashes() {
        for (one, other, clash) in [
            (FaultKind::Kill, FaultKind::Stop, false),
            (FaultKind::Kill, FaultKind::Kill, false),
            (FaultKind::Stop, FaultKind::Slow, true),
            (FaultKind::Slow, FaultKind::Stop, true),
            (FaultKind::Stop, FaultKind::Cut, false),
            (FaultKind::Cut, FaultKind::Cut, true),
            (FaultKind::Full, FaultKind::Full, true),
            (FaultKind::Full, FaultKind::Stop, false),
        ] {
            assert_eq!(one.clashes(other), clash, "{one:?} {other:?}");
        }
    }
}
