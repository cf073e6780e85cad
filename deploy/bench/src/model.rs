//! What is exchanged: one synthetic tensor, so that the blocks are all equal.

use std::fmt;
use tradewind_common::optimizer::{Adam, Sgd};

use clap::ValueEnum;
use tradewind_common::compress::Compression;
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{BLOCK_BYTES_MAX, FaultSpec, OptimizerSpec, RunSpec};
use tradewind_common::{TensorKind, TensorSpec};

use super::size;

/// Small, so that values stay finite however long it runs.
const LEARNING_RATE: f64 = 1e-6;

/// As `exchange.connections` of a configuration has it.
const CONNECTIONS_MAX: u32 = 64;

/// As `exchange.topk_fraction` has it.
const TOPK_FRACTION: f64 = 0.01;

/// Longest computation of a step.
const STEP_SECONDS_MAX: f64 = 3600.0;

/// Never reached, so that no run stops.
const SAMPLES: u64 = 1 << 60;

/// A client that is not heard of for so long takes the measurement down.
pub const LEASE_MS: u64 = 60_000;

/// How a server applies a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OptimizerName {
    /// Plain stochastic gradient descent.
    Sgd,
    /// With momentum 0.9.
    Momentum,
    /// Adam.
    Adam,
}

impl OptimizerName {
    pub const fn spec(self) -> OptimizerSpec {
        match self {
            Self::Sgd | Self::Momentum => OptimizerSpec::Sgd(Sgd {
                momentum: if matches!(self, Self::Sgd) { 0.0 } else { 0.9 },
                nesterov: false,
                weight_decay: 0.0,
            }),
            Self::Adam => OptimizerSpec::Adam(Adam {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.0,
            }),
        }
    }
}

impl fmt::Display for OptimizerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sgd => "sgd",
            Self::Momentum => "momentum",
            Self::Adam => "adam",
        })
    }
}

/// The form in which values travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// f32 as they are.
    None,
    /// 2 bytes a value.
    Bf16,
    /// 1 byte a value.
    Int8,
    /// The largest values only.
    Topk,
}

impl Form {
    /// As runs have it.
    pub fn compression(self, fraction: f64) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Bf16 => Compression::Bf16,
            Self::Int8 => Compression::Int8,
            Self::Topk => Compression::TopK { fraction },
        }
    }
}

/// The vector, and who exchanges it; all processes of a measurement are told the same.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Model {
    /// Client processes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: u32,
    /// Size of the whole vector: a multiple of 4 with B, KB, MB, GB (powers of 10), KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE", default_value = "100MB", value_parser = size::parse)]
    pub bytes: usize,
    /// Upper limit of a block; the vector is cut into as few equal blocks as it allows.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = size::parse)]
    pub block_bytes: usize,
    /// Connections of each client to each server.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub connections: u32,
    /// What servers do with a gradient.
    #[arg(long, value_name = "NAME", value_enum, default_value_t = OptimizerName::Sgd)]
    pub optimizer: OptimizerName,
    /// How gradients travel.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::None)]
    pub up: Form,
    /// How fresh values travel.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::None)]
    pub down: Form,
    /// Part of the values that topk sends; 0.01 if not given.
    #[arg(long, value_name = "PART")]
    pub topk_fraction: Option<f64>,
    /// Clients are the ranks of one group and exchange a slice each; without it each client is a
    /// group of its own and exchanges the whole vector.
    #[arg(long)]
    pub group: bool,
    /// Instead of exchanges one after the other, steps at overlap 1: each computes (sleeps) so long
    /// while the exchange of the step before is under way. No floor is measured.
    #[arg(long, value_name = "SECONDS")]
    pub step_seconds: Option<f64>,
}

impl Model {
    /// What of it cannot be measured, and the way out.
    pub fn check(&self) -> Result<(), String> {
        let fault = |option: &str, bytes: usize, wanted: &str| {
            Err(format!("--{option} is {}, not {wanted}", size::text(bytes)))
        };
        if self.clients == 0 {
            return Err("--clients is 0; at least 1 exchanges".into());
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            let given = self.connections;
            return Err(format!(
                "--connections is {given}, not 1 to {CONNECTIONS_MAX}"
            ));
        }
        if self.bytes == 0 || !self.bytes.is_multiple_of(4) {
            return fault("bytes", self.bytes, "a multiple of 4, the size of an f32");
        }
        if !self.block_bytes.is_multiple_of(4) {
            return fault(
                "block-bytes",
                self.block_bytes,
                "a multiple of 4, the size of an f32",
            );
        }
        if !(4..=BLOCK_BYTES_MAX).contains(&self.block_bytes) {
            return fault("block-bytes", self.block_bytes, "4 bytes to 64 MiB");
        }
        if let Some(step) = self.step_seconds
            && !(step > 0.0 && step <= STEP_SECONDS_MAX)
        {
            return Err(format!(
                "--step-seconds is {step}, not more than 0 and at most {STEP_SECONDS_MAX}"
            ));
        }
        if self.topk_fraction.is_some() && ![self.up, self.down].contains(&Form::Topk) {
            return Err("--topk-fraction has no effect without --up topk or --down topk".into());
        }
        let blocks = self
            .spec()
            .check()
            .map_err(|error| error.to_string())?
            .blocks
            .len();
        if self.group && blocks < self.clients as usize {
            return Err(format!(
                "{blocks} blocks are too few for a group of {}: give a smaller --block-bytes",
                self.clients
            ));
        }
        Ok(())
    }

