//! Losses that are scaled for f16. Autocast to it works on the CPU as well, though runs may not ask
//! for it there.

use tradewind_client::membership::NoneFinite;

use super::*;
use crate::train_error::TrainError;

const FP16: &str = "compute.precision=\"fp16\"";

/// With f16 the gradient of the product is the scale itself, of which 2^16 overflows and 2^15 does
/// not; that of the weight is 1.
fn product(weight: &Tensor) -> Tensor {
    let ones = Tensor::ones([1, 4], (Kind::Float, Device::Cpu));
    ones.matmul(&weight.view([4, 1])).sum(Kind::Float)
}

/// Overflows whatever the scale.
fn endless(weight: &Tensor) -> Tensor {
    (weight * f64::from(f32::MAX)).square().sum(Kind::Float)
}

#[test]
fn an_overflow_is_skipped_and_counted_and_halves_the_scale() {
    let overlaps = ["train.overlap=0", "train.overlap=1"];
    for (overlap, staged) in overlaps.into_iter().flat_map(|o| [(o, false), (o, true)]) {
        let overrides = [
            FP16,
            overlap,
            "compute.loss_scale=65536.0",
            "compute.loss_scale_steps=2",
        ];
        let (heard, steps, ended) = train(weighted(product), staged, 5, &overrides);
        ended.unwrap();
        // The scale is taken out again, exactly.
        let told = || Some(vec![1.0; 4]);
        let want = [None, told(), told(), None, told(), told()];
        let want: Vec<_> = (0..).zip(want).collect();
        assert_eq!(heard, want, "{overlap} {staged}");
        let seen: Vec<_> = steps
            .iter()
            .map(|step| (step.skipped, step.overflowed, step.loss_scale.unwrap()))
            .collect();
        let (high, low) = ((true, true, 65536.0), (false, false, 32768.0));
        assert_eq!(seen, [high, low, low, high, low, low], "{overlap} {staged}");
        // The loss itself is not scaled: the sum of the weight, which is the clock.
        let losses: Vec<_> = steps.iter().map(|step| step.loss.unwrap()).collect();
        assert!(losses.iter().all(|loss| *loss < 30.0), "{losses:?}");
    }
}

#[test]
fn steps_between_exchanges_that_overflow_are_left_out_of_an_exchange_that_is_not_skipped() {
    let overrides = [
        FP16,
        "local.algorithm=\"diloco\"",
        "local.steps=2",
        "compute.loss_scale=262144.0",
        "compute.loss_scale_steps=100",
    ];
    let (heard, steps, ended) = train(weighted(product), false, 2, &overrides);
    ended.unwrap();
    let pushed: Vec<_> = heard.iter().map(|(_, values)| values.is_some()).collect();
    assert_eq!(pushed, [false, true, true]);
    let seen: Vec<_> = steps
        .iter()
        .map(|step| (step.skipped, step.overflowed, step.local_skipped))
        .collect();
    assert_eq!(
        seen,
        [(true, true, 2), (false, false, 1), (false, false, 0)]
    );
}

#[test]
fn overflows_are_divergence_once_the_scale_is_at_its_least() {
    let (heard, steps, ended) = train(
        weighted(endless),
        false,
        u64::MAX,
        &[FP16, "compute.loss_scale=4.0"],
    );
    let error = ended.unwrap_err();
    // At 4 and 2 the scale can fall.
    let Some(TrainError::Diverged(NoneFinite { clock: 101 })) = error.downcast_ref() else {
        panic!("{error:#}");
    };
    assert_eq!(heard.len(), 102);
    assert!(heard.iter().all(|(_, gradient)| gradient.is_none()));
    let scales: Vec<_> = steps[..4].iter().map(|step| step.loss_scale).collect();
    assert_eq!(scales, [4.0, 2.0, 1.0, 1.0].map(Some));
}
