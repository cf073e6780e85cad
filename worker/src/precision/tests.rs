use std::panic::{AssertUnwindSafe, catch_unwind};

use tch::{Kind, Tensor};
use tradewind_config::DeviceChoice;

use super::*;
use crate::data::{Asked, Split, fixture};
use crate::model::Task;
use crate::model::forecast::{Forecast, ForecastSpec};

/// What a product on this thread computes in.
fn kind() -> Kind {
    let ones = Tensor::ones([4, 4], (Kind::Float, Device::Cpu));
    ones.matmul(&ones).kind()
}

fn under<T>(precision: Precision, forward: impl FnOnce() -> T) -> T {
    autocast(precision, Device::Cpu, forward).unwrap()
}

const FP16: Precision = Precision::Fp16 {
    initial: 1.0,
    growth_steps: 1,
};

#[test]
fn products_compute_in_what_is_asked_for_and_only_inside() {
    assert_eq!(under(Precision::F32, kind), Kind::Float);
    assert_eq!(under(Precision::Bf16, kind), Kind::BFloat16);
    assert_eq!(under(FP16, kind), Kind::Half);
    assert_eq!(kind(), Kind::Float);

    // The inner one puts back what the outer one had.
    let nested = under(Precision::Bf16, || {
        [
            kind(),
            under(FP16, kind),
            kind(),
            under(Precision::F32, kind),
        ]
    });
    let bf16 = Kind::BFloat16;
    assert_eq!(nested, [bf16, Kind::Half, bf16, bf16]);
    assert_eq!(kind(), Kind::Float);
}

#[test]
fn it_is_off_after_a_panic_and_on_other_threads() {
    let unlucky = catch_unwind(AssertUnwindSafe(|| {
        under(Precision::Bf16, || {
            assert_eq!(std::thread::spawn(kind).join().unwrap(), Kind::Float);
            assert_eq!(kind(), Kind::BFloat16);
            panic!("unlucky");
        })
    }));
    let why = unlucky.unwrap_err();
    assert_eq!(*why.downcast_ref::<&str>().unwrap(), "unlucky");
    assert_eq!(kind(), Kind::Float);
}

/// Weights that were cast are kept within a forward and dropped after it: they change between
/// steps.
#[test]
fn weights_are_cast_anew_in_each_forward() {
    let ones = Tensor::ones([2, 2], (Kind::Float, Device::Cpu));
    let weight = ones.copy().set_requires_grad(true);
    let forward = || under(Precision::Bf16, || ones.matmul(&weight).sum(Kind::Float));
    assert_eq!(forward().double_value(&[]), 8.0);
    let _ = tch::no_grad(|| weight.shallow_clone().fill_(2.0));
    assert_eq!(forward().double_value(&[]), 16.0);
}

#[test]
fn gradients_are_f32() {
    let ones = Tensor::ones([2, 2], (Kind::Float, Device::Cpu));
    let weight = ones.copy().set_requires_grad(true);
    let product = under(Precision::Bf16, || ones.matmul(&weight));
    assert_eq!(product.kind(), Kind::BFloat16);
    product.sum(Kind::Float).backward();
    assert_eq!(weight.grad().kind(), Kind::Float);
}

/// The setting is the whole process's, and what other tests compute repeats.
#[test]
fn operations_whose_bits_do_not_repeat_are_refused() {
    let compute = |deterministic| Compute {
        device: DeviceChoice::Cpu,
        precision: Precision::F32,
        tf32: true,
        deterministic,
        autotune: false,
        channels_last: false,
    };
    // Its backward adds in any order.
    let pooled = || {
        let map = Tensor::ones([1, 1, 4, 4], (Kind::Float, Device::Cpu));
        let (values, places) =
            map.f_max_pool2d_with_indices([2, 2], [2, 2], [0, 0], [1, 1], false)?;
        values.f_max_unpool2d(&places, [4, 4])
    };
    set_up(&compute(true), Device::Cpu).unwrap();
    let refused = pooled();
    set_up(&compute(false), Device::Cpu).unwrap();
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("deterministic"), "{text}");
    assert_eq!(pooled().unwrap().size(), [1, 1, 4, 4]);
}

/// Losses of a small forecaster that is trained for some steps.
fn trained(precision: Precision) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let spec = ForecastSpec {
        series: fixture::spec(folder.path()),
        step_name: "step".into(),
        channels: 8,
        depth: 2,
        anomalies: true,
    };
    let task = Forecast::new(&spec, 1).unwrap();
    let samples: Vec<usize> = (0..16).collect();
    let batch = task
        .dataset()
        .batch(Asked::of(Split::Train, &samples))
        .unwrap();
    let step = |_| {
        let loss = under(precision, || task.loss(&batch));
        assert_eq!(loss.kind(), Kind::Float);
        loss.backward();
        for (name, tensor, _) in task.tensors() {
            assert_eq!(tensor.grad().kind(), Kind::Float, "{name}");
            let change = tensor.grad() * 0.02;
            let _ = tch::no_grad(|| tensor.shallow_clone().f_sub_(&change).unwrap());
            tensor.shallow_clone().zero_grad();
        }
        loss.double_value(&[])
    };
    (0..30).map(step).collect()
}

#[test]
fn training_in_bf16_follows_f32_closely_but_not_bit_for_bit() {
    let (f32, bf16) = (trained(Precision::F32), trained(Precision::Bf16));
    assert!(f32[29] < 0.9 * f32[0], "it trains: {f32:?}");
    for (step, (want, got)) in f32.iter().zip(&bf16).enumerate() {
        assert!(
            (got / want - 1.0).abs() < 0.02,
            "step {step}: {got}, {want}"
        );
    }
    assert_ne!(f32[29], bf16[29]);
}
