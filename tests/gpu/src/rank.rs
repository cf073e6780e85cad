//! A rank that only reduces: the same numbers on the device and in main memory.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tch::{Device, Kind, Tensor};
use tradewind_client::ranks::Ranks;
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::Rank;
use tradewind_common::layout::{Layout, TensorKind, TensorSpec};
use tradewind_config::{Compute, DeviceChoice, Precision};
use tradewind_worker::c10d::Store;
use tradewind_worker::flat::Flat;
use tradewind_worker::group::{C10d, Group, Rendezvous};
use tradewind_worker::{device, precision};

/// How long to wait for the others.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Of the tensors whose gradients are reduced: several buckets, and tensors that fill no block.
const SIZES: [i64; 4] = [300_000, 17, 70_001, 3];

/// Reductions that are timed.
const REPEATS: u32 = 2;

/// Who it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Ranks of the group.
    #[arg(long)]
    size: u32,
    /// Which one.
    #[arg(long)]
    rank: u32,
    /// Where the store is, on this machine.
    #[arg(long)]
    port: u16,
    /// `cpu` or `cuda:N`.
    #[arg(long)]
    device: String,
    /// Of the vector whose reduction is timed.
    #[arg(long)]
    bytes: i64,
    /// File for what was found.
    #[arg(long)]
    out: PathBuf,
    /// One value of the reduced gradient shall be wrong.
    #[arg(long)]
    wrong: bool,
}

/// What the check computes with where nothing else is said: exactly, and the same bits again.
pub(crate) fn exact(device: &str) -> Compute {
    Compute {
        device: match device.strip_prefix("cuda:").and_then(|n| n.parse().ok()) {
            Some(number) => DeviceChoice::CudaAt(number),
            None => DeviceChoice::Cpu,
        },
        precision: Precision::F32,
        tf32: false,
        deterministic: true,
        autotune: false,
        channels_last: false,
    }
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let compute = exact(&self.device);
        let device = device::open(&compute, 0)?;
        precision::set_up(&compute, device)?;
        let store = Store::connect("127.0.0.1", self.port, TIMEOUT)?;

        let on_device = self.reduce(&store, "device", device)?;
        let on_cpu = self.reduce(&store, "cpu", Device::Cpu)?;
        let mut gradient = on_device.gradient;
        if self.wrong {
            gradient[11] += 1e-2;
        }
        let want = self.mean(|rank, at| f64::from(coefficient(rank, at)), gradient.len());
        let integers = self.mean(integer, on_device.integers.len());
        let exact = |got: &[f32]| {
            got.iter()
                .zip(&integers)
                .all(|(got, want)| f64::from(*got) == *want)
        };
        let found = json!({
            "gradient_to_cpu_distance": distance(&gradient, on_cpu.gradient.iter().map(|v| f64::from(*v))),
            "gradient_to_f64_distance": distance(&gradient, want.iter().copied()),
            "integers_exact": exact(&on_device.integers) && exact(&on_cpu.integers),
            "all_reduce_bytes": self.bytes,
            "all_reduce_seconds": on_device.seconds,
        });
        fs::write(&self.out, found.to_string())?;
        Ok(())
    }

    /// What a group on `device` makes of the numbers.
    fn reduce(&self, store: &Store, prefix: &str, device: Device) -> anyhow::Result<Reduced> {
        let tensors: Vec<(String, Tensor)> = SIZES
            .iter()
            .enumerate()
            .map(|(index, size)| {
                let tensor = Tensor::zeros([*size], (Kind::Float, Device::Cpu));
                (format!("t{index}"), tensor.set_requires_grad(true))
            })
            .collect();
        let spec = |(name, tensor): &(String, Tensor)| TensorSpec {
            name: name.clone(),
            shape: vec![tensor.numel() as u64],
            kind: TensorKind::Parameter,
        };
        let specs: Vec<_> = tensors.iter().map(spec).collect();
        let layout = Layout::new(&specs, 40_000)?;
        let buckets = layout.buckets(100_000);
        let _flat = Flat::new(&layout, &tensors, device)?;
        let rendezvous = Rendezvous {
            store,
            prefix,
            host: "127.0.0.1",
            timeout: TIMEOUT,
            breaks: &|_| (),
        };
        let (rank, size) = (Rank(self.rank), self.size);
        let mut group = C10d::new(rank, size, &rendezvous, &layout, &buckets, &tensors)?;

        // The gradient of the sum of all products is their other factor.
        let mut offset = 0;
        let mut loss = Tensor::zeros([], (Kind::Float, device));
        for (_, tensor) in tensors.iter().rev() {
            let count = tensor.numel();
            let factors: Vec<f32> = (offset..offset + count)
                .map(|at| coefficient(self.rank, at))
                .collect();
            offset += count;
            loss += (tensor * Tensor::from_slice(&factors).to_device(device)).sum(Kind::Float);
        }
        group.backward(&loss)?;
        let gradients: Vec<Tensor> = (0..buckets.len())
            .map(|bucket| group.gradient(bucket))
            .map(|gradient| gradient.to_device(Device::Cpu))
            .collect();
        let gradient = Vec::try_from(Tensor::cat(&gradients, 0))?;

        let own: Vec<f32> = (0..1000).map(|at| integer(self.rank, at) as f32).collect();
        let mut integers = Tensor::from_slice(&own).to_device(device);
        group.all_reduce_mean(&mut integers)?;
        let integers = Vec::try_from(integers.to_device(Device::Cpu))?;

        let mut large = Tensor::zeros([self.bytes / 4], (Kind::Float, device));
        let mut seconds = f64::INFINITY;
        for _ in 0..REPEATS {
            group.all_reduce_sum(&mut [0.0])?;
            let watch = Stopwatch::start();
            group.all_reduce_mean(&mut large)?;
            // Reading a value waits for the device.
            let _ = large.double_value(&[0]);
            seconds = f64::min(seconds, watch.elapsed().as_secs_f64());
        }
        // Nobody leaves before all have what they need.
        group.all_reduce_sum(&mut [0.0])?;
        Ok(Reduced {
            gradient,
            integers,
            seconds,
        })
    }

    fn mean(&self, of: impl Fn(u32, usize) -> f64, count: usize) -> Vec<f64> {
        let ranks = f64::from(self.size);
        let mean = |at| (0..self.size).map(|rank| of(rank, at)).sum::<f64>() / ranks;
        (0..count).map(mean).collect()
    }
}

struct Reduced {
    /// In flat order.
    gradient: Vec<f32>,
    integers: Vec<f32>,
    /// Of the best reduction of the large vector.
    seconds: f64,
}

/// A rank's gradient at an element of the flat vector.
fn coefficient(rank: u32, at: usize) -> f32 {
    ((at as f64) * 0.37 + f64::from(rank) * 1.9).sin() as f32
}

/// Means of up to four of them are exact in f32.
fn integer(rank: u32, at: usize) -> f64 {
    f64::from(rank + 1) * at as f64 - 300.0
}

/// The largest difference, relative to the largest wanted value.
fn distance(got: &[f32], want: impl Iterator<Item = f64> + Clone) -> f64 {
    let size = want.clone().map(f64::abs).fold(0.0, f64::max);
    let pairs = got.iter().zip(want);
    pairs
        .map(|(got, want)| (f64::from(*got) - want).abs())
        .fold(0.0, f64::max)
        / size
}
