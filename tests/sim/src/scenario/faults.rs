//! What fails in a run, and when: drawn from its seed.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{GroupPlan, Scenario, Stall};
use crate::party::Party;
use crate::random_stream;
use tradewind_common::spec::ConsistencySpec;
use tradewind_common::{GroupId, ServerId};

/// Something that fails.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A rank's process dies; what it had sent still arrives. It is started again after a time, or
    /// never. A `loud` death resets its connections; otherwise only leases tell.
    KillRank {
        /// Its group.
        group: u32,
        /// Its number there.
        rank: u32,
        /// Until it is started again.
        down_us: Option<u64>,
        /// Whether connections are reset.
        loud: bool,
    },
    /// All ranks of a group die.
    KillGroup {
        /// Which.
        group: u32,
        /// Until it is started again.
        down_us: Option<u64>,
        /// Whether connections are reset.
        loud: bool,
    },
    /// A rank does nothing for a while, and then goes on as if nothing had been.
    HangRank {
        /// Its group.
        group: u32,
        /// Its number there.
        rank: u32,
        /// How long.
        for_us: u64,
    },
    /// A server's process dies, and what it held is gone.
    KillServer {
        /// Which.
        server: u32,
        /// Until it is started again.
        down_us: Option<u64>,
        /// Whether connections are reset.
        loud: bool,
    },
    /// A server does nothing for a while, and then goes on as if nothing had been.
    HangServer {
        /// Which.
        server: u32,
        /// How long.
        for_us: u64,
    },
    /// A server's connection to the coordinator breaks.
    BreakBond {
        /// Which.
        server: u32,
    },
    /// The coordinator dies and is started again from what it wrote down.
    KillCoordinator {
        /// Until then.
        down_us: u64,
        /// Whether connections are reset.
        loud: bool,
    },
    /// The coordinator does nothing for a while.
    HangCoordinator {
        /// How long.
        for_us: u64,
    },
    /// A second coordinator is started while the first lives.
    RivalCoordinator,
    /// Two sides of the network cannot reach each other for a while.
    Cut {
        /// One side.
        side: Vec<Party>,
        /// The other; `None` for everybody else.
        other: Option<Vec<Party>>,
        /// How long.
        for_us: u64,
    },
    /// Writes take so much longer for a while.
    SlowDisk {
        /// How long.
        for_us: u64,
        /// By how much.
        by_us: u64,
    },
    /// Nothing can be written for a while.
    FailDisk {
        /// How long.
        for_us: u64,
    },
    /// A file of the newest snapshot is not any more what was written.
    Damage,
    /// Single writes fail for a while. Some of them have been made all the same.
    BadDisk {
        /// How long.
        for_us: u64,
        /// Every so many, on average.
        one_in: u32,
    },
    /// Listings of folders are old for a while where their reader has not changed the folder itself.
    OldListings {
        /// How long.
        for_us: u64,
        /// How old, at most.
        by_us: u64,
    },
    /// What one server sends another is late for a while; the other direction is as ever.
    SlowWay {
        /// Who sends.
        from: u32,
        /// Who receives.
        to: u32,
        /// How long.
        for_us: u64,
        /// By how much.
        by_us: u64,
    },
    /// A server applies what it is sent as a copy, and confirms nothing of it for a while, or until
    /// its process ends.
    MuteCopy {
        /// Which.
        server: u32,
        /// How long.
        for_us: Option<u64>,
    },
    /// A person adds a group, if the policy lets groups come.
    Attach {
        /// What it is like; it starts so long after it may.
        plan: GroupPlan,
    },
    /// A person asks a group to leave.
    Drain {
        /// Which.
        group: u32,
    },
    /// Everything ends, and the run is resumed on other servers with other groups.
    Resume {
        /// Servers.
        servers: u32,
        /// Groups.
        groups: Vec<GroupPlan>,
    },
}

/// A fault and its time.
#[derive(Clone, Debug)]
pub struct Planned {
    /// When.
    pub at_us: u64,
    /// What.
    pub fault: Fault,
}

