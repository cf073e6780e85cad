//! Steps between exchanges on real servers, against the algorithms computed elsewhere.

mod delayed;
mod diloco;
mod elastic;
mod fitted;
mod turns;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tokio::runtime::Builder;
use tradewind_client::recorder::Recorder;
use tradewind_common::{GroupId, Rank, TensorKind};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::rank::{live, member};
use tradewind_tests::cluster::training::{self, Training};
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::member::Entry;
use turns::Turns;

const BATCH: usize = 2;

/// For a slow and noisy machine; a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Shapes of the parameters: a matrix, and a vector.
const SHAPES: [&[i64]; 2] = [&[4, 3], &[3]];

/// Group and rank of it.
type Who = (usize, usize);

/// What a step began with.
#[derive(Clone, Debug, PartialEq)]
struct Begun {
    /// Its batch.
    samples: Vec<usize>,
    /// The parameters, one after the other.
    values: Vec<f32>,
}

type Log = Arc<Mutex<Vec<Begun>>>;

/// Irregular numbers.
fn numbers(seed: usize, shape: &[i64]) -> Tensor {
    let count = shape.iter().product::<i64>();
    let values = Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.7 + seed as f64 * 1.3;
    values.cos().reshape(shape)
}

/// The parameters before the first step.
fn initial() -> Vec<Tensor> {
    let values = SHAPES.iter().zip(1..);
    let values = values.map(|(shape, seed)| numbers(seed, shape) * 0.5);
    values
        .map(|values| values.set_requires_grad(true))
        .collect()
}

/// The loss of a rank in a step, which takes no sample: what a rank learns does not depend on which
/// data it is given.
fn loss((group, rank): Who, step: usize, parameters: &[Tensor]) -> Tensor {
    let seed = 100 * group + 10 * rank + 7 * step;
    let (input, target) = (numbers(seed, &[5, 4]), numbers(seed + 3, &[5, 3]));
    let output = input.matmul(&parameters[0]).tanh() + &parameters[1];
    (output - target).square().mean(Kind::Float)
}

fn values(parameters: &[Tensor]) -> Vec<f32> {
    let one = |tensor: &Tensor| Vec::<f32>::try_from(tensor.detach().reshape([-1])).unwrap();
    parameters.iter().flat_map(one).collect()
}

/// The same in f64.
fn double(parameters: &[Tensor]) -> Vec<f64> {
    values(parameters).into_iter().map(f64::from).collect()
}

/// Gives the parameters these values.
fn set(parameters: &[Tensor], values: &[f64]) {
    let mut start = 0;
    for parameter in parameters {
        let part = Tensor::from_slice(&values[start..start + parameter.numel()]);
        tch::no_grad(|| parameter.shallow_clone().copy_(&part.reshape_as(parameter)));
        start += parameter.numel();
    }
}

/// The gradient of a rank's loss in a step, at these values.
fn gradient(who: Who, step: usize, values: &[f64]) -> Vec<f64> {
    let parameters = initial();
    set(&parameters, values);
    loss(who, step, &parameters).backward();
    let gradients: Vec<Tensor> = parameters.iter().map(Tensor::grad).collect();
    double(&gradients)
}

struct Nothing;

impl Dataset for Nothing {
    fn fields(&self) -> Vec<Field> {
        ["input", "target"]
            .map(|name| Field::new(name, Number::F32, &[]))
            .into()
    }

    fn len(&self, _split: Split) -> usize {
        1_000
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { samples, .. } = asked;
        let zeros = || Tensor::zeros([samples.len() as i64], (Kind::Float, Device::Cpu));
        Ok(Batch::of(samples)
            .with("input", zeros())
            .with("target", zeros()))
    }
}

/// What goes wrong in a rank.
#[derive(Clone, Copy, Default)]
struct Bad {
    /// Steps without a finite gradient.
    gradient: &'static [usize],
    /// Steps whose gradient is finite, and too large for two of them.
    huge: &'static [usize],
}

/// Of a step that is huge.
const HUGE: f32 = 3e38;

/// A rank that writes down what each of its steps begins with.
struct Probe {
    who: Who,
    parameters: Vec<Tensor>,
    steps: AtomicUsize,
    log: Log,
    bad: Bad,
    turns: Option<Turns>,
}

