//! What a world is made of, as it is now: a run that is resumed may have other servers and groups.

use std::sync::Arc;

use tradewind_common::RunId;
use tradewind_common::placement::Placement;

use crate::group::Common;
use crate::scenario::{GroupPlan, LEASE_MS, Sabotage, Scenario};

/// Time without any decision or tick of a clock after which a run is stuck. Leases, graces, the
/// longest time down and the slowest step, one after the other, are all shorter.
const STUCK_US: u64 = 12_000_000;

/// How much longer it may take where messages are later than a lease: then connections break all the
/// time, and many beginnings come to nothing.
const STUCK_LATE: u64 = 3;

/// The scenario, and what follows from it.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) scenario: Scenario,
    /// What all groups are told.
    pub(super) common: Common,
}

impl Setup {
    pub(super) fn new(scenario: Scenario) -> Self {
        let spec = scenario.spec();
        let layout = spec.check().expect("a specification that can be followed");
        Self {
            common: Common {
                run: RunId::new("sim").expect("a name"),
                placement: Arc::new(Placement::by_bytes(&layout, scenario.servers)),
                spec,
                layout,
                overlap: scenario.overlap,
                brought: scenario.brought(),
                late_answers: scenario.network.late_answers,
            },
            scenario,
        }
    }

    pub(super) fn breaks(&self, sabotage: Sabotage) -> bool {
        self.scenario.sabotage == Some(sabotage)
    }

    /// After which time without anything moving the run is stuck.
    pub(super) fn stuck_us(&self) -> u64 {
        let late = self.scenario.network.hold_us > LEASE_MS * 1_000;
        STUCK_US * if late { STUCK_LATE } else { 1 }
    }

    /// A group of this number has come on top of the others.
    pub(super) fn attach(&mut self, number: usize, plan: GroupPlan) {
        // Numbers that were given to whoever did not hear of it stay without a group.
        let groups = &mut self.scenario.groups;
        groups.resize((number + 1).max(groups.len()), plan);
    }

    /// The run is resumed on so many servers, with these groups.
    pub(super) fn resume(&mut self, servers: u32, groups: Vec<GroupPlan>) {
        self.scenario.servers = servers;
        self.scenario.groups = groups;
        self.common.spec = self.scenario.spec();
        let placement = Placement::by_bytes(&self.common.layout, servers);
        self.common.placement = Arc::new(placement);
    }
}
