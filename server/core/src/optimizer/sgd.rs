//! Stochastic gradient descent with momentum, Nesterov's form and L2 penalty, in the convention of
//! `torch.optim.SGD` with dampening 0 (Sutskever et al. 2013, equations 3 and 4, with the rate
//! outside the velocity): g ← s(g + λθ), v ← μv + g, θ ← θ − η(g + μv) with Nesterov, else θ − ηv,
//! where s is the weight of the update.
//!
//! With Nesterov's form, where g is what local steps came to, pulled minus trained values, it is the outer
//! optimizer of DiLoCo (Douillard et al. 2023, algorithm 1).

use super::{Optimizer, Step};
use tradewind_common::optimizer::Sgd;

impl Optimizer for Sgd {
    fn slots(&self) -> usize {
        usize::from(self.momentum as f32 != 0.0)
    }

    fn apply(&self, step: Step, values: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let (rate, weight) = (step.rate as f32, step.weight);
        let decay = step.decay(self.weight_decay as f32);
        let momentum = step.momentum(self.momentum as f32);
        let Some(velocity) = slots.first_mut() else {
            for (x, g) in values.iter_mut().zip(gradient) {
                *x -= rate * (weight * (g + decay * *x));
            }
            return;
        };
        // The same loop twice, so that neither has a branch inside and both vectorise.
        let elements = values.iter_mut().zip(velocity.iter_mut()).zip(gradient);
        if self.nesterov {
            for ((x, v), g) in elements {
                let g = weight * (g + decay * *x);
                *v = momentum * *v + g;
                *x -= rate * (g + momentum * *v);
            }
        } else {
            for ((x, v), g) in elements {
                *v = momentum * *v + weight * (g + decay * *x);
                *x -= rate * *v;
            }
        }
    }
}
