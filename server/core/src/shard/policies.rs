//! The policies of a shard: when and how a block applies what waits.

use tradewind_common::spec::RunSpec;

use crate::askers::Wants;
use crate::block::{Block, DecidedContribution, Steered, Terms};
use crate::consistency::{self, Consistency, Decision};
use crate::delay::{self, Delay};
use crate::log::Update;
use crate::momentum::{self, Momentum};
use crate::optimizer::{self, Optimizer};

/// The policies of one shard, and the momentum that was taken last.
pub(super) struct ShardPolicies {
    consistency: Box<dyn Consistency>,
    delay: Box<dyn Delay>,
    momentum: Box<dyn Momentum>,
    /// Of the last update of parameters, where it is not the optimizer's own.
    explicit: Option<f64>,
    optimizer: Box<dyn Optimizer>,
}

impl ShardPolicies {
    /// Those that the run agrees on.
    pub(super) fn from_spec(spec: &RunSpec) -> Self {
        Self {
            consistency: consistency::from_spec(spec),
            delay: delay::from_spec(spec.policies.staleness),
            momentum: momentum::from_spec(spec),
            explicit: None,
            optimizer: optimizer::from_spec(spec.optimizer),
        }
    }

    pub(super) fn set_consistency(&mut self, consistency: Box<dyn Consistency>) {
        self.consistency = consistency;
    }

    pub(super) fn set_delay(&mut self, delay: Box<dyn Delay>) {
        self.delay = delay;
    }

    pub(super) fn set_momentum(&mut self, momentum: Box<dyn Momentum>) {
        self.momentum = momentum;
    }

    pub(super) fn optimizer(&self) -> &dyn Optimizer {
        &*self.optimizer
    }

    /// The explicit momentum of the last update of parameters, where that is not the optimizer's own.
    pub(super) fn explicit(&self) -> Option<f64> {
        self.explicit
    }

    /// Whether a clock may be made without a group.
    pub(super) fn leaves_behind(&self) -> bool {
        self.consistency.leaves_behind()
    }

    /// Whether the values of an answer that asks for so much are kept when it leaves.
    pub(super) fn keeps_sent(&self, wants: Wants) -> bool {
        self.delay.compensates() && wants != Wants::Nothing
    }

    /// What becomes of what waits at a block.
    pub(super) fn decide(&self, block: &Block, now_us: u64) -> Decision {
        if self.needs_everybody() {
            // What was under way when values were lost is left out.
            let interrupted: Vec<_> = block.interrupted().collect();
            if !interrupted.is_empty() {
                return Decision::LeaveOut(interrupted);
            }
        }
        let scene = block.scene(self.needs_everybody(), now_us);
        self.consistency.decide(&scene)
    }

    /// A clock that is averaged is made with everybody, or not. But where groups may be left behind, one that is
    /// silent at a block may wait elsewhere for one that waits there.
    fn needs_everybody(&self) -> bool {
        self.consistency.averages() && !self.leaves_behind()
    }

    /// Gathers a waiting contribution of a block for its next update; whether there is one that can be.
    pub(super) fn gather(&mut self, block: &mut Block, spec: &RunSpec, now_us: u64) -> bool {
        let scene = block.scene(self.needs_everybody(), now_us);
        let Some(group) = self.consistency.gathers(&scene) else {
            return false;
        };
        block.gather(group, self.terms(spec), &*self.momentum);
        true
    }

    fn terms<'a>(&'a self, spec: &'a RunSpec) -> Terms<'a> {
        terms(&*self.consistency, &*self.optimizer, &*self.delay, spec)
    }

    /// Makes the next update of a block, as [`Block::update`] does, one of so many of the shard.
    pub(super) fn update(
        &mut self,
        block: &mut Block,
        what: Deciding<'_>,
        spec: &RunSpec,
    ) -> (Update, Vec<DecidedContribution>) {
        let terms = terms(&*self.consistency, &*self.optimizer, &*self.delay, spec);
        let steered = Steered {
            momentum: &mut *self.momentum,
            blocks: what.blocks,
        };
        let (update, decided) = block.update(what.groups, terms, steered, what.late);
        self.take(&update);
        (update, decided)
    }

    fn take(&mut self, update: &Update) {
        let momentum = update.applied.as_ref().and_then(|applied| applied.momentum);
        self.explicit = momentum.or(self.explicit);
    }

    /// As a copy: takes the momentum that the primary took.
    pub(super) fn follow(&mut self, update: &Update) {
        if let Some(explicit) = update.applied.as_ref().and_then(|a| a.momentum) {
            self.momentum.follow(explicit);
        }
        self.take(update);
    }

    /// Values were restored: what was measured or followed before is not of them.
    pub(super) fn begin_anew(&mut self) {
        self.momentum.begin_anew();
        self.explicit = None;
    }
}

/// How a block applies what these policies let through.
fn terms<'a>(
    consistency: &dyn Consistency,
    optimizer: &'a dyn Optimizer,
    delay: &'a dyn Delay,
    spec: &'a RunSpec,
) -> Terms<'a> {
    Terms {
        optimizer,
        schedule: &spec.schedule,
        budget: spec.samples,
        averages: consistency.averages(),
        weights: spec.policies.weights,
        delay,
    }
}

/// What is decided at a block at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deciding<'a> {
    /// Whose contributions.
    pub(super) groups: &'a [tradewind_common::GroupId],
    /// Whether they are left out.
    pub(super) late: bool,
    /// How many blocks of parameters the shard has.
    pub(super) blocks: usize,
}
