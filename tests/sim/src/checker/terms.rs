//! What the records of all blocks need to know of the run.

use std::collections::BTreeMap;

use tradewind_common::policy::{MomentumSpec, Policies};
use tradewind_common::spec::{ConsistencySpec, OptimizerSpec, RunSpec};
use tradewind_common::{BlockId, Clock, Compression, Generation, GroupId};

use crate::values::Life;

/// What the records of all blocks need to know of the run.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) consistency: ConsistencySpec,
    pub(super) policies: Policies,
    momentum: f64,
    pub(super) samples: u64,
    pub(super) skip_one_in: u64,
    pub(super) down: Compression,
}

impl Terms {
    pub(super) fn new(spec: &RunSpec, skip_one_in: u64) -> Self {
        let momentum = match spec.optimizer {
            OptimizerSpec::Sgd { momentum, .. } => momentum,
            _ => panic!("the observer knows plain SGD and momentum"),
        };
        Self {
            consistency: spec.consistency,
            policies: spec.policies,
            momentum,
            samples: spec.samples,
            skip_one_in,
            down: spec.down,
        }
    }
}

impl Terms {
    /// Whether groups may be left behind.
    pub(super) fn leaves_behind(&self) -> bool {
        self.policies.backup_groups > 0
    }

    /// The momentum of an update of so many contributions while so many groups are live. What a
    /// primary has measured is believed, as it tells its copies, within bounds; not a number if
    /// there were none.
    pub(super) fn momentum(&self, live: usize, merged: usize, told: Option<f64>) -> f64 {
        match self.policies.momentum {
            MomentumSpec::Fixed => self.momentum,
            MomentumSpec::Lowered => {
                let late = live as f64 / merged as f64 - 1.0;
                let held = (self.momentum / (1.0 - self.momentum) - late).max(0.0);
                held / (1.0 + held)
            }
            MomentumSpec::ClosedLoop { .. } => told.map_or(f64::NAN, |told| told.clamp(-0.9, 1.0)),
        }
    }
}

/// An update as copies are told of it.
#[derive(Clone, Debug)]
pub(super) struct PassedOn {
    /// Whose contributions were decided.
    pub(super) groups: Vec<GroupId>,
    /// Momentum, where it is not the optimizer's.
    pub(super) momentum: Option<f64>,
}

/// What a life said of a gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushed {
    pub(super) version: u64,
    pub(super) lineage: Generation,
    pub(super) samples: u32,
    /// When it came first, wherever.
    pub(super) at_us: u64,
}

/// What groups have sent to a block, wherever it was then, and what they were answered.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) now_us: u64,
    pub(super) pushed: BTreeMap<(BlockId, Life, Clock), Pushed>,
    /// The last clock whose verdict a life was told.
    pub(super) told: BTreeMap<(BlockId, Life), Clock>,
    /// The highest clock at which a life was told that the others are, by any block.
    pub(super) next: BTreeMap<Life, Clock>,
}
