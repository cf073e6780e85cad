//! Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2):
//! c ← β₁m + (1 − β₁)g, θ ← θ − η(sign(c) + λθ), m ← β₂m + (1 − β₂)g. The sign of 0 is 0.
//!
//! The weight s of an update is what its step counts and what its gradient leaves in the mean:
//! θ ← (1 − sηλ)θ − sη sign(c), m ← β₂m + (1 − β₂)s g. The direction is that of the whole gradient.

use tradewind_common::optimizer::Lion;

use super::{Optimizer, Step};

impl Optimizer for Lion {
    fn slots(&self) -> usize {
        1
    }

    /// A step is as long whatever its gradient.
    fn proportional(&self) -> bool {
        false
    }

    fn apply(&self, step: Step, values: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let [mean] = slots else {
            unreachable!("Lion has one slot")
        };
        let rate = step.rate as f32 * step.weight;
        let decay = if step.decays { self.weight_decay } else { 0.0 };
        // In f64: f32 would lose digits of 1 − ηλ.
        let keep = (1.0 - f64::from(step.weight) * step.rate * decay) as f32;
        let (keep1, add1) = (self.beta1 as f32, (1.0 - self.beta1) as f32);
        let (keep2, add2) = (self.beta2 as f32, (1.0 - self.beta2) as f32 * step.weight);
        for ((x, m), g) in values.iter_mut().zip(mean.iter_mut()).zip(gradient) {
            let direction = keep1 * *m + add1 * g;
            let sign = if direction == 0.0 {
                0.0
            } else {
                direction.signum()
            };
            *x = keep * *x - rate * sign;
            *m = keep2 * *m + add2 * g;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 0.125;

    fn gradient(t: u64, at: u64) -> f32 {
        ((t * 7 + at * 3) % 11) as f32 / 4.0 - 1.1
    }

    /// The paper's algorithm in f64, with updates that count `weight`.
    fn reference(lion: Lion, weight: f64, at: u64) -> f64 {
        let (mut x, mut m) = (1.0, 0.0);
        for t in 1..=24 {
            let g = f64::from(gradient(t, at));
            let c: f64 = lion.beta1 * m + (1.0 - lion.beta1) * g;
            x -= weight * RATE * (c.signum() + lion.weight_decay * x);
            m = lion.beta2 * m + (1.0 - lion.beta2) * weight * g;
        }
        x
    }

    #[test]
    fn equals_the_paper() {
        for (beta1, beta2, weight_decay, weight) in [
            (0.9, 0.99, 0.0, 1.0),
            (0.9, 0.99, 0.25, 1.0),
            (0.5, 0.75, 0.25, 1.0),
            (0.9, 0.99, 0.25, 0.25),
        ] {
            let lion = Lion {
                beta1,
                beta2,
                weight_decay,
            };
            let (mut values, mut mean) = (vec![1.0f32; 5], vec![0.0f32; 5]);
            for number in 1..=24 {
                let gradient: Vec<f32> = (0..5).map(|at| gradient(number, at)).collect();
                let step = Step {
                    weight: weight as f32,
                    ..Step::new(RATE, number)
                };
                lion.apply(step, &mut values, &mut [&mut mean], &gradient);
            }
            for (at, got) in (0..).zip(values) {
                let want = reference(lion, weight, at);
                let near = (f64::from(got) - want).abs() < 1e-5;
                assert!(near, "{lion:?} at {at}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn what_has_no_gradient_stays_and_what_is_spared_does_not_decay() {
        let lion = Lion {
            beta1: 0.9,
            beta2: 0.99,
            weight_decay: 0.5,
        };
        let step = Step {
            decays: false,
            ..Step::new(RATE, 1)
        };
        let (mut values, mut mean) = ([3.0f32, 3.0], [0.0f32; 2]);
        lion.apply(step, &mut values, &mut [&mut mean], &[0.0, -0.001]);
        assert_eq!(values, [3.0, 3.125]);
    }
}
