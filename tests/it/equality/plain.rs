//! The forecaster trained by `tradewind run`: the same values as the plain loop, up to the order
//! of sums, however the samples of a step are divided among ranks and groups; and the same bits
//! wherever nothing but the placement differs.

use std::fs;

use safetensors::SafeTensors;
use tch::Tensor;
use tch::nn::{self, OptimizerConfig};
use tradewind_client::order::permutation;
use tradewind_config::Config;
use tradewind_tests::cluster::root;
use tradewind_tests::cluster::run::{Ended, Run};
use tradewind_worker::data::{Asked, Split};
use tradewind_worker::member::build_task;
use tradewind_worker::model::Task;

use super::distance;

/// Samples of all ranks in a step. An epoch has 21 such batches and a rest, so that the runs go on
/// into the third.
pub(super) const STEP_SAMPLES: usize = 8;

pub(super) const STEPS: usize = 50;

pub(super) const RATE: f64 = 0.01;

/// Of the parameters, relative, as an L2 norm.
const TOLERANCE: f64 = 1e-5;

pub(super) const SYNC: (&str, &str) = ("train.consistency", "\"sync\"");

const MOMENTUM: [(&str, &str); 3] = [
    ("optimizer.momentum", "0.9"),
    ("optimizer.nesterov", "true"),
    ("optimizer.weight_decay", "0.01"),
];

fn with_momentum() -> nn::Sgd {
    nn::Sgd {
        momentum: 0.9,
        dampening: 0.0,
        wd: 0.01,
        nesterov: true,
    }
}

pub(super) type Keys<'a> = &'a [(&'static str, &'a str)];

/// A run whose groups take [`STEP_SAMPLES`] a step together.
pub(super) fn divided(groups: &[u32], keys: Keys<'_>) -> Run {
    let ranks = groups.iter().sum::<u32>() as usize;
    let run = Run::new()
        .key("cluster.groups", format!("{groups:?}"))
        .key("model.channels", "4")
        .key("model.depth", "1")
        .key("train.batch", (STEP_SAMPLES / ranks).to_string())
        .key("train.samples", (STEPS * STEP_SAMPLES).to_string())
        .key("optimizer.learning_rate", RATE.to_string());
    keys.iter()
        .fold(run, |run, (key, value)| run.key(key, *value))
}

pub(super) fn complete(run: Run) -> Ended {
    let ended = run.complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    ended
}

/// Parameters before and after the loop, in name order.
pub(super) struct Plain {
    pub(super) before: Vec<f32>,
    pub(super) after: Vec<f32>,
}

/// What the loops train, by no optimizer in particular.
pub(super) fn configured() -> (Config, Box<dyn Task>) {
    let text = divided(&[1], &[]).text();
    let config = Config::parse(&text, "config.toml", root(), &[]).unwrap();
    let task = build_task(&config).unwrap();
    (config, task)
}

/// The training loop without Tradewind; an update takes the parameters, which have gradients.
pub(super) fn plain_loop(mut update: impl FnMut(&[Tensor])) -> Plain {
    loop_in_parts(1, |parameters, _| update(parameters))
}

/// The same; an update takes the parameters, and their gradients on each of so many equal parts of
/// the batch. Of the last part they are the parameters', too.
pub(super) fn loop_in_parts(
    parts: usize,
    mut update: impl FnMut(&[Tensor], &[Vec<Tensor>]),
) -> Plain {
    let (config, task) = configured();
    let data = task.dataset();
    let per_epoch = task.samples() / STEP_SAMPLES;
    assert!(STEPS > 2 * per_epoch && !task.samples().is_multiple_of(STEP_SAMPLES));
    let mut named = task.tensors();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let parameters: Vec<Tensor> = named.into_iter().map(|(_, tensor, _)| tensor).collect();
    let before = values(&parameters);
    for step in 0..STEPS {
        let order = permutation(config.seed, (step / per_epoch) as u64, task.samples());
        let first = step % per_epoch * STEP_SAMPLES;
        let samples = order[first..first + STEP_SAMPLES].iter();
        let samples: Vec<usize> = samples.map(|sample| *sample as usize).collect();
        let parts = samples.chunks(STEP_SAMPLES / parts).map(|part| {
            for parameter in &parameters {
                parameter.shallow_clone().zero_grad();
            }
            let batch = data.batch(Asked::of(Split::Train, part)).unwrap();
            task.loss(&batch).backward();
            parameters
                .iter()
                .map(|parameter| parameter.grad().copy())
                .collect()
        });
        let gradients: Vec<Vec<Tensor>> = parts.collect();
        update(&parameters, &gradients);
    }
    let after = values(&parameters);
    Plain { before, after }
}