impl Training for Probe {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let named = ["weight", "bias"].into_iter().zip(&self.parameters);
        let tensor = |(name, tensor): (&str, &Tensor)| {
            (name.into(), tensor.shallow_clone(), TensorKind::Parameter)
        };
        named.map(tensor).collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(Nothing)
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        if let Some(turns) = &self.turns
            && step.is_multiple_of(turns.steps)
        {
            turns.take(step == 0);
        }
        self.log.lock().unwrap().push(Begun {
            samples: batch.samples.clone(),
            values: values(&self.parameters),
        });
        if self.bad.huge.contains(&step) {
            let sums = self.parameters.iter().map(|tensor| tensor.sum(Kind::Float));
            return sums.reduce(|a, b| a + b).unwrap() * f64::from(HUGE);
        }
        let loss = loss(self.who, step, &self.parameters);
        match self.bad.gradient.contains(&step) {
            true => loss * f64::NAN,
            false => loss,
        }
    }
}

/// A run of `updates` contributions of each group, as far as samples go; settings are TOML.
fn configured(groups: &[u32], steps: usize, updates: usize, settings: &[&str]) -> Config {
    let ranks = groups.iter().sum::<u32>() as usize;
    let text = format!(
        r#"
        run.name = "local"
        cluster.groups = {groups:?}
        train.batch = {BATCH}
        train.samples = {}
        local.steps = {steps}
        exchange.block_bytes = 20
        exchange.bucket_bytes = 16
        "#,
        updates * steps * ranks * BATCH,
    );
    training::configured(&text, settings)
}

/// How a run differs from what its configuration says.
#[derive(Default)]
struct Differs {
    /// Exchanges go by way of memory for them.
    staged: bool,
    /// Of the first rank.
    bad: Bad,
    /// One for each group, which has one rank.
    turns: Vec<Turns>,
    /// A rank that beats so rarely that it does not hear how fast others are.
    deaf: Option<Who>,
    /// Where the first ranks of groups write their steps down.
    metrics: Option<PathBuf>,
}

/// What the steps of each rank have begun with.
fn train(config: &Config, differs: Differs) -> BTreeMap<Who, Vec<Begun>> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    let (fleet, runtime) = (Fleet::start(2, ""), Arc::new(runtime.unwrap()));
    let mut turns = differs.turns.into_iter();
    let (mut ranks, mut logs) = (Vec::new(), BTreeMap::new());
    for (group, size) in config.cluster.groups.iter().enumerate() {
        for rank in 0..*size {
            let (who, log) = ((group, rank as usize), Log::default());
            let mut config = config.clone();
            if differs.deaf == Some(who) {
                config.liveness.heartbeat_ms = config.liveness.lease_ms / 3;
            }
            let entry = Entry {
                config,
                group: GroupId(group as u32),
                rank: Rank(rank),
                life: 1,
                device: Device::Cpu,
                coordinator: fleet.coordinator(),
                credentials: Credentials::default(),
            };
            logs.insert(who, log.clone());
            let probe = Probe {
                who,
                parameters: initial(),
                steps: AtomicUsize::new(0),
                log,
                bad: if ranks.is_empty() {
                    differs.bad
                } else {
                    Bad::default()
                },
                turns: turns.next(),
            };
            let (staged, runtime) = (differs.staged, runtime.clone());
            let recorder = Recorder::open(differs.metrics.as_deref()).unwrap();
            let (done, ended) = sync_channel(1);
            thread::spawn(move || {
                let mut member = member(entry, probe, runtime.handle());
                member.staged = staged;
                member.recorder = recorder;
                let lived = live(&mut member).map_err(|error| error.to_string());
                drop(member);
                done.send(lived)
            });
            ranks.push(ended);
        }
    }
    for ended in ranks {
        let lived = ended.recv_timeout(PATIENCE).expect("it ends");
        lived.expect("it ends well");
    }
    let taken = |(who, log): (Who, Log)| (who, std::mem::take(&mut *log.lock().unwrap()));
    logs.into_iter().map(taken).collect()
}

/// That a rank's steps began with what they should have.
fn check_log(got: &[Begun], want: &[Vec<f64>], tolerance: f64) {
    assert!(!want.is_empty() && got.len() >= want.len(), "{}", got.len());
    for (step, (got, want)) in got.iter().zip(want).enumerate() {
        for (got, want) in got.values.iter().zip(want) {
            let near = (f64::from(*got) - want).abs() <= tolerance * want.abs().max(1.0);
            assert!(near, "step {step}: {got}, not {want}");
        }
    }
}