impl Planned {
    /// A fault at its time.
    pub fn new(at_us: u64, fault: Fault) -> Self {
        Self { at_us, fault }
    }
}

/// Faults come in this time, microseconds: most runs are under way, a few are over.
pub(super) const SPAN_US: u64 = 1_200_000;

impl Scenario {
    pub(super) fn plan(&mut self, at_us: u64, fault: Fault) {
        self.faults.push(Planned::new(at_us, fault));
    }

    /// The same with one to three deaths of groups or ranks, most of which are followed by a new
    /// life, and now and then a group that comes late. The last group never dies for good.
    pub fn with_dying_ranks(mut self) -> Self {
        let mut rng = random_stream(self.seed, 1);
        let mortal = self.groups.len() as u32 - 1;
        for _ in 0..rng.random_range(1..=3) {
            let group = rng.random_range(0..=mortal);
            let at_us = rng.random_range(20_000..SPAN_US);
            let down_us = Some(rng.random_range(1_000..600_000));
            let down_us = down_us.filter(|_| group == mortal || rng.random_bool(0.8));
            let loud = rng.random_bool(0.6);
            let rank = rng.random_range(0..self.groups[group as usize].size);
            let fault = match rng.random_range(0..4) {
                0 => Fault::KillGroup {
                    group,
                    down_us,
                    loud,
                },
                1 => Fault::HangRank {
                    group,
                    rank,
                    for_us: rng.random_range(50_000..1_200_000),
                },
                _ => Fault::KillRank {
                    group,
                    rank,
                    down_us,
                    loud,
                },
            };
            self.plan(at_us, fault);
            // Its last words arrive when a new life speaks already.
            if rng.random_bool(0.4) {
                self.network.stalls.push(Stall {
                    group,
                    from_us: at_us.saturating_sub(30_000),
                    until_us: at_us,
                    held_us: rng.random_range(300_000..1_500_000),
                });
            }
        }
        self.start_grace_ms = if rng.random_bool(0.3) { 100 } else { 2_000 };
        self.reform_grace_ms = rng.random_range(50..400);
        if rng.random_bool(0.3) {
            self.groups[0].start_us += 400_000;
        }
        self
    }

    /// The same on `replication` to four servers, some of which die, hang or are cut off, whenever it
    /// is: also while the fault before is not made good.
    pub fn with_failing_servers(mut self, replication: u32) -> Self {
        let mut rng = random_stream(self.seed, 6);
        self.replication = replication;
        self.servers = rng.random_range(replication.max(2)..=4);
        self.folder = true;
        self.stops_on_loss = replication > 1 && rng.random_bool(0.2);
        self.snapshot_ms = [0, 150, 400][rng.random_range(0..3)];
        for _ in 0..rng.random_range(1..=4) {
            let at_us = rng.random_range(10_000..SPAN_US);
            let server = rng.random_range(0..self.servers);
            let fault = match rng.random_range(0..11) {
                10 => Fault::BreakBond { server },
                0..=4 => Fault::KillServer {
                    server,
                    down_us: Some(rng.random_range(1_000..900_000))
                        .filter(|_| rng.random_bool(0.8)),
                    loud: rng.random_bool(0.7),
                },
                5..=7 => Fault::HangServer {
                    server,
                    for_us: rng.random_range(20_000..1_500_000),
                },
                _ => self.draw_cut(&mut rng),
            };
            self.plan(at_us, fault);
        }
        self
    }

    /// The same with a coordinator that dies, hangs or has a rival.
    pub fn with_failing_coordinator(mut self) -> Self {
        let mut rng = random_stream(self.seed, 7);
        self.folder = true;
        for _ in 0..rng.random_range(1..=2) {
            let at_us = rng.random_range(10_000..SPAN_US);
            let fault = match rng.random_range(0..6) {
                0..=2 => Fault::KillCoordinator {
                    down_us: rng.random_range(1_000..800_000),
                    loud: rng.random_bool(0.7),
                },
                3 => Fault::HangCoordinator {
                    for_us: rng.random_range(20_000..1_200_000),
                },
                _ => Fault::RivalCoordinator,
            };
            self.plan(at_us, fault);
            // A coordinator that is taken for dead is followed while it hangs.
            if rng.random_bool(0.3) {
                self.plan(at_us + 20_000, Fault::RivalCoordinator);
            }
        }
        self
    }

