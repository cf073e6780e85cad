//! Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2), in the convention of
//! `torch.optim.AdamW`: θ ← (1 − sηλ)θ with s the weight of the update, then Adam without penalty.

use super::adam::{Decay, Moments};
use super::{Optimizer, Step};
use tradewind_common::optimizer::AdamW;

impl Optimizer for AdamW {
    fn slots(&self) -> usize {
        2
    }

    fn proportional(&self) -> bool {
        false
    }

    fn apply(&self, step: Step, values: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let moments = Moments {
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon as f32,
        };
        let decay = if step.decays { self.weight_decay } else { 0.0 };
        let decay = Decay {
            penalty: 0.0,
            keep: (1.0 - f64::from(step.weight) * step.rate * decay) as f32,
        };
        moments.apply(step, decay, values, slots, gradient);
    }
}
