use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tokio::runtime::Runtime;
use tonic::Status;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::rank_process::FRUITLESS_MAX;
use tradewind_client::recorder::Recorder;
use tradewind_client::testing::{Does, FakeCoordinator, FakeShard, Running};
use tradewind_client::verdict::Verdict;
use tradewind_common::record::{Measure, StepRecord};
use tradewind_common::{GroupId, Rank, TensorKind};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;
use tradewind_proto::refusal::{Reason, status};
use tradewind_proto::v1::{
    BeatReply, CopyHolder, DType, Holders, Holding, JoinReply, Placement, PullFrame, PushFrame,
    ServerEndpoint, Verdict as Decision, push_frame,
};

mod departing;
mod drawn;
mod epochs;
mod left_out;
mod scaled;

use super::*;
use crate::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use crate::member::Entry;
use crate::model::{Report, Task, TaskError};

const CONFIG: &str = r#"
[run]
name = "r"

[data]
files = ["none.nc"]
variable = "t"
validation = [10, 20]
held_out = [20, 30]

[train]
samples = 1000000
consistency = "sync"

[optimizer]
learning_rate = 1

[liveness]
heartbeat_ms = 100
"#;

/// Tensors, and their loss.
struct Fake<L> {
    tensors: Vec<(&'static str, Tensor, TensorKind)>,
    loss: L,
}

/// A weight of four values, and its loss.
fn weighted(loss: fn(&Tensor) -> Tensor) -> Box<dyn Task> {
    Box::new(Fake {
        tensors: vec![("weight", weight(), TensorKind::Parameter)],
        loss: move |tensors: &[(&str, Tensor, TensorKind)]| loss(&tensors[0].1),
    })
}

fn squares(weight: &Tensor) -> Tensor {
    weight.square().mean(Kind::Float)
}

struct Ones;

impl Dataset for Ones {
    fn fields(&self) -> Vec<Field> {
        ["input", "target"]
            .map(|name| Field::new(name, Number::F32, &[]))
            .into()
    }

