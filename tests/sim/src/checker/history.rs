//! What became of a block, decision by decision, in one line of primaries.

use std::collections::BTreeMap;

use tradewind_common::{GroupId, Incarnation};
use tradewind_core::decided::Decided;
use tradewind_core::state::BlockState;

/// What was decided last of each group.
pub(super) type Last = BTreeMap<GroupId, (Incarnation, Decided)>;

/// A block after one decision, or as it was created or restored.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) version: u64,
    pub(super) samples: u64,
    /// Of the update that made the version, times the weight of its gradient, which is an f32.
    pub(super) rate: f64,
    pub(super) values: Vec<f64>,
    /// What the optimizer keeps beside them.
    pub(super) slots: Vec<Vec<f64>>,
    /// Of gradients, where the staleness policy has one; empty before the first.
    pub(super) mean_square: Vec<f64>,
    pub(super) last: Last,
    /// As its primary had it; `None` if it decided more in the same instant.
    pub(super) state: Option<BlockState>,
}

impl Step {
    /// A block as somebody has it.
    pub(super) fn of(state: &BlockState) -> Self {
        let wide = |values: &[f32]| values.iter().map(|x| f64::from(*x)).collect();
        Self {
            version: state.version,
            samples: state.samples_applied,
            rate: 0.0,
            values: wide(&state.values),
            slots: state.slots.iter().map(|slot| wide(slot)).collect(),
            mean_square: Vec::new(),
            last: state.decided.clone(),
            state: Some(state.clone()),
        }
    }

    /// What is different in a block that has come as far; `None` if nothing is.
    pub(super) fn differs(&self, state: &BlockState) -> Option<String> {
        match &self.state {
            Some(own) => {
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let slots = |state: &BlockState| {
                    let slots = state.slots.iter();
                    slots.map(|slot| bits(slot)).collect::<Vec<_>>()
                };
                let same = bits(&own.values) == bits(&state.values) && slots(own) == slots(state);
                (!same).then(|| format!("{own:?} and {state:?}"))
            }
            None => {
                let near = |(x, y): (&f64, &f32)| super::block::near(*x, *y);
                let all_near = |own: &[f64], of: &[f32]| own.iter().zip(of).all(near);
                let mut slots = self.slots.iter().zip(&state.slots);
                let same = all_near(&self.values, &state.values)
                    && slots.all(|(own, of)| all_near(own, of));
                (!same).then(|| format!("{self:?} and {state:?}"))
            }
        }
    }

    fn is(&self, state: &BlockState) -> bool {
        (self.version, self.samples) == (state.version, state.samples_applied)
            && self.last == state.decided
    }
}

/// The step of a history that a block has come to, if it is one.
pub(super) fn find(history: &[Step], state: &BlockState) -> Option<usize> {
    history.iter().rposition(|step| step.is(state))
}
