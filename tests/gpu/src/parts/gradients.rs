//! Gradients from identical parameters on the device and on the CPU.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tch::{Device, Kind, Tensor};
use tradewind_config::Config;
use tradewind_worker::data::{Asked, Split};
use tradewind_worker::flat::Flat;
use tradewind_worker::group::{Group, Solo};
use tradewind_worker::member::{build_task, named, run_spec};
use tradewind_worker::{device, precision};

use crate::plain::read;

/// Which task, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration: its device is compared with the CPU.
    #[arg(long)]
    config: PathBuf,
    /// File for what was found.
    #[arg(long)]
    out: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let config = read(&self.config)?;
        let device = device::open(&config.compute, 0)?;
        precision::set_up(&config.compute, device)?;
        let (loss, gradient) = gradient(&config, device)?;
        let (cpu_loss, cpu_gradient) = self::gradient(&config, Device::Cpu)?;
        let norm = |tensor: &Tensor| tensor.norm().double_value(&[]);
        let found = json!({
            "relative_difference": norm(&(&gradient - &cpu_gradient)) / norm(&cpu_gradient),
            "gradient_norm": norm(&cpu_gradient),
            "values": gradient.numel(),
            "loss": loss,
            "cpu_loss": cpu_loss,
        });
        fs::write(&self.out, found.to_string())?;
        Ok(())
    }
}

/// The loss on the first batch and its gradient, f64 in main memory, by the seed's initial values.
fn gradient(config: &Config, device: Device) -> anyhow::Result<(f64, Tensor)> {
    let task = build_task(config)?;
    let layout = run_spec(config, &*task).check()?;
    let tensors = named(&*task);
    let _flat = Flat::new(&layout, &tensors, device)?;
    let buckets = layout.buckets(config.exchange.bucket_bytes);
    let mut group = Solo::new(&layout, &buckets, &tensors)?;
    let samples: Vec<usize> = (0..config.train.batch as usize).collect();
    let batch = task
        .dataset()
        .batch(Asked::of(Split::Train, &samples))?
        .to(device)?;
    let loss = task.loss(&batch);
    group.backward(&loss)?;
    let buckets = (0..buckets.len()).map(|bucket| group.gradient(bucket));
    let gradients: Vec<Tensor> = buckets
        .map(|gradient| gradient.to_device(Device::Cpu).to_kind(Kind::Double))
        .collect();
    Ok((loss.double_value(&[]), Tensor::cat(&gradients, 0)))
}
