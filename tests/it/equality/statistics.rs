//! BatchNorm's running statistics, which are blocks without optimizer: under `sync` the servers
//! hold the mean over all ranks of what each rank's own update made of them. With overlap they
//! are the same, for a group goes on with what it has pushed, and means of running means are running
//! means; only what they follow, the parameters, is one step late.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tokio::runtime::{Builder, Handle};
use tradewind_client::network::Reach;
use tradewind_client::order::permutation;
use tradewind_client::reader::{Pulled, pull};
use tradewind_common::{GroupId, Rank, TensorKind};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::rank::{live, member};
use tradewind_tests::cluster::training::{self, Training};
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::member::{Entry, tensor_specs};

use super::distance;
use When::{Behind, Between, During};

const SAMPLES: usize = 50;
const INPUTS: i64 = 5;
const HIDDEN: i64 = 6;
const BATCH: usize = 4;
const STEPS: usize = 30;
const RATE: f64 = 0.1;

/// Numbers that differ from sample to sample in mean and size, so that every batch has its own
/// statistics.
#[derive(Clone, Copy, Default)]
struct Numbers {
    /// This one is not finite.
    poisoned: Option<usize>,
}

impl Dataset for Numbers {
    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("input", Number::F32, &[INPUTS as usize]),
            Field::new("target", Number::F32, &[1]),
        ]
    }

    fn len(&self, _split: Split) -> usize {
        SAMPLES
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { samples, .. } = asked;
        let row = |sample: &usize| {
            let x = match self.poisoned == Some(*sample) {
                true => f32::NAN,
                false => *sample as f32,
            };
            (0..INPUTS)
                .map(move |column| (x + 1.0).ln() * (x * (column + 1) as f32).sin() + x / 20.0)
        };
        let target = |sample: &usize| (*sample as f32 / 7.0).cos();
        let rows = samples.len() as i64;
        let input: Vec<f32> = samples.iter().flat_map(row).collect();
        let target: Vec<f32> = samples.iter().map(target).collect();
        Ok(Batch::of(samples)
            .with("input", Tensor::from_slice(&input).view([rows, INPUTS]))
            .with("target", Tensor::from_slice(&target).view([rows, 1])))
    }
}

/// A layer, BatchNorm, a layer.
struct Normed {
    /// Name and kind of each, in order of creation.
    tensors: Vec<(&'static str, Tensor, TensorKind)>,
    data: Numbers,
}

impl Normed {
    /// Equal values on every call.
    fn new(data: Numbers) -> Self {
        use TensorKind::{Buffer, Parameter};
        let options = (Kind::Float, Device::Cpu);
        let waves = |rows: i64, columns: i64| {
            let all = (Tensor::arange(rows * columns, options) * 0.7 + 0.3).sin() * 0.5;
            all.view([rows, columns])
        };
        let ones = || Tensor::ones([HIDDEN], options);
        let zeros = || Tensor::zeros([HIDDEN], options);
        let trained = |tensor: Tensor| tensor.set_requires_grad(true);
        let tensors = vec![
            ("into.weight", trained(waves(HIDDEN, INPUTS)), Parameter),
            ("norm.weight", trained(ones()), Parameter),
            ("norm.bias", trained(zeros()), Parameter),
            ("norm.running_mean", zeros(), Buffer),
            ("norm.running_var", ones(), Buffer),
            ("out.weight", trained(waves(1, HIDDEN)), Parameter),
        ];
        Self { tensors, data }
    }

    fn tensor(&self, name: &str) -> Tensor {
        let found = self.tensors.iter().find(|(own, ..)| *own == name);
        found.expect("a tensor of the model").1.shallow_clone()
    }

    /// All values of one kind, in order of creation.
    fn values(&self, wanted: TensorKind) -> Vec<f32> {
        let some = self.tensors.iter().filter(|(_, _, kind)| *kind == wanted);
        let values = |tensor: &Tensor| Vec::<f32>::try_from(tensor.detach().view([-1])).unwrap();
        some.flat_map(|(_, tensor, _)| values(tensor)).collect()
    }
}

impl Training for Normed {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let all = self.tensors.iter();
        all.map(|(name, tensor, kind)| ((*name).to_owned(), tensor.shallow_clone(), *kind))
            .collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(self.data)
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        let hidden = batch["input"].linear::<Tensor>(&self.tensor("into.weight"), None);
        let normed = hidden.batch_norm(
            Some(self.tensor("norm.weight")),
            Some(self.tensor("norm.bias")),
            Some(self.tensor("norm.running_mean")),
            Some(self.tensor("norm.running_var")),
            true,
            0.1,
            1e-5,
            false,
        );
        let out = normed
            .tanh()
            .linear::<Tensor>(&self.tensor("out.weight"), None);
        (out - &batch["target"]).square().mean(Kind::Float)
    }
}

/// What should come out: each rank is a model of its own on its own part of the batch; their
/// gradients and their statistics are averaged by hand. Steps that are not finite are as if they
/// had not been. With overlap the parameters that the ranks hold are one update behind.
fn plain_loop(seed: u64, ranks: usize, overlap: bool, data: Numbers) -> Normed {
    let models: Vec<Normed> = (0..ranks).map(|_| Normed::new(data)).collect();
    let servers = Normed::new(data);
    let per_epoch = SAMPLES / (ranks * BATCH);
    let mut applied = 0;
    for step in 0.. {
        if applied == STEPS {
            break;
        }
        let order = permutation(seed, (step / per_epoch) as u64, SAMPLES);
        let parts = order.chunks(BATCH).skip(step % per_epoch * ranks);
        for (model, part) in models.iter().zip(parts) {
            let samples: Vec<usize> = part.iter().map(|sample| *sample as usize).collect();
            model
                .loss(&data.batch(Asked::of(Split::Train, &samples)).unwrap())
                .backward();
        }
        applied += usize::from(tch::no_grad(|| update(&servers, &models, overlap)));
    }
    servers
}