    /// The same as arguments of a process.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--clients={}", self.clients),
            format!("--bytes={}", self.bytes),
            format!("--block-bytes={}", self.block_bytes),
            format!("--connections={}", self.connections),
            format!("--optimizer={}", self.optimizer),
            format!("--up={}", self.form(self.up)),
            format!("--down={}", self.form(self.down)),
        ];
        let fraction = self.topk_fraction;
        arguments.extend(fraction.map(|fraction| format!("--topk-fraction={fraction}")));
        let step = self.step_seconds;
        arguments.extend(step.map(|seconds| format!("--step-seconds={seconds}")));
        arguments.extend(self.group.then(|| "--group".into()));
        arguments
    }

    /// The run in which it is exchanged.
    pub fn spec(&self) -> RunSpec {
        let vector = TensorSpec {
            name: "vector".into(),
            shape: vec![self.bytes as u64 / 4],
            kind: TensorKind::Parameter,
        };
        let sizes = match self.group {
            true => vec![self.clients],
            false => vec![1; self.clients as usize],
        };
        RunSpec {
            seed: 0,
            optimizer: self.optimizer.spec(),
            schedule: Schedule::constant(LEARNING_RATE),
            samples: SAMPLES,
            epoch_samples: SAMPLES,
            chunk_samples: 1,
            lease_ms: LEASE_MS,
            start_grace_ms: LEASE_MS,
            up: self.form(self.up),
            down: self.form(self.down),
            faults: FaultSpec {
                patience_ms: 2 * LEASE_MS,
                ..FaultSpec::default()
            },
            ..RunSpec::plain(sizes, vec![vector], self.block_bytes)
        }
    }

    fn form(&self, form: Form) -> Compression {
        form.compression(self.topk_fraction.unwrap_or(TOPK_FRACTION))
    }

    /// The rate of every update.
    pub fn rate(&self) -> f64 {
        LEARNING_RATE
    }
}

/// Values of a vector from a fixed formula: finite, and different from one to the next.
pub fn values(elements: usize) -> Vec<f32> {
    (0..elements)
        .map(|i| (i % 1009) as f32 / 1009.0 - 0.5)
        .collect()
}

/// Gradients, likewise; another formula.
pub fn gradient(elements: usize) -> Vec<f32> {
    (0..elements)
        .map(|i| (i % 997 + 1) as f32 / 997.0 - 0.5)
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        model: Model,
    }

    fn model(arguments: &[&str]) -> Model {
        let line = ["x"].iter().chain(arguments);
        Line::try_parse_from(line).unwrap().model
    }

    #[test]
    fn it_travels_as_arguments_and_has_exactly_its_blocks() {
        let given = model(&[
            "--clients=3",
            "--bytes=100MB",
            "--block-bytes=250KB",
            "--connections=2",
            "--up=topk",
            "--down=bf16",
            "--topk-fraction=0.05",
            "--group",
        ]);
        let arguments = given.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(model(&arguments), given);
        let layout = given.spec().check().unwrap();
        assert_eq!(layout.blocks.len(), 400);
        assert!(layout.blocks.iter().all(|block| block.bytes() == 250_000));
        assert_eq!(given.spec().group_sizes, [3]);
        assert_eq!(given.check(), Ok(()));
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let check = |arguments: &[&str], wanted: &str| {
            let error = model(arguments).check().unwrap_err();
            assert!(error.contains(wanted), "{error}");
        };
        check(&["--clients=0"], "--clients is 0");
        check(&["--topk-fraction=0.5"], "--topk-fraction has no effect");
        check(&["--up=topk", "--topk-fraction=0"], "topk_fraction is 0");
        check(&["--connections=0"], "--connections is 0, not 1 to 64");
        check(&["--bytes=4002"], "--bytes is 4002 B, not a multiple of 4");
        check(&["--bytes=0"], "--bytes is 0 B");
        check(
            &["--block-bytes=65MiB"],
            "--block-bytes is 65 MiB, not 4 bytes to 64 MiB",
        );
        check(&["--block-bytes=0"], "--block-bytes is 0 B");
        check(&["--block-bytes=4B", "--bytes=100MB"], "blocks, more than");
        check(
            &["--group", "--clients=9", "--bytes=2MiB"],
            "8 blocks are too few",
        );
    }

    #[test]
    fn values_are_finite_and_differ() {
        for all in [values(3000), gradient(3000)] {
            assert!(all.iter().all(|x| x.is_finite()));
            assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
        }
    }
}
