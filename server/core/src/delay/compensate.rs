//! Delay compensation (Zheng et al. 2017, "Asynchronous Stochastic Gradient Descent with Delay
//! Compensation", equation 10): g ← g + λ g⊙g⊙(θ_now − θ_pulled), the first term of a Taylor
//! expansion with the outer product of the gradient for the Hessian, of which only the diagonal is
//! kept. The adaptive λ of the same paper (section 6, DC-ASGD-a) is one of each element:
//! v ← m v + (1 − m) g⊙g, λ = λ₀ / √(v + ε).
//!
//! The values that a group has pulled are kept by the primary alone, and so is v. Another primary
//! begins without: what was computed on values that its predecessor sent is applied as it is.

use tradewind_common::policy::staleness::{Compensate, CompensateAdaptive};

use super::{Delay, Fate};

/// ε, added to the mean square.
const EPSILON: f32 = 1e-7;

impl Delay for Compensate {
    fn fate(&self, _: u64) -> Fate {
        Fate::Apply { weight: 1.0 }
    }

    fn compensates(&self) -> bool {
        true
    }

    fn compensate(&self, gradient: &mut [f32], now: &[f32], then: &[f32], _: &mut Vec<f32>) {
        let lambda = self.lambda as f32;
        let moved = now.iter().zip(then).map(|(now, then)| now - then);
        for (g, moved) in gradient.iter_mut().zip(moved) {
            *g += lambda * *g * *g * moved;
        }
    }
}

impl Delay for CompensateAdaptive {
    fn fate(&self, _: u64) -> Fate {
        Fate::Apply { weight: 1.0 }
    }

    fn compensates(&self) -> bool {
        true
    }

    fn compensate(
        &self,
        gradient: &mut [f32],
        now: &[f32],
        then: &[f32],
        mean_square: &mut Vec<f32>,
    ) {
        let (lambda, decay) = (self.lambda as f32, self.mean_square_decay as f32);
        mean_square.resize(now.len(), 0.0);
        let moved = now.iter().zip(then).map(|(now, then)| now - then);
        for ((g, moved), v) in gradient.iter_mut().zip(moved).zip(mean_square) {
            *v = (decay * *v + (1.0 - decay) * *g * *g).min(f32::MAX);
            *g += lambda / (*v + EPSILON).sqrt() * *g * *g * moved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For f(θ) = a·ln θ the gradient is a/θ and its square, times −1/a, is the second derivative:
    /// with λ = −1/a the compensated gradient would be the tangent's at the old values.
    #[test]
    fn a_constant_factor_follows_the_tangent() {
        let (a, then, now) = (-2.0f64, 4.0f64, 3.5f64);
        let policy = Compensate { lambda: -1.0 / a };
        let mut gradient = [(a / then) as f32];
        policy.compensate(
            &mut gradient,
            &[now as f32],
            &[then as f32],
            &mut Vec::new(),
        );
        let tangent = a / then - a / (then * then) * (now - then);
        assert!((f64::from(gradient[0]) - tangent).abs() < 1e-7);
        let (stale, exact) = (a / then, a / now);
        assert!((tangent - exact).abs() < (stale - exact).abs() / 5.0);
    }

    #[test]
    fn the_adaptive_factor_follows_the_mean_square() {
        let policy = CompensateAdaptive {
            lambda: 2.0,
            mean_square_decay: 0.9,
        };
        let mut mean_square = Vec::new();
        let mut expected = [0.0f64; 2];
        for (g, now, then) in [
            ([1.0f32, -3.0], [0.5f32, 2.0], [0.25f32, 2.5]),
            ([-2.0, 0.0], [1.0, 1.0], [1.5, 7.0]),
            ([0.5, 8.0], [-1.0, 0.0], [-1.0, 0.125]),
        ] {
            let mut gradient = g;
            policy.compensate(&mut gradient, &now, &then, &mut mean_square);
            for at in 0..2 {
                let g = f64::from(g[at]);
                expected[at] = 0.9 * expected[at] + 0.1 * g * g;
                let lambda = 2.0 / (expected[at] + 1e-7).sqrt();
                let want = g + lambda * g * g * f64::from(now[at] - then[at]);
                let got = f64::from(gradient[at]);
                assert!((got - want).abs() < 1e-5, "{got} and not {want}");
            }
        }
    }
}
