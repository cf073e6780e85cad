//! What a block has: its values, what the optimizer keeps beside them, and how often they were updated.

use std::sync::Arc;

use tradewind_common::TensorKind;

use super::groups::DecidedOf;
use super::shape::Shape;
use crate::log::Applied;
use crate::optimizer::{self, Optimizer, Step};
use crate::state::BlockState;

/// The values of a block, as its primary and its copies have them.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Shared with answers that are on their way: an update copies them only then.
    values: Option<Arc<Vec<f32>>>,
    /// Shared with captures and records in the same way.
    slots: Vec<Arc<Vec<f32>>>,
    version: u64,
    samples_applied: u64,
}

impl Contents {
    /// `None` before they are created.
    pub(super) fn values(&self) -> Option<&Arc<Vec<f32>>> {
        self.values.as_ref()
    }

    /// What the optimizer keeps.
    pub(super) fn slots(&self) -> &[Arc<Vec<f32>>] {
        &self.slots
    }

    /// Updates applied.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn samples_applied(&self) -> u64 {
        self.samples_applied
    }

    /// Sets the initial values, beside which so many slots of zeros are kept. The first ones win:
    /// whether these are they.
    pub(super) fn create(&mut self, values: Vec<f32>, slots: usize) -> bool {
        if self.values.is_some() {
            return false;
        }
        let zeros = || Arc::new(vec![0.0; values.len()]);
        self.slots = (0..slots).map(|_| zeros()).collect();
        self.values = Some(Arc::new(values));
        true
    }

    /// Takes over what there is elsewhere; answers what was decided there.
    pub(super) fn put(&mut self, state: BlockState) -> DecidedOf {
        self.values = Some(state.values);
        self.slots = state.slots;
        self.version = state.version;
        self.samples_applied = state.samples_applied;
        state.decided
    }

    /// Applies an update, whether decided here or by the primary of this copy; there are values.
    pub(super) fn apply(&mut self, applied: &Applied, shape: &Shape, optimizer: &dyn Optimizer) {
        let values = self.values.as_mut();
        let values = Arc::make_mut(values.expect("only blocks with values are updated"));
        self.version += 1;
        self.samples_applied += applied.samples;
        match shape.kind() {
            TensorKind::Parameter => {
                let step = Step {
                    momentum: applied.momentum,
                    weight: applied.weight,
                    ..Step::new(applied.rate, self.version)
                };
                let slots = self.slots.iter_mut();
                let mut slots: Vec<&mut [f32]> =
                    slots.map(|slot| &mut Arc::make_mut(slot)[..]).collect();
                let pieces = (shape.pieces(), &applied.scales[..]);
                let gradient = &applied.gradient;
                optimizer::apply(optimizer, step, pieces, values, &mut slots, gradient);
            }
            TensorKind::Buffer => {
                for (x, change) in values.iter_mut().zip(&*applied.gradient) {
                    *x += applied.weight * change;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_win_and_others_keep_sharing_what_was_there() {
        let mut contents = Contents::default();
        assert!(contents.create(vec![1.0, 2.0], 1));
        assert!(!contents.create(vec![3.0, 4.0], 1));
        let sent = contents.values().unwrap().clone();
        let shape = Shape::new(tradewind_common::BlockId(0), TensorKind::Buffer, Vec::new());
        let applied = Applied {
            rate: 1.0,
            momentum: None,
            scales: Vec::new(),
            weight: 0.5,
            samples: 3,
            gradient: Arc::new(vec![2.0, -2.0]),
        };
        let sgd = tradewind_common::optimizer::Sgd {
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        };
        let sgd = tradewind_common::spec::OptimizerSpec::Sgd(sgd);
        contents.apply(&applied, &shape, &*optimizer::from_spec(sgd));
        assert_eq!(contents.values().unwrap()[..], [2.0, 1.0]);
        assert_eq!(sent[..], [1.0, 2.0], "an answer on its way stays as it is");
        assert_eq!((contents.version(), contents.samples_applied()), (1, 3));
    }
}
