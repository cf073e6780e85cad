//! Faults that come together: two or three within a lease, at any moment, in whatever state the one
//! before has left everything.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::faults::SPAN_US;
use super::{Fault, LEASE_MS, PATIENCE_MS, Scenario};
use crate::party::Party;
use crate::random_stream;
use tradewind_common::ServerId;

/// A lease, microseconds: all faults of a combination begin within one.
const LEASE_US: u64 = LEASE_MS * 1_000;

/// Faults that come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// A server stops for less than a lease; the coordinator is cut off from everybody for more than
    /// two; another server dies meanwhile.
    CutAndKill,
    /// All servers but one die.
    AllButOne,
    /// All servers die.
    All,
    /// A node dies: a server, and a group.
    Node,
    /// Nothing can be written, and a server or the coordinator dies.
    FullDisk,
    /// Single writes fail, listings are old, and the coordinator dies.
    BadDisk,
    /// A server stops; another dies or stops before it goes on.
    StopAndContinue,
    /// What one server sends another is late, and one of them dies.
    SlowWay,
    /// A server confirms nothing of what it is sent as a copy, and maybe another dies.
    MuteCopy,
    /// Any two or three.
    Any,
}

/// Every combination.
pub const COMBINATIONS: [Combination; 10] = [
    Combination::CutAndKill,
    Combination::AllButOne,
    Combination::All,
    Combination::Node,
    Combination::FullDisk,
    Combination::BadDisk,
    Combination::StopAndContinue,
    Combination::SlowWay,
    Combination::MuteCopy,
    Combination::Any,
];

impl Scenario {
    /// The same on `replication` to four servers, at least three where there are copies, with one or
    /// two combinations of faults, drawn from all.
    pub fn with_combined_faults(self, replication: u32) -> Self {
        let which = random_stream(self.seed, 12).random_range(0..COMBINATIONS.len());
        self.with_combination(replication, COMBINATIONS[which])
    }

    /// The same with one combination, and every second time with any two or three faults after it.
    pub fn with_combination(mut self, replication: u32, which: Combination) -> Self {
        let mut rng = random_stream(self.seed, 13);
        self.replication = replication;
        let least = if replication > 1 { 3 } else { 2 };
        self.servers = rng.random_range(replication.max(least)..=4);
        self.folder = true;
        self.stops_on_loss = replication > 1 && rng.random_bool(0.2);
        self.snapshot_ms = [0, 150, 400][rng.random_range(0..3)];
        self.lasts();
        let at_us = rng.random_range(50_000..SPAN_US);
        self.combine(at_us, which, &mut rng);
        if rng.random_bool(0.5) {
            let later_us = at_us + rng.random_range(LEASE_US..3 * LEASE_US);
            self.combine(later_us, Combination::Any, &mut rng);
        }
        self
    }

    /// The run is long enough for what comes late to be missed.
    fn lasts(&mut self) {
        self.samples *= 2;
        for step in &mut self.batch_ramp {
            step.samples *= 2;
        }
    }

