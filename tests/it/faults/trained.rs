//! Workers train while a server dies: under `sync` the same bits come out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tokio::runtime::Builder;
use tradewind_client::network::Reach;
use tradewind_client::reader::pull;
use tradewind_common::{GroupId, Rank, TensorKind};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;
use tradewind_tests::cluster::fleet::{Fleet, Setup};
use tradewind_tests::cluster::rank::{live, member};
use tradewind_tests::cluster::training::{self, Training};
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::member::{Entry, tensor_specs};

const BATCH: usize = 4;
const STEPS: usize = 30;
const SAMPLES: usize = 64;
const FEATURES: i64 = 24;

/// Steps of the first group before which a server is killed, and begun again.
const KILLED: usize = 10;
const BEGUN: usize = 18;

struct Points;

impl Dataset for Points {
    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("input", Number::F32, &[FEATURES as usize]),
            Field::new("target", Number::F32, &[]),
        ]
    }

    fn len(&self, _split: Split) -> usize {
        SAMPLES
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { samples, .. } = asked;
        let feature = |sample: &usize, i: i64| ((*sample as f32 + 1.0) * (i as f32 + 0.5)).sin();
        let rows = samples.iter();
        let input: Vec<f32> = rows
            .flat_map(|sample| (0..FEATURES).map(move |i| feature(sample, i)))
            .collect();
        let input = Tensor::from_slice(&input).view([-1, FEATURES]);
        Ok(Batch::of(samples)
            .with("target", input.sum_dim_intlist(1, false, Kind::Float))
            .with("input", input))
    }
}

/// A linear fit; what happens before its steps.
struct Line {
    weight: Tensor,
    steps: AtomicUsize,
    before: Box<dyn Fn(usize) + Send + Sync>,
}

impl Line {
    fn new(before: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self {
            weight: Tensor::zeros([FEATURES], (Kind::Float, Device::Cpu)).set_requires_grad(true),
            steps: AtomicUsize::new(0),
            before: Box::new(before),
        }
    }
}

impl Training for Line {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let weight = self.weight.shallow_clone();
        vec![("weight".into(), weight, TensorKind::Parameter)]
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(Points)
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        (self.before)(self.steps.fetch_add(1, Ordering::Relaxed));
        let off = batch["input"].mv(&self.weight) - &batch["target"];
        off.square().mean(Kind::Float)
    }
}

/// The configuration's data are not looked at: the task brings its own.
fn configured() -> Config {
    let text = format!(
        r#"
        run.name = "trained"
        cluster.groups = [1, 1]
        cluster.servers = 3
        servers.replication = 2
        train.batch = {BATCH}
        train.samples = {}
        train.consistency = "sync"
        optimizer.learning_rate = 0.01
        optimizer.momentum = 0.9
        exchange.block_bytes = 16
        exchange.bucket_bytes = 64
        "#,
        STEPS * 2 * BATCH,
    );
    training::configured(&text, &[])
}

/// Trains with two groups of one rank; the bits of what the shards hold at the end.
fn trained(before: impl Fn(&Fleet, usize) + Send + Sync + 'static) -> Vec<u32> {
    let fleet = Arc::new(Setup::of(3).start());
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let config = configured();
    let coordinator = fleet.coordinator();
    let entry = |group| Entry {
        config: config.clone(),
        group: GroupId(group),
        rank: Rank(0),
        life: 1,
        device: Device::Cpu,
        coordinator: coordinator.clone(),
        credentials: Credentials::default(),
    };
    std::thread::scope(|scope| {
        let watched = fleet.clone();
        let tasks = [
            Line::new(move |step| before(&watched, step)),
            Line::new(|_| ()),
        ];
        for (group, task) in (0..).zip(tasks) {
            let (entry, handle) = (entry(group), runtime.handle());
            scope.spawn(move || live(&mut member(entry, task, handle)).unwrap());
        }
    });
    let spec = config.spec(tensor_specs(Line::new(|_| ()).tensors()), SAMPLES as u64);
    let reach = Reach {
        credentials: Credentials::default(),
        retry: Duration::from_secs(10),
        connections: 1,
    };
    let pulled = pull(&config.name, &coordinator, &reach, &spec);
    let values = runtime.block_on(pulled).unwrap().values;
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_failover_changes_no_bit_under_sync() {
    let plain = trained(|_, _| ());
    let failed_over = trained(|fleet, step| match step {
        KILLED => fleet.kill(1),
        BEGUN => fleet.begin(1),
        _ => {}
    });
    assert_eq!(plain, failed_over);
    assert!(plain.iter().all(|bits| f32::from_bits(*bits) != 0.0));
}
