//! Several faults within a lease: what no single one finds.

use super::random::Random;
use super::{Fault, FaultKind, Field, Way, draw, draw_way};
use crate::victim::Victim;

/// How often one is drawn again that is made of other kinds than those that are asked for.
const TRIES: usize = 32;

/// One draws the faults of a combination that begins at a time.
type Drawing = fn(&Field, &mut Random, f64) -> Vec<Fault>;

const ALL: &[Drawing] = &[
    cut_and_kill,
    stop_cut_and_kill,
    two_servers,
    all_servers,
    everything,
    node,
    full_and_kill,
    stop_and_successor,
    two_of_any,
    three_of_any,
];

/// Faults from `at` on that are of the kinds that are asked for; a single one if none is found.
pub(super) fn combination(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    for _ in 0..TRIES {
        let faults = match field.hurt_servers {
            true => ALL[random.below(ALL.len())](field, random, at),
            false => two_of_any(field, random, at),
        };
        if faults.iter().all(|fault| field.kinds.contains(&fault.kind)) {
            return faults;
        }
    }
    vec![draw(field, random, at)]
}

fn kill(at: f64, victim: Victim) -> Fault {
    Fault {
        at,
        kind: FaultKind::Kill,
        victim,
        lasts: 0.0,
        way: Way::Silent,
    }
}

fn lasting(kind: FaultKind, at: f64, victim: Victim, lasts: f64) -> Fault {
    Fault {
        kind,
        lasts,
        ..kill(at, victim)
    }
}

fn server(field: &Field, random: &mut Random) -> u32 {
    random.below(field.servers as usize) as u32
}

/// Two of them; the same one twice where there is no other.
fn two(field: &Field, random: &mut Random) -> (u32, u32) {
    let first = server(field, random);
    let other = (field.servers.max(2) - 1) as usize;
    let apart = 1 + random.below(other) as u32;
    (first, (first + apart) % field.servers)
}

/// The coordinator decides what it cannot see, and who could have contradicted it dies.
fn cut_and_kill(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    let lasts = field.lease * (1.3 + 1.2 * random.fraction());
    let cut = Fault {
        way: draw_way(random),
        ..lasting(FaultKind::Cut, at, Victim::Coordinator, lasts)
    };
    let later = at + field.lease * random.fraction();
    vec![cut, kill(later, Victim::Server(server(field, random)))]
}

/// The same after a silence of one that is over before its lease is.
fn stop_cut_and_kill(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    let lease = field.lease;
    let (first, other) = two(field, random);
    let cut_at = at + lease * (0.2 + 0.4 * random.fraction());
    let kill_at = cut_at + lease * (0.3 + 0.6 * random.fraction());
    vec![
        lasting(FaultKind::Stop, at, Victim::Server(first), lease * 0.75),
        lasting(FaultKind::Cut, cut_at, Victim::Coordinator, lease * 2.5),
        kill(kill_at, Victim::Server(other)),
    ]
}

fn two_servers(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    let (first, other) = two(field, random);
    let later = at + field.lease * random.fraction();
    let mut fault = |at, server| {
        let lasts = field.lease * (0.5 + 2.0 * random.fraction());
        let victim = Victim::Server(server);
        match random.below(4) {
            0 => lasting(FaultKind::Stop, at, victim, lasts),
            1 => Fault {
                way: draw_way(random),
                ..lasting(FaultKind::Cut, at, victim, lasts)
            },
            _ => kill(at, victim),
        }
    };
    vec![fault(at, first), fault(later, other)]
}

fn all_servers(_: &Field, _: &mut Random, at: f64) -> Vec<Fault> {
    vec![kill(at, Victim::Servers)]
}

fn everything(_: &Field, _: &mut Random, at: f64) -> Vec<Fault> {
    vec![kill(at, Victim::All)]
}

/// A machine with a server and a group on it dies.
fn node(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    let nodes = (field.servers as usize).min(field.groups.len());
    vec![kill(at, Victim::Node(random.below(nodes) as u32))]
}

fn full_and_kill(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    let lasts = field.lease * (1.0 + 2.0 * random.fraction());
    let full = lasting(FaultKind::Full, at, Victim::Servers, lasts);
    let later = at + field.lease * random.fraction();
    let victim = match random.below(2) {
        0 => Victim::Coordinator,
        _ => Victim::Server(server(field, random)),
    };
    vec![full, kill(later, victim)]
}

/// A primary is silent until it has been expelled, and goes on, with everything it had, at the moment
/// when its successor dies. The launcher would kill it a little later.
fn stop_and_successor(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    let shard = Victim::Primary(server(field, random));
    let lasts = field.lease * (1.05 + 0.15 * random.fraction());
    vec![
        lasting(FaultKind::Stop, at, shard, lasts),
        kill(at + lasts, shard),
    ]
}

fn two_of_any(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    several(field, random, at, 2)
}

fn three_of_any(field: &Field, random: &mut Random, at: f64) -> Vec<Fault> {
    several(field, random, at, 3)
}

fn several(field: &Field, random: &mut Random, at: f64, count: usize) -> Vec<Fault> {
    let later = |random: &mut Random| at + field.lease * random.fraction();
    (0..count)
        .map(|number| {
            let at = if number == 0 { at } else { later(random) };
            draw(field, random, at)
        })
        .collect()
}
