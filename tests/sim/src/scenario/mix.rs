//! Which faults come together in a run.

use tradewind_common::spec::ConsistencySpec;

use super::Scenario;

impl Scenario {
    /// Two of every four seeds overlap, two of every eight answer with differences besides.
    pub fn varied(seed: u64, consistency: ConsistencySpec) -> Self {
        let mut scenario = Self::random(seed, consistency);
        if seed % 4 >= 2 {
            scenario = scenario.with_overlap();
        }
        if seed % 8 >= 4 {
            scenario = scenario.with_differences();
        }
        scenario
    }

    /// A run on servers that never fail; of every second seed ranks and groups die.
    pub fn with_sound_servers(seed: u64, consistency: ConsistencySpec) -> Self {
        let scenario = Self::varied(seed, consistency);
        if seed.is_multiple_of(2) {
            scenario
        } else {
            scenario.with_dying_ranks()
        }
    }

    /// A run on servers that fail, and with them, in turn, ranks, the coordinator, disks, all of
    /// them, or the whole run, which is then resumed elsewhere.
    pub fn with_everything(seed: u64, consistency: ConsistencySpec, replication: u32) -> Self {
        let scenario = Self::varied(seed, consistency).with_failing_servers(replication);
        match (seed / 8) % 7 {
            0 => scenario,
            1 => scenario.with_dying_ranks(),
            2 => scenario.with_failing_coordinator(),
            3 => scenario.with_failing_disk(),
            4 => scenario.with_failing_coordinator().with_failing_disk(),
            5 => scenario
                .with_dying_ranks()
                .with_failing_coordinator()
                .with_failing_disk(),
            _ => scenario
                .with_dying_ranks()
                .with_failing_coordinator()
                .with_resume(),
        }
    }
}
