//! Delayed Nesterov momentum (Liu et al. 2024, "Asynchronous Local-SGD Training for Language
//! Modeling", algorithm 3): pseudo-gradients of groups that come one by one move the values at
//! once, but the momentum only every N updates, by their mean; so N asynchronous groups get the
//! momentum that N synchronous ones would. With g the pseudo-gradient of update t, from 1, times its
//! weight:
//!
//! Δ ← Δ + g; if t is a multiple of N: m ← βm + Δ/N, θ ← θ − η((1 − cN + c)βm + g/N), Δ ← 0;
//! otherwise θ ← θ − η(cβm + g/N).
//!
//! N = 1 is Nesterov's momentum as `sgd` has it.

use super::{Optimizer, Step};
use tradewind_common::optimizer::DelayedNesterov;

impl Optimizer for DelayedNesterov {
    /// m and Δ.
    fn slots(&self) -> usize {
        2
    }

    fn apply(&self, step: Step, values: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let [momentum, sum] = slots else {
            unreachable!("delayed Nesterov has two slots")
        };
        let every = f64::from(self.every);
        let (rate, part, beta) = (step.rate as f32, (1.0 / every) as f32, self.momentum as f32);
        let weight = step.weight;
        let states = momentum.iter_mut().zip(sum.iter_mut());
        let elements = values.iter_mut().zip(states).zip(gradient);
        if step.number.is_multiple_of(u64::from(self.every)) {
            let active = ((1.0 - self.activation * (every - 1.0)) * self.momentum) as f32;
            for ((x, (m, sum)), g) in elements {
                let g = weight * g;
                *m = beta * *m + part * (*sum + g);
                *x -= rate * (active * *m + part * g);
                *sum = 0.0;
            }
        } else {
            let active = (self.activation * self.momentum) as f32;
            for ((x, (m, sum)), g) in elements {
                let g = weight * g;
                *sum += g;
                *x -= rate * (active * *m + part * g);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_common::optimizer::Sgd;

    const RATE: f64 = 0.25;

    fn gradient(t: u64, at: usize) -> f32 {
        ((t * 7 + at as u64 * 3) % 11) as f32 / 4.0 - 1.0
    }

    fn trained(optimizer: &dyn Optimizer) -> Vec<f32> {
        let mut values = vec![1.0f32; 5];
        let mut slots = vec![vec![0.0f32; 5]; optimizer.slots()];
        for number in 1..=24 {
            let gradient: Vec<f32> = (0..5).map(|at| gradient(number, at)).collect();
            let mut slots: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
            optimizer.apply(Step::new(RATE, number), &mut values, &mut slots, &gradient);
        }
        values
    }

    /// The paper's algorithm in f64, with its t from 0.
    fn reference(beta: f64, every: u32, c: f64, at: usize) -> f64 {
        let (mut x, mut m, mut sum, n) = (1.0, 0.0, 0.0, f64::from(every));
        for t in 0..24 {
            let g = f64::from(gradient(t + 1, at));
            sum += g;
            if (t + 1u64).is_multiple_of(u64::from(every)) {
                m = beta * m + sum / n;
                x -= RATE * ((1.0 - c * n + c) * beta * m + g / n);
                sum = 0.0;
            } else {
                x -= RATE * (c * beta * m + g / n);
            }
        }
        x
    }

    #[test]
    fn equals_the_paper() {
        for (momentum, every, activation) in [(0.9, 4, 0.0), (0.5, 3, 0.25), (0.9, 5, 0.2)] {
            let got = trained(&DelayedNesterov {
                momentum,
                every,
                activation,
            });
            for (at, got) in got.into_iter().enumerate() {
                let want = reference(momentum, every, activation, at);
                let near = (f64::from(got) - want).abs() < 1e-5 * want.abs().max(1.0);
                assert!(near, "{momentum} {every} {activation}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn every_update_is_nesterov() {
        let delayed = trained(&DelayedNesterov {
            momentum: 0.5,
            every: 1,
            activation: 1.0,
        });
        let plain = trained(&Sgd {
            momentum: 0.5,
            nesterov: true,
            weight_decay: 0.0,
        });
        for (a, b) in delayed.into_iter().zip(plain) {
            assert!((a - b).abs() < 1e-6, "{a}, not {b}");
        }
    }
}
