//! The plain training loop of libtorch, for comparison: the same model, the same data prepared in
//! the same way, SGD on the device, and nothing of Tradewind.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use tradewind_common::optimizer;

use anyhow::Context;
use serde_json::json;
use tch::Tensor;
use tch::nn::{OptimizerConfig, Sgd};
use tradewind_client::order::permutation;
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::TensorKind;
use tradewind_common::spec::OptimizerSpec;
use tradewind_config::Config;
use tradewind_worker::data::Split;
use tradewind_worker::data::ahead::BatchesAhead;
use tradewind_worker::feed::ahead;
use tradewind_worker::member::build_task;
use tradewind_worker::{device, precision};

/// What to train, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration: task, device, batch, optimizer.
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
        let mut optimizer = sgd(&config)?;
        for (_, tensor, kind) in task.tensors() {
            let mut tensor = tensor;
            let there = tch::no_grad(|| tensor.to_device(device));
            tensor.set_data(&there);
            if kind == TensorKind::Parameter {
                optimizer.add_parameters(&tensor, 0)?;
            }
        }

        let mut batches =
            BatchesAhead::new(task.dataset(), Split::Train, ahead(&config.loader), device);
        let mut order = Order::new(&config, task.samples());
        let mut last = Tensor::new();
        let mut watch = Stopwatch::start();
        for step in 0..self.warmup + self.steps {
            if step == self.warmup {
                // Reading the loss waits for the device.
                let _ = last.double_value(&[]);
                watch = Stopwatch::start();
            }
            while batches.room() > 0 {
                batches.request(order.next(), None)?;
            }
            let batch = batches.next().context("it was asked for")??.to(device)?;
            optimizer.zero_grad()?;
            last = task.loss(&batch);
            last.backward();
            optimizer.step()?;
        }
        let loss = last.double_value(&[]);
        let seconds = watch.elapsed().as_secs_f64();
        let samples = self.steps as f64 * f64::from(config.train.batch);
        let found = json!({
            "samples_per_second": samples / seconds,
            "step_seconds": seconds / self.steps as f64,
            "loss": loss,
        });
        fs::write(&self.out, found.to_string())?;
        Ok(())
    }
}

fn sgd(config: &Config) -> anyhow::Result<tch::COptimizer> {
    let OptimizerSpec::Sgd(optimizer::Sgd {
        momentum,
        nesterov,
        weight_decay,
    }) = config.optimizer.spec
    else {
        anyhow::bail!("the plain loop knows SGD only");
    };
    let sgd = Sgd {
        momentum,
        dampening: 0.0,
        wd: weight_decay,
        nesterov,
    };
    Ok(sgd.build_copt(config.optimizer.schedule.learning_rate)?)
}

/// Batches of one epoch after the other.
struct Order {
    seed: u64,
    samples: usize,
    batch: usize,
    epoch: u64,
    left: VecDeque<u32>,
}

impl Order {
    fn new(config: &Config, samples: usize) -> Self {
        Self {
            seed: config.seed,
            samples,
            batch: config.train.batch as usize,
            epoch: 0,
            left: VecDeque::new(),
        }
    }

    fn next(&mut self) -> Vec<usize> {
        if self.left.len() < self.batch {
            self.left = permutation(self.seed, self.epoch, self.samples).into();
            self.epoch += 1;
        }
        let batch = self.batch.min(self.left.len());
        self.left
            .drain(..batch)
            .map(|sample| sample as usize)
            .collect()
    }
}
