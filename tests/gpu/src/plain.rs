//! The plain training loop of libtorch, for comparison: the same model, the same data prepared in
//! the same way, the optimizer on the device, and nothing of Tradewind.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tch::nn::{self, OptimizerConfig};
use tch::{COptimizer, Device, Tensor};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::TensorKind;
use tradewind_common::optimizer;
use tradewind_common::spec::OptimizerSpec;
use tradewind_config::Config;
use tradewind_process::usage::cpu_seconds;
use tradewind_worker::member::build_task;
use tradewind_worker::model::Task;
use tradewind_worker::precision::autocast;
use tradewind_worker::{device, precision};

use crate::batches::Batches;
use crate::exact::double;

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
    /// Train on one batch that stays on the device: the host does nothing but ask for work.
    #[arg(long)]
    resident: bool,
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
        let task = build_task(&config)?;
        if self.double {
            double(&*task);
        }
        let mut optimizer = optimizer(&config)?;
        move_to(device, &*task, &mut optimizer)?;
        let mut batches = Batches::new(&config, &*task, device, self.resident, self.double);
        let precision = config.compute.precision;
        let mut losses = Vec::new();
        let mut timed = Timed::start();
        for step in 0..self.warmup + self.steps {
            if step == self.warmup {
                wait_for(losses.last());
                timed = Timed::start();
            }
            let waits = Stopwatch::start();
            let batch = batches.next()?;
            timed.data_seconds += waits.elapsed().as_secs_f64();
            optimizer.zero_grad()?;
            let loss = autocast(precision, device, || task.loss(batch))?;
            loss.backward();
            optimizer.step()?;
            losses.push(loss.detach());
        }
        wait_for(losses.last());
        let seconds = timed.watch.elapsed().as_secs_f64();
        let steps = self.steps as f64;
        let losses = losses.iter().map(|loss| loss.double_value(&[]));
        let found = json!({
            "samples_per_second": steps * f64::from(config.train.batch) / seconds,
            "step_seconds": seconds / steps,
            "data_seconds": timed.data_seconds / steps,
            "cpu_seconds": timed.used_cpu().map(|used| used / steps),
            "losses": losses.collect::<Vec<f64>>(),
        });
        fs::write(&self.out, found.to_string())?;
        Ok(())
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

    /// Seconds of all cores since the beginning.
    fn used_cpu(&self) -> Option<f64> {
        Some(cpu_seconds(std::process::id())? - self.cpu_seconds?)
    }
}

/// Waits for the device to have computed a loss, by reading it.
fn wait_for(loss: Option<&Tensor>) {
    let _ = loss.map(|loss| loss.double_value(&[]));
}

/// The tensors of a task go to a device, and its parameters to an optimizer.
fn move_to(device: Device, task: &dyn Task, optimizer: &mut COptimizer) -> anyhow::Result<()> {
    for (_, mut tensor, kind) in task.tensors() {
        let there = tch::no_grad(|| tensor.to_device(device));
        tensor.set_data(&there);
        if kind == TensorKind::Parameter {
            optimizer.add_parameters(&tensor, 0)?;
        }
    }
    Ok(())
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
