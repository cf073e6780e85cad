//! Exchanges by bucket: what is not finite is skipped by itself, and what fails while backward runs
//! ends the step.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tokio::runtime::{Builder, Runtime};
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::exchange_error::ExchangeError;
use tradewind_common::layout::Block;
use tradewind_common::{GroupId, Layout, Rank, TensorKind};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;
use tradewind_proto::v1::{Pull, PushFrame, push_frame};
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::rank::{live, member};
use tradewind_tests::cluster::training::{self, Training};
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::group::GroupError;
use tradewind_worker::member::{Entry, tensor_specs};
use tradewind_worker::train_error::TrainError;

const BATCH: usize = 2;
const STEPS: usize = 8;

/// The step in which something happens.
const THEN: usize = 3;

/// For a slow and noisy machine; a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

struct Ones;

impl Dataset for Ones {
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
        let ones = Tensor::ones([samples.len() as i64], (Kind::Float, Device::Cpu));
        Ok(Batch::of(samples)
            .with("target", ones.copy())
            .with("input", ones))
    }
}

/// What happens at [`THEN`].
enum Event {
    Nothing,
    /// The gradient of one layer is not finite.
    Poison(&'static str),
    /// There is no loss.
    Fail,
    /// The servers end.
    End(Arc<Mutex<Option<Fleet>>>),
}

/// Three layers, each a bucket, in blocks that do not all end with it, and a statistic in the middle; all begin with 1,
/// every gradient is 1, and the statistic grows by 1 a step.
struct Layers {
    tensors: Vec<(&'static str, Tensor, TensorKind)>,
    event: Event,
    steps: AtomicUsize,
}

impl Layers {
    fn new(event: Event) -> Self {
        let ones = |length| Tensor::ones([length], (Kind::Float, Device::Cpu));
        let layer = |name| {
            let weight = ones(5).set_requires_grad(true);
            (name, weight, TensorKind::Parameter)
        };
        let seen = ("seen", ones(2), TensorKind::Buffer);
        Self {
            tensors: vec![layer("a"), layer("b"), seen, layer("c")],
            event,
            steps: AtomicUsize::new(0),
        }
    }
}

impl Training for Layers {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let all = self.tensors.iter();
        all.map(|(name, tensor, kind)| ((*name).to_owned(), tensor.shallow_clone(), *kind))
            .collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(Ones)
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        let now = self.steps.fetch_add(1, Ordering::Relaxed) == THEN;
        match &self.event {
            Event::Fail if now => return Tensor::from(1f32),
            Event::End(fleet) if now => drop(fleet.lock().unwrap().take()),
            _ => {}
        }
        let mut loss = Tensor::from(0f32);
        for (name, tensor, kind) in &self.tensors {
            let poisoned = now && matches!(self.event, Event::Poison(which) if which == *name);
            match kind {
                TensorKind::Buffer => {
                    let _ = tensor.shallow_clone().g_add_scalar_(1.0);
                }
                TensorKind::Parameter if poisoned => loss += (tensor * f64::NAN).sum(Kind::Float),
                TensorKind::Parameter => {
                    loss += tensor.sum(Kind::Float) * batch["input"].mean(Kind::Float);
                }
            }
        }
        loss
    }
}

/// A lease that outlasts a pause of a busy machine.
const LEASE_MS: u64 = 30_000;

fn configured(groups: &[u32], consistency: &str, lease_ms: u64) -> Config {
    let ranks = groups.iter().sum::<u32>() as usize;
    let text = format!(
        r#"
        run.name = "during"
        cluster.groups = {groups:?}
        train.batch = {BATCH}
        train.samples = {}
        train.consistency = {consistency:?}
        optimizer.learning_rate = 0.0625
        exchange.per_bucket = true
        exchange.block_bytes = 8
        exchange.bucket_bytes = 16
        liveness.lease_ms = {lease_ms}
        liveness.heartbeat_ms = 200
        liveness.retry_ms = {}
        "#,
        STEPS * ranks * BATCH,
        2 * lease_ms,
    );
    training::configured(&text, &[])
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// One rank from its entry to its end, of which it leaves if it was a good one. Its values.
fn rank(entry: Entry, event: Event, runtime: &Runtime) -> Result<Vec<f32>, TrainError> {
    let mut member = member(entry, Layers::new(event), runtime.handle());
    live(&mut member)?;
    Ok(member.flat.read())
}

/// All ranks as threads, the events those of the first ones. What each came to, in order.
fn train(
    config: &Config,
    coordinator: &CoordinatorAt,
    events: Vec<Event>,
) -> Vec<Result<Vec<f32>, TrainError>> {
    let runtime = Arc::new(runtime());
    let mut events = events.into_iter();
    let mut ranks = Vec::new();
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
            let (event, runtime) = (events.next().unwrap_or(Event::Nothing), runtime.clone());
            let (done, ended) = sync_channel(1);
            let thread = thread::spawn(move || {
                let result = rank(entry, event, &runtime);
                done.send(result).expect("somebody waits");
            });
            ranks.push((thread, ended));
        }
    }
    let end = |(thread, ended): (thread::JoinHandle<_>, Receiver<_>)| {
        let result = ended.recv_timeout(PATIENCE).expect("it ends");
        thread.join().expect("it has told");
        result
    };
    ranks.into_iter().map(end).collect()
}

