//! What the records of all blocks need to know of the run.

use std::collections::BTreeMap;
use std::ops::Range;
use tradewind_common::optimizer::{Larc, Lars, Sgd};
use tradewind_common::policy::momentum::Lowered;

use tradewind_common::layout::Block;
use tradewind_common::pieces::Norms;
use tradewind_common::policy::{MomentumSpec, Policies};
use tradewind_common::schedule::{Schedule, Seen};
use tradewind_common::spec::{ConsistencySpec, OptimizerSpec, RunSpec};
use tradewind_common::{BlockId, Clock, Compression, Generation, GroupId, Layout, TensorKind};

use super::apply::{self, Part};
use crate::values::{self, Brought, Life};

/// What the records of all blocks need to know of the run.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) consistency: ConsistencySpec,
    pub(super) policies: Policies,
    pub(super) optimizer: OptimizerSpec,
    /// Whether steps follow from the norms of tensors.
    pub(super) layerwise: bool,
    pub(super) schedule: Schedule,
    pub(super) samples: u64,
    pub(super) brought: Brought,
    pub(super) down: Compression,
    layout: Layout,
    /// Of tensors, in each block.
    pub(super) parts: BTreeMap<BlockId, Vec<Part>>,
    /// In the flat vector, the tensors whose norms each block's gradient comes with.
    spanning: BTreeMap<BlockId, Vec<Range<usize>>>,
}

impl Terms {
    pub(super) fn new(spec: &RunSpec, layout: &Layout, brought: Brought) -> Self {
        let of_block = |block: &Block| (block.id, apply::parts(spec, layout, &block.elements));
        let parameters = layout.blocks.iter();
        let parameters = parameters.filter(|block| block.kind == TensorKind::Parameter);
        let parts: BTreeMap<_, _> = parameters.map(of_block).collect();
        let travel = |(id, parts): (&BlockId, &Vec<Part>)| {
            let travel = parts.iter().filter(|part| part.travels(spec));
            (*id, travel.map(|part| part.tensor.clone()).collect())
        };
        Self {
            consistency: spec.consistency,
            policies: spec.policies,
            optimizer: spec.optimizer,
            layerwise: spec.optimizer.capabilities().layerwise(),
            schedule: spec.schedule.clone(),
            samples: spec.samples,
            brought,
            down: spec.down,
            layout: layout.clone(),
            spanning: parts.iter().map(travel).collect(),
            parts,
        }
    }

    /// The same for a run that goes on elsewhere.
    pub(super) fn of_resumed(&self, spec: &RunSpec) -> Self {
        Self::new(spec, &self.layout, self.brought)
    }

    /// How many norms a block's gradient comes with.
    pub(super) fn norms_wanted(&self, block: BlockId) -> usize {
        self.spanning.get(&block).map_or(0, Vec::len)
    }

    /// The norms that a life brings at a clock with a block's gradient.
    pub(super) fn norms(&self, block: BlockId, life: Life, clock: Clock) -> Vec<Norms> {
        let tensors = self.spanning.get(&block).into_iter().flatten();
        let of = |tensor| values::norms(life, clock, &self.layout, tensor);
        tensors.map(of).collect()
    }
}

impl Terms {
    /// Whether groups may be left behind.
    pub(super) fn leaves_behind(&self) -> bool {
        self.policies.backup_groups > 0
    }

    /// The momentum of an update of so many contributions while so many groups are live. What a
    /// primary has measured is taken as it tells its copies, for `measure.rs` looks into that; not a
    /// number if there were none.
    pub(super) fn momentum(&self, live: usize, merged: usize, told: Option<f64>) -> f64 {
        let own = match self.optimizer {
            OptimizerSpec::Sgd(Sgd { momentum, .. })
            | OptimizerSpec::Lars(Lars { momentum, .. })
            | OptimizerSpec::Larc(Larc { momentum, .. }) => momentum,
            // The others use their own.
            _ => 0.0,
        };
        match self.policies.momentum {
            MomentumSpec::Fixed(_) => own,
            MomentumSpec::Lowered(Lowered {}) => {
                let late = live as f64 / merged as f64 - 1.0;
                let held = (own / (1.0 - own) - late).max(0.0);
                held / (1.0 + held)
            }
            MomentumSpec::ClosedLoop(_) => told.map_or(f64::NAN, |told| told.clamp(-0.9, 1.0)),
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
    /// What it took to be applied.
    pub(super) seen: Seen,
    /// When it came first, wherever.
    pub(super) at_us: u64,
}

/// What groups have sent to a block, wherever it was then, and what they were answered.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) now_us: u64,
    pub(super) pushed: BTreeMap<(BlockId, Life, Clock), Pushed>,
    /// What a life took to be applied when it began an exchange: the same at all blocks.
    pub(super) seen: BTreeMap<(Life, Clock), Seen>,
    /// The last clock whose verdict a life was told.
    pub(super) told: BTreeMap<(BlockId, Life), Clock>,
    /// The highest clock at which a life was told that the others are, by any block.
    pub(super) next: BTreeMap<Life, Clock>,
}
