//! Layer-wise adaptive rate clipping: SGD with momentum on gradients whose rate is at most that of
//! LARS (You et al. 2017, equation 6). With l as there, c = min(l/γ, 1), g ← sc(g + λθ) where s is
//! the weight of the update, v ← μv + g, θ ← θ − γv: as NVIDIA's implementation with `clip`, which the exascale climate
//! analysis used (Kurth et al. 2018, section V-B2). A tensor that weight decay spares has c = 1
//! and λ = 0. One whose values or gradient are all 0 has c = 1, and without a gradient λ = 0 too.

use tradewind_common::optimizer::Larc;
use tradewind_common::pieces::Norms;

use super::lars::ratio;
use super::{Optimizer, Step};

impl Optimizer for Larc {
    fn slots(&self) -> usize {
        usize::from(self.momentum as f32 != 0.0)
    }

    /// What is clipped is as long as the limit, whatever its gradient.
    fn proportional(&self) -> bool {
        false
    }

    fn apply(&self, step: Step, values: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let (rate, scale) = (step.rate as f32, step.scale * step.weight);
        let decay = step.decay(self.weight_decay as f32);
        let momentum = step.momentum(self.momentum as f32);
        let Some(velocity) = slots.first_mut() else {
            for (x, g) in values.iter_mut().zip(gradient) {
                *x -= rate * (scale * (g + decay * *x));
            }
            return;
        };
        for ((x, v), g) in values.iter_mut().zip(velocity.iter_mut()).zip(gradient) {
            *v = momentum * *v + scale * (g + decay * *x);
            *x -= rate * *v;
        }
    }

    fn scale(&self, rate: f64, norms: Norms) -> f64 {
        if norms.gradient == 0.0 {
            return 0.0;
        }
        let ratio = ratio(self.trust, self.weight_decay, norms);
        // At rate 0 the quotient is infinite, and nothing moves.
        ratio.map_or(1.0, |ratio| (ratio / rate).min(1.0))
    }
}
