//! The centre of elastic averaging (Zhang, Choromanska and LeCun 2015, "Deep learning with Elastic
//! Averaging SGD", algorithm 1, asynchronous): a group pushes its own values x, and the centre moves
//! towards them, θ ← θ + α(x − θ), with the rate α in `0..1`. The group does the same towards the
//! centre, with the difference to the centre as it was before.

use super::{Optimizer, Step};
use tradewind_common::optimizer::Elastic;

impl Optimizer for Elastic {
    fn slots(&self) -> usize {
        0
    }

    fn apply(&self, step: Step, values: &mut [f32], _slots: &mut [&mut [f32]], pushed: &[f32]) {
        let alpha = step.rate as f32 * step.weight;
        for (centre, x) in values.iter_mut().zip(pushed) {
            *centre += alpha * (x - *centre);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_centre_is_the_mean_that_forgets() {
        let pushed = [[3.0f32, -1.0], [0.5, 8.0], [-2.0, 0.25]];
        let mut centre = [1.0f32, 2.0];
        for (number, x) in (1..).zip(&pushed) {
            Elastic {}.apply(Step::new(0.3, number), &mut centre, &mut [], x);
        }
        for (at, got) in centre.into_iter().enumerate() {
            let start: f64 = [1.0, 2.0][at];
            let x = |n: usize| f64::from(pushed[n][at]);
            // Unrolled: 0.7³θ + 0.3 (0.7² x₁ + 0.7 x₂ + x₃).
            let want = 0.343 * start + 0.3 * (0.49 * x(0) + 0.7 * x(1) + x(2));
            assert!((f64::from(got) - want).abs() < 1e-6, "{got}, not {want}");
        }
    }
}
