//! Exchanges by way of memory for them, as models on a device need it, against exchanges that read
//! and write the model's own: the same bits, whatever the mode. In main memory copies are done as
//! late as they may be, so what is read or overwritten too early is wrong every time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tokio::runtime::Runtime;
use tradewind_common::{GroupId, Rank, TensorKind};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::rank::{live, member};
use tradewind_tests::cluster::training::{self, Training};
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::member::Entry;

use super::background::runtime;

const BATCH: usize = 2;
const STEPS: usize = 8;

/// The step in which a gradient is not finite, and the one in which a statistic is not.
const NO_GRADIENT: usize = 3;
const NO_STATISTIC: usize = 5;

/// For a slow and noisy machine; a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sample `i` is a row of cosines of its own.
struct Cosines;

impl Dataset for Cosines {
    fn fields(&self) -> Vec<Field> {
        ["input", "target"]
            .map(|name| Field::new(name, Number::F32, &[4]))
            .into()
    }

    fn len(&self, _split: Split) -> usize {
        1_000
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { samples, .. } = asked;
        let row = |sample: usize| (0..4).map(move |at| ((7 * sample + at) as f32).cos());
        let rows: Vec<f32> = samples.iter().copied().flat_map(row).collect();
        let input = Tensor::from_slice(&rows).reshape([-1, 4]);
        Ok(Batch::of(samples)
            .with("target", input.copy())
            .with("input", input))
    }
}

/// Two layers of irregular values, which are several buckets of several blocks, and a running mean
/// between them.
struct Layers {
    first: Tensor,
    mean: Tensor,
    second: Tensor,
    steps: AtomicUsize,
    /// Whether this rank has steps that are not finite.
    bad: bool,
}

impl Layers {
    fn new(bad: bool) -> Self {
        let values = |shape: [i64; 2], scale: f64| {
            let values = Tensor::arange(shape[0] * shape[1], (Kind::Float, Device::Cpu));
            let values = (values * 0.37 + scale).sin() * scale;
            values.reshape(shape).set_requires_grad(true)
        };
        Self {
            first: values([4, 6], 0.7),
            mean: Tensor::zeros([6], (Kind::Float, Device::Cpu)),
            second: values([6, 4], 0.3),
            steps: AtomicUsize::new(0),
            bad,
        }
    }
}

impl Training for Layers {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let tensor =
            |name: &str, tensor: &Tensor, kind| (name.into(), tensor.shallow_clone(), kind);
        vec![
            tensor("first", &self.first, TensorKind::Parameter),
            tensor("mean", &self.mean, TensorKind::Buffer),
            tensor("second", &self.second, TensorKind::Parameter),
        ]
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(Cosines)
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        let hidden = batch["input"].matmul(&self.first).tanh();
        let mut seen = hidden.detach().mean_dim(0, false, Kind::Float);
        if self.bad && step == NO_STATISTIC {
            seen *= f64::INFINITY;
        }
        let mut mean = self.mean.shallow_clone();
        let _ = mean.g_mul_scalar_(0.75);
        let _ = mean.g_add_(&(seen * 0.25));
        let output = (&hidden - &self.mean).matmul(&self.second);
        let loss = (output - &batch["target"]).square().mean(Kind::Float);
        if self.bad && step == NO_GRADIENT {
            // Of one bucket alone.
            return loss + (&self.second * f64::NAN).sum(Kind::Float);
        }
        loss
    }
}

fn configured(groups: &[u32], settings: &[&str]) -> Config {
    let ranks = groups.iter().sum::<u32>() as usize;
    let text = format!(
        r#"
        run.name = "staged"
        cluster.groups = {groups:?}
        train.batch = {BATCH}
        train.samples = {}
        train.consistency = "sync"
        optimizer.learning_rate = 0.0625
        exchange.block_bytes = 20
        exchange.bucket_bytes = 16
        "#,
        STEPS * ranks * BATCH,
    );
    training::configured(&text, settings)
}

fn rank(entry: Entry, bad: bool, staged: bool, runtime: &Runtime) -> Vec<u32> {
    let mut member = member(entry, Layers::new(bad), runtime.handle());
    member.staged = staged;
    live(&mut member).unwrap_or_else(|error| panic!("{error}"));
    let values = member.flat.read().into_iter();
    values.map(|value| value.to_bits()).collect()
}

/// The bits of all values on each rank after a run. The first rank's steps are not all finite.
fn train(config: &Config, staged: bool) -> Vec<Vec<u32>> {
    let (fleet, runtime) = (Fleet::start(2, ""), Arc::new(runtime()));
    let mut ranks = Vec::new();
    for (group, size) in config.cluster.groups.iter().enumerate() {
        for of_group in 0..*size {
            let entry = Entry {
                config: config.clone(),
                group: GroupId(group as u32),
                rank: Rank(of_group),
                life: 1,
                device: Device::Cpu,
                coordinator: fleet.coordinator(),
                credentials: Credentials::default(),
            };
            let (bad, runtime) = (ranks.is_empty(), runtime.clone());
            let (done, ended) = sync_channel(1);
            thread::spawn(move || done.send(rank(entry, bad, staged, &runtime)));
            ranks.push(ended);
        }
    }
    let end = |ended: std::sync::mpsc::Receiver<_>| ended.recv_timeout(PATIENCE);
    let ends = ranks.into_iter().map(end);
    ends.map(|values| values.expect("it ends well")).collect()
}

fn check(groups: &[u32], settings: &[&str]) {
    let config = configured(groups, settings);
    let [shared, staged] = [false, true].map(|staged| train(&config, staged));
    assert_eq!(shared, staged, "{groups:?} {settings:?}");
    let finite = |bits: &u32| f32::from_bits(*bits).is_finite();
    assert!(
        shared.iter().flatten().all(finite),
        "{groups:?} {settings:?}"
    );
}

const UP: [&str; 3] = ["none", "bf16", "int8"];

fn check_mode(mode: &str) {
    for up in UP {
        let up = format!("exchange.up = {up:?}");
        for groups in [&[1][..], &[2], &[1, 1]] {
            check(groups, &[mode, &up]);
        }
    }
    check(&[2], &[mode, "exchange.down = \"bf16\""]);
}

/// Norms are measured where the model is, of gradients and values as they are pushed from here.
fn check_norms(mode: &str) {
    let lars = ["optimizer.name = \"lars\"", "optimizer.trust = 0.25"];
    let momentum = "optimizer.momentum = 0.5";
    for groups in [&[1][..], &[2], &[1, 1]] {
        check(groups, &[mode, lars[0], lars[1], momentum]);
    }
}

#[test]
fn between_steps() {
    check_mode("train.overlap = 0");
    check_norms("train.overlap = 0");
}

#[test]
fn behind_the_next_step() {
    check_mode("train.overlap = 1");
    check_norms("train.overlap = 1");
}

#[test]
fn during_backward() {
    check_mode("exchange.per_bucket = true");
}