/// Version of every block, as its shard tells.
fn versions(fleet: &Fleet, layout: &Layout) -> Vec<u64> {
    fleet.block_on(async {
        let client = fleet.client().await;
        let mut versions = vec![0; layout.blocks.len()];
        for block in &layout.blocks {
            let frame = PushFrame {
                run: "during".into(),
                group: 0,
                incarnation: 0,
                clock: 0,
                block: block.id.0,
                without_values: true,
                holds: None,
                action: Some(push_frame::Action::Pull(Pull {})),
            };
            for server in 0..2 {
                if let Ok(answer) = client.push(server, frame.clone()).await {
                    versions[block.id.0 as usize] = answer.version;
                }
            }
        }
        versions
    })
}

/// The first rank's gradient of a layer is not finite once.
fn check_poisoned(groups: &[u32], consistency: &str, layer: &'static str) {
    let what = format!("{groups:?} {consistency} {layer}");
    let fleet = Fleet::start(2, "");
    let config = configured(groups, consistency, LEASE_MS);
    let ranks = train(&config, &fleet.coordinator(), vec![Event::Poison(layer)]);
    let values: Vec<_> = ranks.into_iter().map(Result::unwrap).collect();

    let specs = tensor_specs(Layers::new(Event::Nothing).tensors());
    let layout = config.spec(specs, 1_000).check().unwrap();
    let buckets = layout.buckets(config.exchange.bucket_bytes);
    assert_eq!(buckets.len(), 3, "a bucket for each layer");
    let hit = |block: &Block| {
        let (begin, end) = (block.elements.start, block.elements.end);
        let first = layout.tensors.partition_point(|t| t.elements.end <= begin);
        let reached = layout.tensors[first..].iter();
        let mut reached = reached.take_while(|t| t.elements.start < end);
        reached.any(|t| t.spec.name == layer || t.spec.name == "seen")
    };
    let versions = versions(&fleet, &layout);
    let mut hit_blocks = 0;
    for (block, version) in layout.blocks.iter().zip(versions) {
        // Where there is another group, its contribution makes the update.
        let alone = groups.len() == 1;
        let updates = STEPS - usize::from(alone && hit(block));
        hit_blocks += usize::from(hit(block));
        assert_eq!(version, updates as u64, "{what}: {block:?}");
        let want = match block.kind {
            TensorKind::Parameter => 1.0 - 0.0625 * updates as f32,
            TensorKind::Buffer => 1.0 + updates as f32,
        };
        for values in &values {
            let values = &values[block.elements.clone()];
            assert!(
                values.iter().all(|x| *x == want),
                "{what}: {block:?} {values:?}"
            );
        }
    }
    let status = fleet.block_on(async {
        let client = fleet.client().await;
        let (mut skipped, mut applied) = (0, 0);
        for server in 0..2 {
            let status = client.shard_status(server, "during").await.unwrap();
            (skipped, applied) = (skipped + status.skipped, applied + status.applied);
        }
        (skipped, applied)
    });
    let all = groups.len() * STEPS * layout.blocks.len();
    assert_eq!(
        status,
        (hit_blocks as u64, (all - hit_blocks) as u64),
        "{what}"
    );
}

#[test]
fn a_bucket_that_is_not_finite_is_skipped_alone_with_the_statistics() {
    for layer in ["a", "b", "c"] {
        check_poisoned(&[1], "bounded", layer);
    }
    check_poisoned(&[2], "sync", "b");
    check_poisoned(&[2], "async", "a");
    check_poisoned(&[1, 2], "sync", "c");
}

#[test]
fn an_exchange_that_fails_during_backward_ends_the_step() {
    let fleet = Fleet::start(2, "");
    let coordinator = fleet.coordinator();
    let event = Event::End(Arc::new(Mutex::new(Some(fleet))));
    // A short lease: the rank looks for the servers for twice as long, and fails only then.
    let config = configured(&[1], "sync", 3_000);
    let failed = train(&config, &coordinator, vec![event]).remove(0);
    let failed = failed.unwrap_err();
    // The servers cannot be reached, or the lease has gone with them.
    let ended = matches!(
        failed,
        TrainError::Exchange(ExchangeError::Unreachable { .. } | ExchangeError::Refused { .. })
    );
    assert!(ended, "{failed}");
}

#[test]
fn a_peer_that_ends_breaks_the_group_and_nothing_hangs() {
    let fleet = Fleet::start(2, "");
    let config = configured(&[2], "sync", LEASE_MS);
    let events = vec![Event::Nothing, Event::Fail];
    let ranks = train(&config, &fleet.coordinator(), events);
    let errors: Vec<_> = ranks.into_iter().map(Result::unwrap_err).collect();
    let broken = matches!(errors[0], TrainError::Group(GroupError::Broken { .. }));
    assert!(broken, "{}", errors[0]);
    let alone = matches!(errors[1], TrainError::Group(GroupError::Loss(_)));
    assert!(alone, "{}", errors[1]);
}
