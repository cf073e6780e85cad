//! Which faults come together in a run.

use tradewind_common::policy::MomentumSpec;
use tradewind_common::spec::ConsistencySpec::{Async, Bounded, Sync};

use super::Scenario;

/// Mixes of faults that rounds go through.
pub const MIXES: u64 = 9;

/// Whether groups may die or leave for good in the mix of a round. One that dies by its profile
/// could be the last there.
pub fn ends_groups(round: u64) -> bool {
    matches!(round % MIXES, 1 | 3 | 5 | 6 | 8)
}

impl Scenario {
    /// What a seed decides where a test says nothing else: each of five consistency policies in turn,
    /// every second time with overlap, and with answers that are differences.
    pub fn of_seed(seed: u64) -> Self {
        let bounded = |staleness_bound| Bounded { staleness_bound };
        let consistency = match seed % 5 {
            0 => Sync,
            1 => bounded(0),
            2 => bounded(1),
            3 => bounded(3),
            _ => Async,
        };
        let mut scenario = Self::random(seed, consistency);
        if seed / 5 % 2 == 1 {
            scenario = scenario.with_overlap();
        }
        if seed / 10 % 2 == 1 {
            scenario = scenario.with_differences();
        }
        scenario
    }

    /// The same with overlap, with answers that are differences, each if it goes together with the
    /// rest, and with faults, round by round.
    pub fn varied(mut self, round: u64) -> Self {
        let (optimizer, policies) = (self.optimizer, self.policies);
        let compensates = policies.staleness.capabilities().compensates();
        let measured = matches!(policies.momentum, MomentumSpec::ClosedLoop(_));
        if measured {
            self.servers = self.servers.max(2);
            self.replication = 2;
        }
        let mut scenario = match round % 2 {
            1 if self.local_steps == 1 => self.with_overlap(),
            _ => self,
        };
        if round / 2 % 2 == 1
            && !compensates
            && !measured
            && !optimizer.capabilities().takes_values()
        {
            scenario = scenario.with_differences();
        }
        match round % MIXES {
            0 => scenario,
            1 => scenario.with_dying_ranks(),
            // What is measured is known from what copies are told.
            2 => scenario.with_failing_servers(if measured { 2 } else { 1 }),
            3 => scenario.with_failing_servers(2).with_dying_ranks(),
            4 => scenario
                .with_failing_servers(3)
                .with_failing_coordinator()
                .with_failing_disk(),
            5 => scenario
                .with_failing_servers(2)
                .with_groups_that_come_and_go(),
            6 => scenario
                .with_failing_servers(2)
                .with_dying_ranks()
                .with_resume(),
            7 => scenario.with_combined_faults(2),
            _ => scenario.with_combined_faults(3).with_dying_ranks(),
        }
    }
}
