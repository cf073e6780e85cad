//! The plain training loop of libtorch, for comparison: the same model, the same data prepared in
//! the same way, the optimizer on the device, and nothing of Tradewind.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tch::nn::{self, OptimizerConfig};
use tch::{COptimizer, Device, Tensor};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::TensorKind;
use tradewind_common::optimizer;
use tradewind_common::spec::OptimizerSpec;
use tradewind_config::{Config, Precision};
use tradewind_process::usage::cpu_seconds;
use tradewind_worker::data::Batch;
use tradewind_worker::member::build_task;
use tradewind_worker::model::Task;
use tradewind_worker::precision::autocast;
use tradewind_worker::{device, precision};

use crate::batches::Batches;
use crate::exact::double;

/// Steps before those on one batch, in which readers come to rest.
const RESIDENT_WARMUP: u64 = 2;

/// What to train, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration: task, device, precision, batch, readers, optimizer.
    #[arg(long)]
    config: PathBuf,
    /// Steps that are not timed.
    #[arg(long)]
    warmup: u64,
    /// Steps that are.
    #[arg(long)]
    steps: u64,
    /// File for what was found.
    #[arg(long)]
    out: PathBuf,
    /// Then time so many steps on one batch that stays on the device: what it can do where it never waits.
    #[arg(long, default_value_t = 0)]
    resident: u64,
    /// Compute in f64.
    #[arg(long)]
    double: bool,
}

/// A configuration that the check has written.
pub(crate) fn read(path: &Path) -> anyhow::Result<Config> {
    let text = fs::read_to_string(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    Ok(Config::parse(
        &text,
        &path.display().to_string(),
        folder,
        &[],
    )?)
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        // As a rank does.
        tch::set_num_threads(1);
        let config = read(&self.config)?;
        let device = device::open(&config.compute, 0)?;
        precision::set_up(&config.compute, device)?;
        let mut plain = Plain::new(&config, device, self.double)?;
        let mut batches = Batches::new(&config, &*plain.task, device, self.double)?;
        let mut losses = Vec::new();
        for _ in 0..self.warmup {
            losses.push(plain.step(&batches.next()?)?);
        }
        wait_for(losses.last());
        let mut timed = Timed::start();
        for _ in 0..self.steps {
            let waits = Stopwatch::start();
            let batch = batches.next()?;
            timed.data_seconds += waits.elapsed().as_secs_f64();
            losses.push(plain.step(&batch)?);
        }
        wait_for(losses.last());
        let mut found = timed.found(self.steps);
        if self.resident > 0 {
            let step_seconds = plain.resident(&batches.next()?, self.resident)?;
            found["resident_step_seconds"] = step_seconds.into();
        }
        let losses = losses.iter().map(|loss| loss.double_value(&[]));
        found["losses"] = losses.collect::<Vec<f64>>().into();
        fs::write(&self.out, found.to_string())?;
        Ok(())
    }
}

/// A task in training.
struct Plain {
    task: Box<dyn Task>,
    optimizer: COptimizer,
    precision: Precision,
    device: Device,
}

impl Plain {
    fn new(config: &Config, device: Device, as_double: bool) -> anyhow::Result<Self> {
        let task = build_task(config)?;
        if as_double {
            double(&*task);
        }
        let mut optimizer = optimizer(config)?;
        for (_, mut tensor, kind) in task.tensors() {
            let there = tch::no_grad(|| tensor.to_device(device));
            tensor.set_data(&there);
            if kind == TensorKind::Parameter {
                optimizer.add_parameters(&tensor, 0)?;
            }
        }
        Ok(Self {
            task,
            optimizer,
            precision: config.compute.precision,
            device,
        })
    }

    /// One step; returns its loss, for which nobody has waited.
    fn step(&mut self, batch: &Batch) -> anyhow::Result<Tensor> {
        self.optimizer.zero_grad()?;
        let loss = autocast(self.precision, self.device, || self.task.loss(batch))?;
        loss.backward();
        self.optimizer.step()?;
        Ok(loss.detach())
    }

    /// Seconds of a step, of so many on one batch.
    fn resident(&mut self, batch: &Batch, steps: u64) -> anyhow::Result<f64> {
        let mut last = Tensor::new();
        let mut watch = Stopwatch::start();
        for step in 0..RESIDENT_WARMUP + steps {
            if step == RESIDENT_WARMUP {
                wait_for(Some(&last));
                watch = Stopwatch::start();
            }
            last = self.step(batch)?;
        }
        wait_for(Some(&last));
        Ok(watch.elapsed().as_secs_f64() / steps as f64)
    }
}

/// What steps that are timed take.
struct Timed {
    watch: Stopwatch,
    /// Of the process, at the beginning.
    cpu_seconds: Option<f64>,
    /// In which batches were waited for.
    data_seconds: f64,
}

impl Timed {
    fn start() -> Self {
        Self {
            watch: Stopwatch::start(),
            cpu_seconds: cpu_seconds(std::process::id()),
            data_seconds: 0.0,
        }
    }

    /// What a step took.
    fn found(&self, steps: u64) -> Value {
        let steps = steps as f64;
        let now = cpu_seconds(std::process::id());
        let cpu_seconds = now.zip(self.cpu_seconds).map(|(now, then)| now - then);
        json!({
            "step_seconds": self.watch.elapsed().as_secs_f64() / steps,
            "data_seconds": self.data_seconds / steps,
            "cpu_seconds": cpu_seconds.map(|seconds| seconds / steps),
        })
    }
}

/// Waits for the device to have computed a loss, by reading it.
fn wait_for(loss: Option<&Tensor>) {
    let _ = loss.map(|loss| loss.double_value(&[]));
}

/// libtorch's own that is the configuration's.
fn optimizer(config: &Config) -> anyhow::Result<COptimizer> {
    let rate = config.optimizer.schedule.learning_rate;
    Ok(match &config.optimizer.spec {
        OptimizerSpec::Sgd(sgd) => {
            let &optimizer::Sgd {
                momentum,
                nesterov,
                weight_decay,
            } = sgd;
            let sgd = nn::Sgd {
                momentum,
                dampening: 0.0,
                wd: weight_decay,
                nesterov,
            };
            sgd.build_copt(rate)?
        }
        OptimizerSpec::Adam(adam) => {
            let &optimizer::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } = adam;
            let adam = nn::Adam {
                beta1,
                beta2,
                wd: weight_decay,
                eps: epsilon,
                amsgrad: false,
            };
            adam.build_copt(rate)?
        }
        _ => anyhow::bail!("the plain loop knows the optimizers sgd and adam only"),
    })
}
