//! Layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017, "Large Batch Training of
//! Convolutional Networks", algorithm 1 and equation 6), with the rate inside the velocity as
//! there: l = η‖θ‖ / (‖g‖ + β‖θ‖), v ← mv + sγl(g + βθ), θ ← θ − v, where s is the weight of the
//! update. A tensor that weight decay spares
//! has l = 1 and β = 0. One whose values or gradient are all 0 has l = 1, for the quotient would say
//! nothing; without a gradient it has β = 0 too, or it would decay at a rate meant for l.

use tradewind_common::optimizer::Lars;
use tradewind_common::pieces::Norms;

use super::{Optimizer, Step};

impl Optimizer for Lars {
    fn slots(&self) -> usize {
        usize::from(self.momentum as f32 != 0.0)
    }

    fn proportional(&self) -> bool {
        false
    }

    fn apply(&self, step: Step, values: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let rate = step.rate as f32 * step.scale * step.weight;
        let decay = step.decay(self.weight_decay as f32);
        let momentum = step.momentum(self.momentum as f32);
        let Some(velocity) = slots.first_mut() else {
            for (x, g) in values.iter_mut().zip(gradient) {
                *x -= rate * (g + decay * *x);
            }
            return;
        };
        for ((x, v), g) in values.iter_mut().zip(velocity.iter_mut()).zip(gradient) {
            *v = momentum * *v + rate * (g + decay * *x);
            *x -= *v;
        }
    }

    fn scale(&self, _rate: f64, norms: Norms) -> f64 {
        if norms.gradient == 0.0 {
            return 0.0;
        }
        ratio(self.trust, self.weight_decay, norms).unwrap_or(1.0)
    }
}

/// η‖θ‖ / (‖g‖ + β‖θ‖); `None` if either norm is 0, or so small that the quotient is no f32.
pub(super) fn ratio(trust: f64, decay: f64, norms: Norms) -> Option<f64> {
    let Norms { values, gradient } = norms;
    let ratio = trust * values / (gradient + decay * values);
    (values > 0.0 && gradient > 0.0 && ratio <= f64::from(f32::MAX)).then_some(ratio)
}
