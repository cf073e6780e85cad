//! The shard's optimizers beside libtorch's, fed the same gradients.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::nn::{self, OptimizerConfig};
use tch::{Device, Kind, Tensor};
use tradewind_common::optimizer::{Adam, AdamW, Sgd};
use tradewind_common::spec::OptimizerSpec;
use tradewind_core::optimizer::{Step, from_spec};

const LENGTH: usize = 257;
const STEPS: u64 = 50;
const RATE: f64 = 0.02;

/// Uniform in −1..1.
fn numbers(rng: &mut ChaCha8Rng) -> Vec<f32> {
    (0..LENGTH).map(|_| rng.random_range(-1.0..1.0)).collect()
}

/// The parameters of both after [`STEPS`] updates.
fn train(spec: OptimizerSpec, config: impl OptimizerConfig) -> (Vec<f32>, Vec<f32>) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut ours = numbers(&mut rng);
    let store = nn::VarStore::new(Device::Cpu);
    let initial = Tensor::from_slice(&ours);
    let theirs = store.root().var_copy("x", &initial);
    let mut reference = config.build(&store, RATE).unwrap();

    let optimizer = from_spec(spec);
    let mut slots = vec![vec![0.0; LENGTH]; optimizer.slots()];
    for number in 1..=STEPS {
        let gradient = numbers(&mut rng);
        // The derivative of Σ xᵢgᵢ is g.
        let loss = (&theirs * Tensor::from_slice(&gradient)).sum(Kind::Float);
        reference.backward_step(&loss);
        let step = Step::new(RATE, number);
        let mut slots: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
        optimizer.apply(step, &mut ours, &mut slots, &gradient);
    }
    let theirs = Vec::<f32>::try_from(theirs.detach()).unwrap();
    (ours, theirs)
}

/// |a − b| / |b|, in L2.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let between: f64 = a
        .iter()
        .zip(b)
        .map(|(a, b)| square(f64::from(*a) - f64::from(*b)))
        .sum();
    let length: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    (between / length).sqrt()
}

fn check(spec: OptimizerSpec, config: impl OptimizerConfig) {
    let (ours, theirs) = train(spec, config);
    let distance = distance(&ours, &theirs);
    println!("{spec:?}: {distance:.1e}");
    assert!(distance <= 1e-6, "{spec:?}: {distance:e}");
}

#[test]
fn sgd_equals_libtorch() {
    for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.9, true)] {
        for weight_decay in [0.0, 0.01] {
            let spec = OptimizerSpec::Sgd(Sgd {
                momentum,
                nesterov,
                weight_decay,
            });
            let config = nn::Sgd {
                momentum,
                dampening: 0.0,
                wd: weight_decay,
                nesterov,
            };
            check(spec, config);
        }
    }
}

#[test]
fn adam_equals_libtorch() {
    for (beta1, beta2, epsilon) in [(0.9, 0.999, 1e-8), (0.5, 0.9, 1e-3)] {
        for weight_decay in [0.0, 0.01] {
            let spec = OptimizerSpec::Adam(Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            });
            let config = nn::Adam {
                beta1,
                beta2,
                wd: weight_decay,
                eps: epsilon,
                amsgrad: false,
            };
            check(spec, config);
        }
    }
}

#[test]
fn adamw_equals_libtorch() {
    for (beta1, beta2, epsilon) in [(0.9, 0.999, 1e-8), (0.5, 0.9, 1e-3)] {
        for weight_decay in [0.0, 0.1] {
            let spec = OptimizerSpec::AdamW(AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            });
            let config = nn::AdamW {
                beta1,
                beta2,
                wd: weight_decay,
                eps: epsilon,
                amsgrad: false,
            };
            check(spec, config);
        }
    }
}