    /// The same with disks that are slow or fail, and damaged snapshots.
    pub fn with_failing_disk(mut self) -> Self {
        let mut rng = random_stream(self.seed, 8);
        self.folder = true;
        self.snapshot_ms = [100, 200][rng.random_range(0..2)];
        for _ in 0..rng.random_range(1..=3) {
            let at_us = rng.random_range(10_000..SPAN_US);
            let for_us = rng.random_range(20_000..500_000);
            let fault = self.draw_disk(&mut rng, for_us);
            self.plan(at_us, fault);
        }
        self
    }

    pub(super) fn draw_disk(&self, rng: &mut ChaCha8Rng, for_us: u64) -> Fault {
        match rng.random_range(0..6) {
            0 => Fault::SlowDisk {
                for_us,
                by_us: rng.random_range(1_000..300_000),
            },
            1 => Fault::FailDisk { for_us },
            2 | 3 => Fault::BadDisk {
                for_us: 2 * for_us,
                one_in: rng.random_range(2..6),
            },
            4 => Fault::OldListings {
                for_us: 2 * for_us,
                by_us: rng.random_range(10_000..600_000),
            },
            _ => Fault::Damage,
        }
    }

    /// The same with groups that are asked to leave, all but the last, and where the policy lets groups
    /// come, one or two that do.
    pub fn with_groups_that_come_and_go(mut self) -> Self {
        let mut rng = random_stream(self.seed, 10);
        let last = self.groups.len() as u32 - 1;
        for _ in 0..rng.random_range(1..=2) {
            let group = rng.random_range(0..last);
            let at_us = rng.random_range(0..SPAN_US / 2);
            self.plan(at_us, Fault::Drain { group });
        }
        if self.consistency != ConsistencySpec::Sync {
            for _ in 0..rng.random_range(1..=2) {
                let plan = GroupPlan {
                    size: rng.random_range(1..=2),
                    step_us: rng.random_range(5_000..40_000),
                    start_us: rng.random_range(0..100_000),
                };
                let at_us = rng.random_range(0..SPAN_US / 2);
                self.plan(at_us, Fault::Attach { plan });
            }
        }
        self
    }

    /// The same with a run that ends and is resumed elsewhere.
    pub fn with_resume(mut self) -> Self {
        let mut rng = random_stream(self.seed, 9);
        self.folder = true;
        self.snapshot_ms = [60, 150][rng.random_range(0..2)];
        let servers = rng.random_range(self.replication.max(1)..=4);
        let groups = (0..rng.random_range(1..=3)).map(|_| GroupPlan {
            size: rng.random_range(1..=3),
            step_us: rng.random_range(5_000..40_000),
            start_us: rng.random_range(0..60_000),
        });
        let groups = groups.collect();
        let fault = Fault::Resume { servers, groups };
        let at_us = rng.random_range(150_000..SPAN_US);
        // Others are about servers and groups of before.
        self.faults.retain(|planned| planned.at_us < at_us);
        self.plan(at_us, fault);
        self
    }

    pub(super) fn draw_cut(&self, rng: &mut ChaCha8Rng) -> Fault {
        let servers = (0..self.servers).map(|id| Party::Server(ServerId(id)));
        let groups = (0..self.groups.len() as u32).map(|id| Party::Group(GroupId(id)));
        let all: Vec<Party> = servers.chain([Party::Coordinator]).chain(groups).collect();
        let mut pick = |chance| -> Vec<Party> {
            let mut picked = all.clone();
            picked.retain(|_| rng.random_bool(chance));
            picked
        };
        let (side, other) = (pick(0.3), pick(0.5));
        let other = rng.random_bool(0.5).then_some(other);
        Fault::Cut {
            side,
            other,
            for_us: rng.random_range(10_000..1_300_000),
        }
    }
}