    fn combine(&mut self, at_us: u64, which: Combination, rng: &mut ChaCha8Rng) {
        let mut servers: Vec<u32> = (0..self.servers).collect();
        servers.shuffle(rng);
        let within = |rng: &mut ChaCha8Rng| at_us + rng.random_range(0..LEASE_US);
        match which {
            Combination::CutAndKill => {
                let (stopped, killed) = (servers[0], servers[1]);
                self.plan(
                    at_us,
                    Fault::HangServer {
                        server: stopped,
                        for_us: rng.random_range(LEASE_US / 2..LEASE_US),
                    },
                );
                let cut_us = at_us + rng.random_range(0..LEASE_US * 6 / 10);
                self.plan(
                    cut_us,
                    Fault::Cut {
                        side: vec![Party::Coordinator],
                        other: None,
                        for_us: rng.random_range(2 * LEASE_US..3 * LEASE_US),
                    },
                );
                let kill_us = at_us + rng.random_range(LEASE_US / 2..LEASE_US * 5 / 4);
                self.kill(kill_us, killed, rng);
            }
            Combination::AllButOne => {
                for server in servers.iter().skip(1) {
                    let at_us = within(rng);
                    self.kill(at_us, *server, rng);
                }
            }
            Combination::All => {
                for server in servers {
                    let at_us = match rng.random_bool(0.5) {
                        true => at_us,
                        false => within(rng),
                    };
                    self.kill(at_us, server, rng);
                }
                if rng.random_bool(0.3) {
                    self.kill_coordinator(at_us, rng);
                }
            }
            Combination::Node => {
                self.kill(at_us, servers[0], rng);
                self.kill_group(at_us, rng);
                if rng.random_bool(0.3) {
                    let at_us = within(rng);
                    self.kill(at_us, servers[1], rng);
                }
            }
            Combination::FullDisk => {
                let for_us = rng.random_range(LEASE_US / 4..2 * LEASE_US);
                self.plan(at_us, Fault::FailDisk { for_us });
                let at_us = within(rng);
                match rng.random_bool(0.5) {
                    true => self.kill(at_us, servers[0], rng),
                    false => self.kill_coordinator(at_us, rng),
                }
            }
            Combination::BadDisk => {
                let for_us = rng.random_range(LEASE_US..3 * LEASE_US);
                let one_in = rng.random_range(2..6);
                let by_us = rng.random_range(10_000..2 * LEASE_US);
                self.plan(at_us, Fault::BadDisk { for_us, one_in });
                self.plan(at_us, Fault::OldListings { for_us, by_us });
                let killed_us = within(rng);
                self.kill_coordinator(killed_us, rng);
                if rng.random_bool(0.5) {
                    let at_us = within(rng);
                    self.kill(at_us, servers[0], rng);
                }
            }
            Combination::StopAndContinue => {
                let for_us = rng.random_range(LEASE_US / 2..PATIENCE_MS * 1_500);
                let server = servers[0];
                self.plan(at_us, Fault::HangServer { server, for_us });
                let at_us = within(rng);
                match rng.random_bool(0.5) {
                    true => self.kill(at_us, servers[1], rng),
                    false => {
                        let for_us = rng.random_range(LEASE_US / 2..PATIENCE_MS * 1_500);
                        let server = servers[1];
                        self.plan(at_us, Fault::HangServer { server, for_us });
                    }
                }
            }
            Combination::SlowWay => {
                self.slow_ways(at_us, &servers, rng);
                let at_us = within(rng);
                self.kill(at_us, servers[rng.random_range(0..2)], rng);
            }
            Combination::MuteCopy => {
                let for_us = rng.random_bool(0.5);
                let for_us = for_us.then(|| rng.random_range(LEASE_US / 2..5 * LEASE_US));
                let server = servers[0];
                self.plan(at_us, Fault::MuteCopy { server, for_us });
                if rng.random_bool(0.5) {
                    let at_us = within(rng);
                    self.kill(at_us, servers[rng.random_range(0..2)], rng);
                }
            }
            Combination::Any => {
                for _ in 0..rng.random_range(2..=3) {
                    let at_us = within(rng);
                    let server = servers[rng.random_range(0..2)];
                    self.any(at_us, server, rng);
                }
            }
        }
    }

    fn any(&mut self, at_us: u64, server: u32, rng: &mut ChaCha8Rng) {
        let for_us = rng.random_range(LEASE_US / 4..PATIENCE_MS * 1_500);
        match rng.random_range(0..11) {
            0..=2 => self.kill(at_us, server, rng),
            3 | 4 => self.plan(at_us, Fault::HangServer { server, for_us }),
            5 => {
                let cut = self.draw_cut(rng);
                self.plan(at_us, cut);
            }
            6 => self.kill_coordinator(at_us, rng),
            7 => self.plan(at_us, Fault::HangCoordinator { for_us }),
            8 => self.kill_group(at_us, rng),
            9 => {
                let disk = self.draw_disk(rng, for_us / 2);
                self.plan(at_us, disk);
            }
            _ => self.plan(at_us, Fault::BreakBond { server }),
        }
    }

    /// In both directions, or in one only.
    fn slow_ways(&mut self, at_us: u64, servers: &[u32], rng: &mut ChaCha8Rng) {
        let (from, to) = (servers[0], servers[1]);
        let for_us = rng.random_range(LEASE_US..5 * LEASE_US);
        if rng.random_bool(0.3) {
            let party = |server| Party::Server(ServerId(server));
            let (side, other) = (vec![party(from)], Some(vec![party(to)]));
            return self.plan(
                at_us,
                Fault::Cut {
                    side,
                    other,
                    for_us,
                },
            );
        }
        let by_us = rng.random_range(LEASE_US / 4..3 * LEASE_US);
        self.plan(
            at_us,
            Fault::SlowWay {
                from,
                to,
                for_us,
                by_us,
            },
        );
    }

    fn kill(&mut self, at_us: u64, server: u32, rng: &mut ChaCha8Rng) {
        let down_us = Some(rng.random_range(1_000..900_000));
        let down_us = down_us.filter(|_| rng.random_bool(0.85));
        let loud = rng.random_bool(0.7);
        let fault = Fault::KillServer {
            server,
            down_us,
            loud,
        };
        self.plan(at_us, fault);
    }

    fn kill_coordinator(&mut self, at_us: u64, rng: &mut ChaCha8Rng) {
        let down_us = rng.random_range(1_000..800_000);
        let loud = rng.random_bool(0.7);
        self.plan(at_us, Fault::KillCoordinator { down_us, loud });
    }

    fn kill_group(&mut self, at_us: u64, rng: &mut ChaCha8Rng) {
        let group = rng.random_range(0..self.groups.len() as u32);
        let down_us = Some(rng.random_range(1_000..600_000));
        let loud = rng.random_bool(0.6);
        let fault = Fault::KillGroup {
            group,
            down_us,
            loud,
        };
        self.plan(at_us, fault);
    }
}
