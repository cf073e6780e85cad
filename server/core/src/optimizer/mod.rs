//! How a block applies a gradient: one file an optimizer, behind one trait on slices. What fields each has is
//! defined in `common/src/optimizer/`.

mod adam;
mod adamw;
mod delayed_nesterov;
mod elastic;
mod lamb;
mod larc;
mod lars;
mod lion;
mod sgd;

use tradewind_common::pieces::{Norms, Piece};
use tradewind_common::spec::OptimizerSpec;

/// An optimizer without state of its own: its slots live with the block.
pub trait Optimizer: Send {
    /// How many vectors of the block's length it keeps beside the values. They start at zero.
    fn slots(&self) -> usize;

    /// Whether what a gradient moves, at once and later, is in proportion to it: an update of twice
    /// the samples then counts twice under linear scaling. Otherwise scaling is for the rate.
    fn proportional(&self) -> bool {
        true
    }

    /// One update in place of a piece of a block: `values`, `gradient` and each of `slots` have the
    /// same length.
    fn apply(&self, step: Step, values: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]);

    /// What a tensor's step is multiplied by, where that follows from its norms: the primary's to
    /// say, copies are told.
    fn scale(&self, _rate: f64, _norms: Norms) -> f64 {
        1.0
    }
}

/// What an update of a piece is told besides the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The learning rate.
    pub rate: f64,
    /// Momentum, where it is not the optimizer's own.
    pub momentum: Option<f64>,
    /// Number of this update of the block, from 1.
    pub number: u64,
    /// Times which the gradient counts, more than 0: an update of weight 1/2 adds half of what it
    /// would add, at once and by what it leaves in the slots. 1 changes no bit.
    pub weight: f32,
    /// Whether weight decay applies to the piece.
    pub decays: bool,
    /// What [`Optimizer::scale`] said of its tensor.
    pub scale: f32,
}

impl Step {
    /// An update of weight 1 to which weight decay applies.
    pub fn new(rate: f64, number: u64) -> Self {
        Self {
            rate,
            momentum: None,
            number,
            weight: 1.0,
            decays: true,
            scale: 1.0,
        }
    }

    /// μ of an optimizer, unless another one was decided.
    fn momentum(self, own: f32) -> f32 {
        self.momentum.map_or(own, |momentum| momentum as f32)
    }

    /// λ of an optimizer, as far as it applies here.
    fn decay(self, weight_decay: f32) -> f32 {
        if self.decays { weight_decay } else { 0.0 }
    }
}

/// One update in place of a block that consists of `pieces`: [`Optimizer::apply`] for each of them,
/// with its own of `scales`, or with 1 if there are none.
pub fn apply(
    optimizer: &dyn Optimizer,
    step: Step,
    (pieces, scales): (&[Piece], &[f32]),
    values: &mut [f32],
    slots: &mut [&mut [f32]],
    gradient: &[f32],
) {
    for (index, piece) in pieces.iter().enumerate() {
        let at = piece.elements.clone();
        let step = Step {
            decays: piece.decays,
            scale: scales.get(index).copied().unwrap_or(1.0),
            ..step
        };
        let mut slots: Vec<&mut [f32]> =
            slots.iter_mut().map(|slot| &mut slot[at.clone()]).collect();
        optimizer.apply(step, &mut values[at.clone()], &mut slots, &gradient[at]);
    }
}

/// The rule of the optimizer that the run asks for.
pub fn from_spec(spec: OptimizerSpec) -> Box<dyn Optimizer> {
    match spec {
        OptimizerSpec::Sgd(sgd) => Box::new(sgd),
        OptimizerSpec::Adam(adam) => Box::new(adam),
        OptimizerSpec::AdamW(adamw) => Box::new(adamw),
        OptimizerSpec::Lion(lion) => Box::new(lion),
        OptimizerSpec::Lamb(lamb) => Box::new(lamb),
        OptimizerSpec::Lars(lars) => Box::new(lars),
        OptimizerSpec::Larc(larc) => Box::new(larc),
        OptimizerSpec::DelayedNesterov(delayed) => Box::new(delayed),
        OptimizerSpec::Elastic(elastic) => Box::new(elastic),
    }
}