    fn len(&self, _: Split) -> usize {
        1000
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { samples, .. } = asked;
        let ones = || Tensor::ones([samples.len() as i64], (Kind::Float, Device::Cpu));
        Ok(Batch::of(samples)
            .with("input", ones())
            .with("target", ones()))
    }
}

impl<L: Fn(&[(&'static str, Tensor, TensorKind)]) -> Tensor + Send> Task for Fake<L> {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let own = self.tensors.iter();
        own.map(|(name, tensor, kind)| ((*name).to_owned(), tensor.shallow_clone(), *kind))
            .collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(Ones)
    }

    fn loss(&self, _: &Batch) -> Tensor {
        (self.loss)(&self.tensors)
    }

    fn measure(&self, _: Split) -> Result<Measure, TaskError> {
        Err(TaskError::Data(DataError::NoFiles))
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        Err(TaskError::Data(DataError::NoFiles))
    }

    fn notes(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// The answer of a shard that decides everything; the values are the clock.
fn decided(frame: &PushFrame, stop: bool) -> Does<PullFrame> {
    let pull = matches!(frame.action, Some(push_frame::Action::Pull(_)));
    let verdict = if pull {
        Decision::Read
    } else {
        Decision::Applied
    };
    let value = frame.clock as f32 + 1.0;
    let values = [value; 4].map(f32::to_le_bytes).concat();
    Does::Answers(PullFrame {
        block: frame.block,
        clock: frame.clock,
        verdict: verdict.into(),
        version: frame.clock + 1,
        stop: stop && !pull,
        dtype: DType::DtypeF32.into(),
        values: values.into(),
        ..PullFrame::default()
    })
}

fn joined(incarnation: u64, shard: &str) -> JoinReply {
    JoinReply {
        incarnation,
        placement: Some(Placement {
            bucket_bytes: None,
            shards: vec![0],
            holding: Some(Holding {
                generation: 1,
                servers: vec![ServerEndpoint {
                    server: 0,
                    address: shard.into(),
                    incarnation: 1,
                }],
                holders: vec![Holders {
                    primary: Some(0),
                    copies: Vec::<CopyHolder>::new(),
                    ..Holders::default()
                }],
            }),
        }),
        group_size: 1,
        ..JoinReply::default()
    }
}

fn fenced() -> Status {
    status(Reason::NotLive, "another incarnation".into())
}

/// A rank whose coordinator and shard are fakes.
fn member(
    coordinator: &Running,
    overrides: &[&str],
    metrics: Option<&Path>,
    runtime: &Runtime,
) -> Member {
    member_with(coordinator, weighted(squares), overrides, metrics, runtime)
}

fn weight() -> Tensor {
    Tensor::ones([4], (Kind::Float, Device::Cpu)).set_requires_grad(true)
}

fn member_with(
    coordinator: &Running,
    task: Box<dyn Task>,
    overrides: &[&str],
    metrics: Option<&Path>,
    runtime: &Runtime,
) -> Member {
    let overrides: Vec<_> = overrides.iter().map(|text| text.to_string()).collect();
    let config = Config::parse(CONFIG, "c.toml", Path::new("/"), &overrides).unwrap();
    let entry = Entry {
        config,
        group: GroupId(0),
        rank: Rank(0),
        life: 77,
        device: Device::Cpu,
        coordinator: CoordinatorAt::Address(coordinator.address.clone()),
        credentials: Credentials::default(),
    };
    let recorder = Recorder::open(metrics).unwrap();
    let mut member = Member::with_task(entry, task, recorder, runtime.handle()).unwrap();
    member.process.pause = Duration::ZERO;
    member
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// What the shard was told at each clock, `None` for a skip; the steps; and how training ended.
type Trained = (
    Vec<(u64, Option<Vec<f32>>)>,
    Vec<StepRecord>,
    anyhow::Result<()>,
);

/// Trains until the clock `last`, with a shard that takes all.
fn train(task: Box<dyn Task>, staged: bool, last: u64, overrides: &[&str]) -> Trained {
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
    // Each tensor is a block of its own.
    let blocks = task.tensors().len();
    let join = move |before| {
        let mut reply = joined(u64::from(before) + 1, &address);
        reply.placement.as_mut().unwrap().shards = vec![0; blocks];
        Ok(reply)
    };
    let coordinator = FakeCoordinator::beats(|_| Does::Answers(BeatReply::default()));
    let coordinator = coordinator.joined(join).starting(|_| 0);
    let coordinator_runs = coordinator.run();
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("metrics.jsonl");
    let runtime = runtime();
    let mut member = member_with(&coordinator_runs, task, overrides, Some(&metrics), &runtime);
    member.staged = staged;
    let ended = live(&mut member);
    let text = std::fs::read_to_string(&metrics).unwrap();
    let steps = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    (heard, steps.collect(), ended.map(|_| ()))
}

/// The first incarnation is refused by the shard, the second by the coordinator, the third reaches the
/// budget.
#[test]
fn a_rank_enters_until_the_budget_is_applied() {
    // With overlap the last values that came are not the model's.
    let modes = [
        ("train.overlap=0", 1_000_005.0),
        ("train.overlap=1", 1_000_004.0),
        ("exchange.per_bucket=true", 1_000_005.0),
    ];
    for (mode, last) in modes {
        let shard = FakeShard::new(|frame| match (frame.incarnation, frame.clock) {
            (1, 3..) => Does::Ends(Err(fenced())),
            (3, clock) => decided(frame, clock == 1_000_004),
            _ => decided(frame, false),
        });
        let shard_runs = shard.run();
        let address = shard_runs.address.clone();
        let coordinator = FakeCoordinator::beats(|beat| match (beat.incarnation, beat.clock) {
            // Two steps have ended by then, and are written down.
            (2, 103..) => Does::Ends(Err(fenced())),
            _ => Does::Answers(BeatReply::default()),
        });
        let coordinator = coordinator
            .joined(move |before| Ok(joined(u64::from(before) + 1, &address)))
            .starting(|incarnation| [0, 100, 1_000_000][incarnation as usize - 1]);
        let coordinator_runs = coordinator.run();
        let folder = tempfile::tempdir().unwrap();
        let metrics = folder.path().join("metrics.jsonl");
        let runtime = runtime();
        let mut member = member(&coordinator_runs, &[mode], Some(&metrics), &runtime);
        live(&mut member).unwrap();

        let joins = coordinator.joins_heard();
        let processes: Vec<_> = joins.iter().map(|join| (join.life, join.rank)).collect();
        assert_eq!(processes, [(77, 0); 3], "{mode}");
        assert_eq!(coordinator.left(), [3], "{mode}");
        assert_eq!(member.flat.read(), [last; 4], "{mode}");
        // Steps of all incarnations, in one file.
        let text = std::fs::read_to_string(&metrics).unwrap();
        let step = |line| serde_json::from_str::<StepRecord>(line).unwrap().clock;
        let clocks: Vec<u64> = text.lines().map(step).collect();
        let of = |range: std::ops::Range<u64>| {
            let of = clocks.iter().filter(|clock| range.contains(clock));
            of.copied().collect::<Vec<_>>()
        };
        assert_eq!(of(0..100), [0, 1, 2], "{mode}");
        assert!(of(100..1_000_000).len() > 1, "{mode}");
        assert_eq!(
            of(1_000_000..2_000_000),
            (1_000_000..1_000_005).collect::<Vec<u64>>(),
            "{mode}"
        );
    }
}

#[test]
fn a_group_that_comes_when_the_budget_is_applied_pulls_and_leaves() {
    for mode in [
        "train.overlap=0",
        "train.overlap=1",
        "exchange.per_bucket=true",
    ] {
        let shard = FakeShard::new(|frame| match decided(frame, false) {
            Does::Answers(answer) => Does::Answers(PullFrame {
                stop: true,
                ..answer
            }),
            other => other,
        });
        let shard_runs = shard.run();
        let address = shard_runs.address.clone();
        let coordinator = FakeCoordinator::beats(|_| Does::Answers(BeatReply::default()))
            .joined(move |_| Ok(joined(1, &address)))
            .starting(|_| 7);
        let coordinator_runs = coordinator.run();
        let runtime = runtime();
        let mut member = member(&coordinator_runs, &[mode], None, &runtime);
        let end = live(&mut member).unwrap();
        assert_eq!(end, End::Applied, "{mode}");
        let is_pull = |frame: &PushFrame| matches!(frame.action, Some(push_frame::Action::Pull(_)));
        assert!(shard.heard().iter().all(is_pull), "{mode}");
        assert_eq!(member.flat.read(), [1.0; 4], "{mode}");
        assert_eq!(coordinator.left(), [1], "{mode}");
    }
}

#[test]
fn a_rank_whose_incarnations_are_all_in_vain_gives_up() {
    let shard = FakeShard::new(|_| Does::Ends(Err(fenced())));
    let shard_runs = shard.run();
    let address = shard_runs.address.clone();
    let join = move |before| Ok(joined(u64::from(before) + 1, &address));
    let coordinator = FakeCoordinator::joins(join);
    let coordinator_runs = coordinator.run();
    let runtime = runtime();
    let mut member = member(&coordinator_runs, &[], None, &runtime);
    let error = live(&mut member).unwrap_err();
    assert!(
        format!("{error:#}").contains("another incarnation"),
        "{error:#}"
    );
    assert_eq!(verdict(&error), Verdict::Failed);
    assert_eq!(coordinator.joins_heard().len() as u32, FRUITLESS_MAX);
}
