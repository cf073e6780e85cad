//! What the records of all blocks need to know of the run.

use std::collections::BTreeMap;

use tradewind_common::policy::Policies;
use tradewind_common::spec::{ConsistencySpec, OptimizerSpec, RunSpec};
use tradewind_common::{BlockId, Clock, Compression, Generation};

use crate::values::Life;

/// What the records of all blocks need to know of the run.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) consistency: ConsistencySpec,
    pub(super) policies: Policies,
    pub(super) momentum: f64,
    pub(super) samples: u64,
    pub(super) skip_one_in: u64,
    pub(super) down: Compression,
}

impl Terms {
    pub(super) fn new(spec: &RunSpec, skip_one_in: u64) -> Self {
        let momentum = match spec.optimizer {
            OptimizerSpec::Sgd { momentum, .. } => momentum,
            OptimizerSpec::Adam { .. } => panic!("the observer knows plain SGD and momentum"),
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

/// What a life said of a gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushed {
    pub(super) version: u64,
    pub(super) lineage: Generation,
    pub(super) samples: u32,
}

/// What groups have sent to a block, wherever it was then, and what they were answered.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) pushed: BTreeMap<(BlockId, Life, Clock), Pushed>,
    /// The last clock whose verdict a life was told.
    pub(super) told: BTreeMap<(BlockId, Life), Clock>,
}
