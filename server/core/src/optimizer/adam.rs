//! Adam (Kingma and Ba 2015, algorithm 1) with L2 penalty, in the convention of
//! `torch.optim.Adam`: ε is added to the bias-corrected root. The weight s of an update is what its
//! gradient counts in the first moment, m ← β₁m + (1 − β₁)s g; the second one is to know how long
//! gradients are, and has it whole.

use super::{Optimizer, Step};
use tradewind_common::optimizer::Adam;

impl Optimizer for Adam {
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
        let decay = Decay {
            penalty: step.decay(self.weight_decay as f32),
            keep: 1.0,
        };
        moments.apply(step, decay, values, slots, gradient);
    }
}

/// What Adam and AdamW share.
pub(super) struct Moments {
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    pub(super) epsilon: f32,
}

/// The two forms of weight decay; one of them is idle.
pub(super) struct Decay {
    /// L2 penalty, added to the gradient; 0 is idle.
    pub(super) penalty: f32,
    /// What is left of the values before the update; 1 is idle.
    pub(super) keep: f32,
}

impl Moments {
    pub(super) fn apply(
        &self,
        step: Step,
        decay: Decay,
        values: &mut [f32],
        slots: &mut [&mut [f32]],
        gradient: &[f32],
    ) {
        let [first, second] = slots else {
            unreachable!("Adam has two slots")
        };
        // Bias corrections in f64: 1 − β₂ᵗ loses half its digits in f32 at small t.
        let number = step.number.min(i32::MAX as u64) as i32;
        let rate = (step.rate / (1.0 - self.beta1.powi(number))) as f32;
        let root = ((1.0 - self.beta2.powi(number)).sqrt()) as f32;
        let (keep1, add1) = (self.beta1 as f32, (1.0 - self.beta1) as f32 * step.weight);
        let (keep2, add2) = (self.beta2 as f32, (1.0 - self.beta2) as f32);
        let moments = first.iter_mut().zip(second.iter_mut());
        for ((x, (m, v)), g) in values.iter_mut().zip(moments).zip(gradient) {
            let g = g + decay.penalty * *x;
            *m = keep1 * *m + add1 * g;
            *v = keep2 * *v + add2 * g * g;
            *x = decay.keep * *x - rate * *m / (v.sqrt() / root + self.epsilon);
        }
    }
}