pub(super) fn values(tensors: &[Tensor]) -> Vec<f32> {
    let one = |tensor: &Tensor| Vec::<f32>::try_from(tensor.detach().view([-1])).unwrap();
    tensors.iter().flat_map(one).collect()
}

fn by_hand() -> Plain {
    plain_loop(|parameters| {
        tch::no_grad(|| {
            for parameter in parameters {
                let _ = parameter.shallow_clone().g_sub_(&(parameter.grad() * RATE));
            }
        });
    })
}

fn by_libtorch(optimizer: nn::Sgd) -> Plain {
    let mut optimizer = optimizer.build_copt(RATE).unwrap();
    let mut known = false;
    plain_loop(move |parameters| {
        if !known {
            for parameter in parameters {
                optimizer.add_parameters(parameter, 0).unwrap();
            }
            known = true;
        }
        optimizer.step().unwrap();
    })
}

/// The values in `model.safetensors`, in name order.
pub(super) fn trained(ended: &Ended) -> Vec<f32> {
    let bytes = fs::read(ended.out().join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = file.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let values = tensors
        .iter()
        .flat_map(|(_, tensor)| tensor.data().as_chunks().0);
    values.map(|word| f32::from_le_bytes(*word)).collect()
}

fn check(plain: &Plain, groups: &[u32], keys: Keys<'_>) {
    let moved = distance(&plain.before, &plain.after);
    assert!(
        moved > 1000.0 * TOLERANCE,
        "too little to tell: {moved:.1e}"
    );
    let ended = complete(divided(groups, keys));
    let difference = distance(&trained(&ended), &plain.after);
    println!("{groups:?} {keys:?}: {difference:.1e} of a change by {moved:.1e}");
    assert!(
        difference <= TOLERANCE,
        "{groups:?} {keys:?}: {difference:.1e}"
    );
}

#[test]
fn one_rank_equals_the_plain_loop() {
    let plain = by_hand();
    for policy in ["\"sync\"", "\"bounded\"", "\"async\""] {
        check(&plain, &[1], &[("train.consistency", policy)]);
    }
}

#[test]
fn one_rank_with_momentum_equals_libtorchs_optimizer() {
    check(&by_libtorch(with_momentum()), &[1], &MOMENTUM);
}

#[test]
fn ranks_and_groups_equal_one_rank_on_the_union_of_their_batches() {
    let plain = by_libtorch(with_momentum());
    let mut keys = vec![SYNC, ("cluster.servers", "2")];
    keys.extend(MOMENTUM);
    for groups in [&[2][..], &[4], &[1, 1], &[2, 2], &[1, 3]] {
        check(&plain, groups, &keys);
    }
}

#[test]
fn bits_follow_from_the_seed_and_not_from_the_servers() {
    let of = |servers: &str, seed: &str, more: Keys<'_>| {
        let mut keys = vec![SYNC, ("cluster.servers", servers), ("run.seed", seed)];
        keys.extend(more);
        let summary = complete(divided(&[2, 2], &keys)).summary();
        summary["params_digest"]
            .as_str()
            .expect("a digest")
            .to_owned()
    };
    let digest = |servers: &str, seed: &str| of(servers, seed, &MOMENTUM);
    let first = digest("1", "1");
    assert_eq!(digest("1", "1"), first, "the same run again");
    assert_eq!(digest("2", "1"), first, "two servers");
    assert_eq!(digest("3", "1"), first, "three servers");
    assert_ne!(digest("1", "2"), first, "another seed");
    for more in [
        &[("optimizer.name", "\"lars\""), ("train.overlap", "1")][..],
        &[
            ("local.algorithm", "\"diloco\""),
            ("local.steps", "5"),
            ("local.learning_rate", "0.001"),
            ("optimizer.name", "\"outer-nesterov\""),
            ("optimizer.momentum", "0.9"),
        ],
    ] {
        assert_eq!(of("2", "1", more), of("2", "1", more), "{more:?}");
    }
}
