//! Losses that are scaled for f16. Autocast to it works on the CPU as well, though runs may not ask
//! for it there.

use std::sync::Mutex;

use super::*;
use crate::train::TrainError;

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

/// What the shard was told at each clock, `None` for a skip; the steps; and how training ended.
type Trained = (
    Vec<(u64, Option<Vec<f32>>)>,
    Vec<StepRecord>,
    anyhow::Result<()>,
);

fn train(loss: fn(&Tensor) -> Tensor, staged: bool, last: u64, overrides: &[&str]) -> Trained {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = heard.clone();
    let shard = FakeShard::new(move |frame| {
        match &frame.action {
            Some(push_frame::Action::Gradient(gradient)) => {
                let values = gradient.values.chunks_exact(4);
                let values = values.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
                let told = (frame.clock, Some(values.collect()));
                ear.lock().unwrap().push(told);
            }
            Some(push_frame::Action::Skip(_)) => ear.lock().unwrap().push((frame.clock, None)),
            _ => {}
        }
        decided(frame, frame.clock == last)
    });
    let shard_runs = shard.run();
    let address = shard_runs.address.clone();
    let coordinator = FakeCoordinator::beats(|_| Does::Answers(BeatReply::default()))
        .joined(move |before| Ok(joined(u64::from(before) + 1, &address)))
        .starting(|_| 0);
    let coordinator_runs = coordinator.run();
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("metrics.jsonl");
    let runtime = runtime();
    let task = Box::new(Weighted(weight(), loss));
    let mut all = vec!["compute.precision=\"fp16\""];
    all.extend_from_slice(overrides);
    let mut member = member_with(&coordinator_runs, task, &all, Some(&metrics), &runtime);
    member.staged = staged;
    let ended = live_pausing(&mut member, Duration::ZERO);
    let text = std::fs::read_to_string(&metrics).unwrap();
    let steps = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    (heard, steps.collect(), ended.map(|_| ()))
}

#[test]
fn an_overflow_is_skipped_and_counted_and_halves_the_scale() {
    let overlaps = ["train.overlap=0", "train.overlap=1"];
    for (overlap, staged) in overlaps.into_iter().flat_map(|o| [(o, false), (o, true)]) {
        let overrides = [
            overlap,
            "compute.loss_scale=65536.0",
            "compute.loss_scale_steps=2",
        ];
        let (heard, steps, ended) = train(product, staged, 5, &overrides);
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
        "local.algorithm=\"diloco\"",
        "local.steps=2",
        "compute.loss_scale=262144.0",
        "compute.loss_scale_steps=100",
    ];
    let (heard, steps, ended) = train(product, false, 2, &overrides);
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
    let (heard, steps, ended) = train(endless, false, u64::MAX, &["compute.loss_scale=4.0"]);
    let error = ended.unwrap_err();
    // At 4 and 2 the scale can fall.
    let Some(TrainError::Diverged { clock: 101 }) = error.downcast_ref() else {
        panic!("{error:#}");
    };
    assert_eq!(heard.len(), 102);
    assert!(heard.iter().all(|(_, gradient)| gradient.is_none()));
    let scales: Vec<_> = steps[..4].iter().map(|step| step.loss_scale).collect();
    assert_eq!(scales, [4.0, 2.0, 1.0, 1.0].map(Some));
}
