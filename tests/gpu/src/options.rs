//! What all parts of the check stand on: the device, sizes, folders, programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use tradewind_config::Config;

/// Readers of batches, where images are many, and batches that they read ahead.
pub(crate) const READERS: u32 = 4;
pub(crate) const BATCHES_AHEAD: u32 = 8;

/// What is computed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum On {
    /// GPU 0, shared by all ranks.
    Cuda,
    /// The CPU: the same parts with Gloo in NCCL's place and tiny sizes, to test the check.
    Cpu,
}

/// Something that is planted for the check to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Planted {
    /// One value of one rank's reduced gradient is wrong.
    WrongSum,
    /// One tensor's gradient, and the steps of training, are too large on the device by [`WRONG_SCALE`].
    WrongScale,
}

/// What gradients and steps that are planted are multiplied by.
pub(crate) const WRONG_SCALE: f64 = 1.01;

/// What every part is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// What to compute on.
    #[arg(long, value_enum, default_value_t = On::Cuda)]
    pub(crate) device: On,
    /// Folder of the climate data: A1B_north_america.nc and E1_north_america.nc.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data: PathBuf,
    /// Folder of the shipped configurations: resnet50.toml.
    #[arg(long, value_name = "DIR", default_value = "configs")]
    pub(crate) configs: PathBuf,
    /// Folder for configurations and logs; a temporary one if not given, which is deleted where all parts pass.
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// A Python with torch 2.11, for PyTorch's own DDP.
    #[arg(long, value_name = "FILE")]
    pub(crate) python: Option<PathBuf>,
    /// PyTorch's own DDP on the same network.
    #[arg(long, value_name = "FILE", default_value = "ddp.py")]
    pub(crate) ddp: PathBuf,
    /// Something for the check to find.
    #[arg(long, value_enum, hide = true)]
    pub(crate) plant: Option<Planted>,
    /// Seconds that a part may take.
    #[arg(long, hide = true)]
    pub(crate) limit: Option<u64>,
}

impl Options {
    /// As arguments for a process of the check's own.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let device = match self.device {
            On::Cuda => "cuda",
            On::Cpu => "cpu",
        };
        let mut arguments = vec![
            format!("--device={device}"),
            path("data", &self.data),
            path("configs", &self.configs),
            path("ddp", &self.ddp),
        ];
        arguments.extend(self.work.iter().map(|work| path("work", work)));
        arguments.extend(self.python.iter().map(|python| path("python", python)));
        arguments.extend(self.limit.map(|seconds| format!("--limit={seconds}")));
        let plant = self.plant.and_then(|plant| plant.to_possible_value());
        arguments.extend(plant.map(|plant| format!("--plant={}", plant.get_name())));
        arguments
    }

    /// An empty folder below the work folder.
    pub(crate) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let work = self.work.as_ref().context("a part is told its folder")?;
        let folder = work.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// The value of `compute.device`.
    pub(crate) fn device_key(&self) -> &'static str {
        match self.device {
            On::Cuda => "\"cuda:0\"",
            On::Cpu => "\"cpu\"",
        }
    }

    /// How long to wait for what takes `on_gpu` at most where there is a GPU: machines that test
    /// the check on the CPU are small and do other things.
    pub(crate) fn patience(&self, on_gpu: Duration) -> Duration {
        self.size(on_gpu, 6 * on_gpu)
    }

    /// One of two sizes.
    pub(crate) fn size<T>(&self, cuda: T, cpu: T) -> T {
        match self.device {
            On::Cuda => cuda,
            On::Cpu => cpu,
        }
    }
}

/// A program that lies beside the check itself.
pub(crate) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where the check lies")?;
    let path = own.with_file_name(name);
    anyhow::ensure!(
        path.is_file(),
        "{} is missing; build it with `cargo build --bins`",
        path.display()
    );
    Ok(path)
}

/// A configuration as text: later values of a key win.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Vec<(String, String)>);

impl Keys {
    /// Sets a key; the value is TOML.
    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.0.retain(|(known, _)| known != key);
        self.0.push((key.to_owned(), value.to_string()));
        self
    }

    /// What all runs of the check have in common.
    pub(crate) fn common(options: &Options, name: &str) -> Self {
        Self::default()
            .with("run.name", format!("{name:?}"))
            .with("compute.device", options.device_key())
            .with("optimizer.learning_rate", "0.01")
            .with("liveness.snapshot_ms", 0)
    }

    /// The climate forecaster, as small as it is shipped.
    #[must_use]
    pub(crate) fn forecast(self, options: &Options) -> Self {
        let files = ["A1B", "E1"].map(|name| options.data.join(format!("{name}_north_america.nc")));
        self.with("data.files", format!("{files:?}"))
            .with("data.variable", "\"air_temperature\"")
            .with("data.validation", "[180, 200]")
            .with("data.held_out", "[200, 240]")
            .with("optimizer.name", "\"adam\"")
            .with("optimizer.learning_rate", "0.001")
    }

    /// A residual network on images of so many pixels a side and kinds; ResNet-50 on a GPU.
    #[must_use]
    pub(crate) fn resnet(self, options: &Options, pixels: u32, classes: u32) -> Self {
        let (blocks, width) = options.size(("[3, 4, 6, 3]", 64), ("[1, 1, 1, 1]", 4));
        self.with("model.name", "\"resnet50\"")
            .with("model.blocks", blocks)
            .with("model.width", width)
            .with("data.image_size", pixels)
            .with("data.classes", classes)
    }

    /// So many readers of batches that no step waits for images, and room for what they read ahead.
    #[must_use]
    pub(crate) fn reading_ahead(self) -> Self {
        self.with("loader.readers", READERS)
            .with("loader.batches_ahead", BATCHES_AHEAD)
            .with("loader.bytes_ahead", 2u64 << 30)
    }

    /// The same bits again, in f32 as it is.
    #[must_use]
    pub(crate) fn exact(self) -> Self {
        self.with("compute.tf32", false)
            .with("compute.deterministic", true)
    }

    /// As arguments of `tradewind run`.
    pub(crate) fn settings(&self) -> impl Iterator<Item = String> {
        let keys = self.0.iter();
        keys.map(|(key, value)| format!("--set={key}={value}"))
    }

    /// As a configuration file has it.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.0 {
            let _ = writeln!(text, "{key} = {value}");
        }
        text
    }

    /// Checked.
    pub(crate) fn config(&self) -> anyhow::Result<Config> {
        Ok(Config::parse(
            &self.text(),
            "the check's configuration",
            Path::new("/"),
            &[],
        )?)
    }
}