/// Whether it was one.
fn update(servers: &Normed, models: &[Normed], overlap: bool) -> bool {
    let mean = |name: &str, each: &dyn Fn(&Tensor) -> Tensor| {
        let all = models.iter().map(|model| each(&model.tensor(name)));
        let all: Vec<Tensor> = all.collect();
        Tensor::stack(&all, 0).mean_dim([0i64].as_slice(), false, Kind::Float)
    };
    let tensors = || servers.tensors.iter();
    let fresh = tensors().map(|(name, tensor, kind)| match kind {
        TensorKind::Parameter => tensor - mean(name, &Tensor::grad) * RATE,
        TensorKind::Buffer => mean(name, &Tensor::copy),
    });
    let fresh: Vec<Tensor> = fresh.collect();
    let finite = |tensor: &Tensor| bool::try_from(tensor.isfinite().all()).unwrap();
    let applies = fresh.iter().all(finite);
    for ((name, tensor, kind), fresh) in tensors().zip(&fresh) {
        let before = tensor.copy();
        if applies {
            tensor.shallow_clone().copy_(fresh);
        }
        let late = overlap && *kind == TensorKind::Parameter;
        for model in models {
            let mut own = model.tensor(name);
            own.copy_(if late { &before } else { tensor });
            own.zero_grad();
        }
    }
    applies
}

/// When exchanges run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Between,
    Behind,
    During,
}

/// A `sync` run of these groups. The configuration's data are not looked at: the task brings its
/// own.
fn configured(groups: &[u32], when: When) -> Config {
    let ranks = groups.iter().sum::<u32>() as usize;
    let text = format!(
        r#"
        run.name = "normed"
        cluster.groups = {groups:?}
        train.batch = {BATCH}
        train.samples = {}
        train.consistency = "sync"
        train.overlap = {}
        exchange.per_bucket = {}
        optimizer.learning_rate = {RATE}
        exchange.block_bytes = 16
        exchange.bucket_bytes = 64
        "#,
        STEPS * ranks * BATCH,
        u8::from(when == Behind),
        when == During,
    );
    training::configured(&text, &[])
}

/// One rank from its entry to its leave, as the worker's main has it.
fn rank(entry: Entry, data: Numbers, runtime: &Handle) {
    let mut member = member(entry, Normed::new(data), runtime);
    live(&mut member).unwrap();
}

/// Trains with the groups' ranks as threads, and reads from the servers what came of it.
fn trained(config: &Config, data: Numbers) -> Normed {
    let fleet = Fleet::start(2, "");
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let coordinator = &fleet.coordinator();
    thread::scope(|scope| {
        for (group, size) in config.cluster.groups.iter().enumerate() {
            for of_group in 0..*size {
                let entry = Entry {
                    config: config.clone(),
                    group: GroupId(group as u32),
                    rank: Rank(of_group),
                    life: 1,
                    device: Device::Cpu,
                    coordinator: coordinator.clone(),
                    credentials: Credentials::default(),
                };
                let handle = runtime.handle();
                scope.spawn(move || rank(entry, data, handle));
            }
        }
    });
    let model = Normed::new(data);
    let spec = config.spec(tensor_specs(model.tensors()), SAMPLES as u64);
    let reach = Reach {
        credentials: Credentials::default(),
        retry: Duration::from_secs(10),
        connections: 1,
    };
    let pulled = pull(&config.name, coordinator, &reach, &spec);
    let Pulled { layout, values } = runtime.block_on(pulled).unwrap();
    for placed in &layout.tensors {
        let fresh = Tensor::from_slice(&values[placed.elements.clone()]);
        let mut tensor = model.tensor(&placed.spec.name);
        tch::no_grad(|| tensor.copy_(&fresh.view_as(&tensor)));
    }
    model
}

fn check(groups: &[u32], when: When, data: Numbers) {
    let before = Normed::new(data);
    let config = configured(groups, when);
    let ranks = groups.iter().sum::<u32>() as usize;
    let got = trained(&config, data);
    let want = plain_loop(config.seed, ranks, when == Behind, data);
    for kind in [TensorKind::Buffer, TensorKind::Parameter] {
        let moved = distance(&before.values(kind), &want.values(kind));
        let difference = distance(&got.values(kind), &want.values(kind));
        let what = format!("{groups:?} {when:?} {kind:?}");
        println!("{what}: {difference:.1e} of a change by {moved:.1e}");
        assert!(moved > 0.1, "{what}: {moved:.1e}");
        assert!(difference <= 1e-5, "{what}: {difference:.1e}");
    }
}

#[test]
fn running_statistics_are_the_mean_over_all_ranks() {
    for groups in [&[1][..], &[2], &[1, 1], &[2, 2], &[1, 2]] {
        for when in [Between, Behind, During] {
            check(groups, when, Numbers::default());
        }
    }
}

/// A group without a finite gradient brings no statistics either, and takes what the servers hold.
#[test]
fn a_skipped_step_leaves_no_trace() {
    let data = Numbers { poisoned: Some(17) };
    for groups in [&[1][..], &[2]] {
        for when in [Between, Behind, During] {
            check(groups, when, data);
        }
    }
}
