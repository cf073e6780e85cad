//! A rank that trains one large vector: nothing but its exchange takes time.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::recorder::Recorder;
use tradewind_client::stopwatch::wall;
use tradewind_common::record::Measure;
use tradewind_common::{GroupId, Rank, TensorKind};
use tradewind_programs::worker::{CoordinatorArgument, TrainArguments};
use tradewind_proto::auth::Credentials;
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::lives::live;
use tradewind_worker::member::{Entry, Member};
use tradewind_worker::model::{Report, Task, TaskError};
use tradewind_worker::{device, precision};

use crate::plain::read;
use crate::process::own;

/// Values in a tensor, at most: as large a bucket as is usual.
const TENSOR_VALUES: u64 = 1 << 20;

/// The arguments of `tradewind-gpu-check bulk`: those of a rank, whose task does not matter.
#[derive(Debug, clap::Args)]
pub(crate) struct BulkArguments {
    /// Of the vector.
    #[arg(long)]
    pub(crate) bytes: u64,
    /// As `tradewind-worker train` is told; host, threads and GPU do not matter.
    #[command(flatten)]
    pub(crate) train: TrainArguments,
}

impl BulkArguments {
    /// What starts this program with them.
    pub(crate) fn to_command(&self) -> anyhow::Result<Command> {
        let mut command = own(&["bulk".into(), format!("--bytes={}", self.bytes)])?;
        command.args(self.train.words());
        Ok(command)
    }

    pub(crate) fn run(self) -> anyhow::Result<()> {
        tch::set_num_threads(1);
        let config = read(&self.train.config)?;
        let device = device::open(&config.compute, 0)?;
        precision::set_up(&config.compute, device)?;
        let entry = Entry {
            config,
            group: GroupId(self.train.group),
            rank: Rank(self.train.rank),
            life: (wall() * 1e9) as u64,
            device,
            coordinator: match self.train.coordinator {
                CoordinatorArgument::Address(address) => CoordinatorAt::Address(address),
                CoordinatorArgument::File(file) => CoordinatorAt::File(file),
            },
            credentials: Credentials::from_env()?,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let recorder = Recorder::open(self.train.metrics.as_deref())?;
        let task = Box::new(Bulk::new(self.bytes));
        let member = Member::with_task(entry, task, recorder, runtime.handle());
        live(&mut member?).map(|_| ())
    }
}

/// The sum of all values: its gradient is made by one filling of memory.
struct Bulk(Vec<Tensor>);

impl Bulk {
    fn new(bytes: u64) -> Self {
        let values = bytes / 4;
        let starts = (0..values).step_by(TENSOR_VALUES as usize);
        let tensor = |start| {
            let length = TENSOR_VALUES.min(values - start) as i64;
            let zeros = Tensor::zeros([length], (Kind::Float, Device::Cpu));
            zeros.set_requires_grad(true)
        };
        Self(starts.map(tensor).collect())
    }
}

impl Task for Bulk {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let all = self.0.iter().enumerate();
        all.map(|(at, tensor)| {
            (
                at.to_string(),
                tensor.shallow_clone(),
                TensorKind::Parameter,
            )
        })
        .collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(Nothing)
    }

    fn loss(&self, _: &Batch) -> Tensor {
        let sums: Vec<Tensor> = self
            .0
            .iter()
            .map(|tensor| tensor.sum(Kind::Float))
            .collect();
        Tensor::stack(&sums, 0).sum(Kind::Float)
    }

    fn measure(&self, _: Split) -> Result<Measure, TaskError> {
        unreachable!("nobody evaluates it")
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        unreachable!("nobody evaluates it")
    }

    fn notes(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// Samples that cost nothing.
struct Nothing;

impl Dataset for Nothing {
    fn fields(&self) -> Vec<Field> {
        ["input", "target"]
            .map(|name| Field::new(name, Number::F32, &[]))
            .into()
    }

    fn len(&self, _: Split) -> usize {
        1 << 20
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { samples, .. } = asked;
        let none = || Tensor::zeros([samples.len() as i64, 1], (Kind::Float, Device::Cpu));
        Ok(Batch::of(samples)
            .with("input", none())
            .with("target", none()))
    }
}
