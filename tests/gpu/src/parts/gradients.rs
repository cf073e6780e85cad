//! Gradients from identical parameters: on the device, on the CPU, and in f64 as the yardstick.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tch::{Device, Kind, Tensor};
use tradewind_common::TensorKind;
use tradewind_config::Config;
use tradewind_worker::data::{Asked, Split};
use tradewind_worker::flat::Flat;
use tradewind_worker::group::{Group, Solo};
use tradewind_worker::member::{build_task, named, run_spec};
use tradewind_worker::{device, precision};

use crate::exact::{distance, double, doubled};
use crate::options::WRONG_SCALE;
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
    /// The largest gradient of the device shall be wrong.
    #[arg(long)]
    wrong: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let config = read(&self.config)?;
        let device = device::open(&config.compute, 0)?;
        precision::set_up(&config.compute, device)?;
        let mut on_device = gradient(&config, device)?;
        let on_cpu = gradient(&config, Device::Cpu)?;
        let exact = exact(&config)?;
        if self.wrong {
            on_device.plant();
        }
        let found = json!({
            "device_error": on_device.error(&exact),
            "cpu_error": on_cpu.error(&exact),
            "gradient_norm": exact.norm(),
            "loss": on_device.loss,
            "cpu_loss": on_cpu.loss,
            "exact_loss": exact.loss,
            "worst_tensor": on_device.worst(&exact).map(|(name, error)| {
                let cpu_error = apart(&on_cpu.gradients[name], &exact.gradients[name]);
                json!({ "name": name, "device_error": error, "cpu_error": cpu_error })
            }),
        });
        fs::write(&self.out, found.to_string())?;
        Ok(())
    }
}

/// A loss, and its gradient by parameter, f64 in main memory.
struct Found {
    loss: f64,
    gradients: BTreeMap<String, Tensor>,
}

impl Found {
    /// How far it is from the exact one, relative.
    fn error(&self, exact: &Self) -> f64 {
        distance(self.gradients.values().zip(exact.gradients.values()))
    }

    /// The parameter whose gradient is furthest from the exact one, where that is not 0, and how far.
    fn worst(&self, exact: &Self) -> Option<(&String, f64)> {
        let gradients = self.gradients.iter();
        let errors =
            gradients.map(|(name, gradient)| (name, apart(gradient, &exact.gradients[name])));
        let errors = errors.filter(|(_, error)| error.is_finite());
        errors.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn norm(&self) -> f64 {
        let squares = self
            .gradients
            .values()
            .map(|g| g.square().sum(Kind::Double));
        squares
            .map(|square| square.double_value(&[]))
            .sum::<f64>()
            .sqrt()
    }

    /// Makes the largest one wrong.
    fn plant(&mut self) {
        let norm = |gradient: &Tensor| gradient.norm().double_value(&[]);
        let gradients = self.gradients.values_mut();
        let largest = gradients.max_by(|a, b| norm(a).total_cmp(&norm(b)));
        let largest = largest.expect("a model has parameters");
        *largest = &*largest * WRONG_SCALE;
    }
}

fn apart(gradient: &Tensor, exact: &Tensor) -> f64 {
    distance([(gradient, exact)].into_iter())
}

/// The first batch of the configuration.
fn samples(config: &Config) -> Vec<usize> {
    (0..config.train.batch as usize).collect()
}

/// As a rank computes it, by the seed's initial values.
fn gradient(config: &Config, device: Device) -> anyhow::Result<Found> {
    let task = build_task(config)?;
    let layout = run_spec(config, &*task).check()?;
    let tensors = named(&*task);
    let _flat = Flat::new(&layout, &tensors, device)?;
    let buckets = layout.buckets(config.exchange.bucket_bytes);
    let mut group = Solo::new(&layout, &buckets, &tensors)?;
    let batch = task
        .dataset()
        .batch(Asked::of(Split::Train, &samples(config)))?
        .to(device)?;
    let loss = task.loss(&batch);
    group.backward(&loss)?;
    let buckets = (0..buckets.len()).map(|bucket| group.gradient(bucket));
    let buckets: Vec<_> = buckets
        .map(|gradient| gradient.to_device(Device::Cpu).to_kind(Kind::Double))
        .collect();
    let all = Tensor::cat(&buckets, 0);
    let parameters = layout.tensors.iter();
    let parameters = parameters.filter(|placed| placed.spec.kind == TensorKind::Parameter);
    let gradients = parameters.map(|placed| {
        let (start, length) = (placed.elements.start, placed.elements.len());
        let gradient = all.narrow(0, start as i64, length as i64);
        (placed.spec.name.clone(), gradient)
    });
    Ok(Found {
        loss: loss.double_value(&[]),
        gradients: gradients.collect(),
    })
}

/// In f64, by libtorch alone.
fn exact(config: &Config) -> anyhow::Result<Found> {
    let task = build_task(config)?;
    double(&*task);
    let dataset = task.dataset();
    let batch = dataset.batch(Asked::of(Split::Train, &samples(config)))?;
    let loss = task.loss(&doubled(&batch, &*dataset));
    loss.backward();
    let parameters = task.tensors().into_iter();
    let parameters = parameters.filter(|(_, _, kind)| *kind == TensorKind::Parameter);
    let gradients = parameters.map(|(name, tensor, _)| (name, tensor.grad().view([-1])));
    Ok(Found {
        loss: loss.double_value(&[]),
        gradients: gradients.collect(),
    })
}
