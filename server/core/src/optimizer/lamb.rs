//! LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", algorithm 2, with
//! φ(z) = z): m and v as in Adam, r = m̂ / (√v̂ + ε) + λθ, θ ← θ − sη (‖θ‖ / ‖r‖) r, where s is the weight of the
//! update, and what its gradient counts in m. The norms are those of a piece: of a whole tensor, or of the part of
//! one that lies in the block. A piece that weight decay spares has λ = 0 and no quotient of norms, and so has one
//! whose values or direction are all 0.

use tradewind_common::optimizer::Lamb;

use super::{Optimizer, Step};

impl Optimizer for Lamb {
    fn slots(&self) -> usize {
        2
    }

    /// A step is as long whatever its gradient.
    fn proportional(&self) -> bool {
        false
    }

    fn apply(&self, step: Step, values: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let [first, second] = slots else {
            unreachable!("LAMB has two slots")
        };
        let (keep1, add1) = (self.beta1 as f32, (1.0 - self.beta1) as f32 * step.weight);
        let (keep2, add2) = (self.beta2 as f32, (1.0 - self.beta2) as f32);
        // Bias corrections in f64: 1 − β₂ᵗ loses half its digits in f32 at small t.
        let number = step.number.min(i32::MAX as u64) as i32;
        let scale = (1.0 / (1.0 - self.beta1.powi(number))) as f32;
        let root = ((1.0 - self.beta2.powi(number)).sqrt()) as f32;
        let (epsilon, decay) = (self.epsilon as f32, step.decay(self.weight_decay as f32));
        let direction =
            |m: f32, v: f32, x: f32| scale * m / (v.sqrt() / root + epsilon) + decay * x;
        let (mut of_values, mut of_direction) = (0.0f64, 0.0f64);
        let moments = first.iter_mut().zip(second.iter_mut());
        for ((x, (m, v)), g) in values.iter().zip(moments).zip(gradient) {
            *m = keep1 * *m + add1 * g;
            *v = keep2 * *v + add2 * g * g;
            of_values += f64::from(*x) * f64::from(*x);
            let r = f64::from(direction(*m, *v, *x));
            of_direction += r * r;
        }
        let ratio = (of_values / of_direction).sqrt();
        // Nor has one whose quotient is no f32.
        let scaled = step.decays && ratio > 0.0 && ratio <= f64::from(f32::MAX);
        let ratio = if scaled { ratio } else { 1.0 };
        let rate = (step.rate * ratio * f64::from(step.weight)) as f32;
        let moments = first.iter().zip(second.iter());
        for (x, (m, v)) in values.iter_mut().zip(moments) {
            *x -= rate * direction(*m, *v, *x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 0.0625;

    fn gradient(t: u64, at: u64) -> f32 {
        ((t * 7 + at * 3) % 11) as f32 / 4.0 - 1.1
    }

    /// The paper's algorithm in f64, with updates that count `weight`.
    fn reference(lamb: Lamb, weight: f64, scaled: bool, updates: u64) -> [f64; 5] {
        let (mut x, mut m, mut v) = ([1.0, -2.0, 0.5, 3.0, 0.25], [0.0; 5], [0.0; 5]);
        for t in 1..=updates {
            let mut r = [0.0; 5];
            for at in 0..5 {
                let g = f64::from(gradient(t, at as u64));
                m[at] = lamb.beta1 * m[at] + (1.0 - lamb.beta1) * weight * g;
                v[at] = lamb.beta2 * v[at] + (1.0 - lamb.beta2) * g * g;
                let m = m[at] / (1.0 - lamb.beta1.powf(t as f64));
                let v: f64 = v[at] / (1.0 - lamb.beta2.powf(t as f64));
                r[at] = m / (v.sqrt() + lamb.epsilon);
                if scaled {
                    r[at] += lamb.weight_decay * x[at];
                }
            }
            let norm = |of: &[f64; 5]| of.iter().map(|x| x * x).sum::<f64>().sqrt();
            let ratio = if scaled { norm(&x) / norm(&r) } else { 1.0 };
            for at in 0..5 {
                x[at] -= weight * RATE * ratio * r[at];
            }
        }
        x
    }

    #[test]
    fn equals_the_paper() {
        for (beta1, beta2, weight_decay, weight, decays) in [
            (0.9, 0.999, 0.0, 1.0, true),
            (0.9, 0.999, 0.25, 1.0, true),
            (0.5, 0.75, 0.25, 1.0, true),
            (0.9, 0.999, 0.25, 0.25, true),
            (0.9, 0.999, 0.25, 1.0, false),
        ] {
            let lamb = Lamb {
                beta1,
                beta2,
                epsilon: 1e-6,
                weight_decay,
            };
            let mut values = [1.0f32, -2.0, 0.5, 3.0, 0.25];
            let (mut m, mut v) = ([0.0f32; 5], [0.0f32; 5]);
            for number in 1..=24 {
                let gradient: Vec<f32> = (0..5).map(|at| gradient(number, at)).collect();
                let step = Step {
                    weight: weight as f32,
                    decays,
                    ..Step::new(RATE, number)
                };
                lamb.apply(step, &mut values, &mut [&mut m, &mut v], &gradient);
            }
            let want = reference(lamb, weight, decays, 24);
            for (got, want) in values.iter().zip(want) {
                let near = (f64::from(*got) - want).abs() < 2e-5;
                assert!(near, "{lamb:?}: {values:?}, not {want}");
            }
        }
    }

    #[test]
    fn a_tensor_of_zeros_leaves_them_and_one_without_gradient_only_decays() {
        let lamb = Lamb {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-6,
            weight_decay: 0.5,
        };
        let apply = |values: &mut [f32; 2], gradient: [f32; 2]| {
            let (mut m, mut v) = ([0.0f32; 2], [0.0f32; 2]);
            lamb.apply(Step::new(0.5, 1), values, &mut [&mut m, &mut v], &gradient);
        };
        let mut values = [0.0f32; 2];
        apply(&mut values, [1.0, -3.0]);
        // As Adam's first step: the rate along the sign.
        assert!((values[0] + 0.5).abs() < 1e-5 && (values[1] - 0.5).abs() < 1e-5);
        let mut values = [3.0f32, 4.0];
        apply(&mut values, [0.0; 2]);
        // Along the values, by their length times the rate.
        assert_eq!(values, [1.5, 2.0]);
    }
}
