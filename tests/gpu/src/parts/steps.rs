//! Step time: the plain loop, Tradewind with one group of one rank, and PyTorch's DDP, in turns.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::record::StepRecord;

use super::median;
use crate::cluster::{Cluster, Ranks};
use crate::options::{Keys, On, Options};
use crate::process::{Process, own, read_json};
use crate::report::Teller;

/// Another round is begun while not more has passed; and at least one, at most [`ROUNDS_MAX`].
const BEGIN: Duration = Duration::from_secs(90);

const ROUNDS_MAX: usize = 3;

const LIMIT: Duration = Duration::from_secs(75);

/// Where the exchange is shorter than the step, overlap 1 is to reach this part of the plain loop.
const GOAL: f64 = 0.97;

/// `train.overlap` and `exchange.up`.
const VARIANTS: [(&str, u32, &str); 4] = [
    ("overlap_0_f32", 0, "none"),
    ("overlap_1_f32", 1, "none"),
    ("overlap_0_bf16", 0, "bf16"),
    ("overlap_1_bf16", 1, "bf16"),
];

struct Sizes {
    pixels: u32,
    batch: u64,
    warmup: usize,
    steps: usize,
}

pub(super) fn run(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    let sizes = Sizes {
        pixels: options.size(224, 16),
        batch: options.size(256, 4),
        warmup: options.size(10, 2),
        steps: options.size(30, 4),
    };
    let keys = Keys::common(options, "check")
        .resnet(options, sizes.pixels, options.size(1000, 10))
        .with("cluster.servers", options.size(4, 1))
        .with("train.batch", sizes.batch)
        .with(
            "train.samples",
            sizes.batch * (sizes.warmup + sizes.steps + 1) as u64,
        )
        .with("optimizer.momentum", 0.9)
        .with("exchange.bucket_bytes", 4 << 20);
    teller.figure("batch", sizes.batch);
    teller.figure("pixels", sizes.pixels);

    let watch = Stopwatch::start();
    let (mut plain, mut ddp) = (Vec::new(), Vec::new());
    let mut tradewind: Vec<Vec<Measured>> = VARIANTS.iter().map(|_| Vec::new()).collect();
    let rounds = options.size(ROUNDS_MAX, 1);
    let mut without_ddp = None;
    for round in 0..rounds {
        if round > 0 && watch.elapsed() > BEGIN {
            break;
        }
        plain.push(plain_loop(options, &keys, &sizes)?);
        teller.figure("plain_samples_per_second", median(plain.clone()));
        match pytorch(options, &sizes) {
            Ok((rate, version)) => {
                teller.figure("torch", version);
                ddp.push(rate);
            }
            Err(why) => without_ddp = Some(format!("{why:#}")),
        }
        for ((name, overlap, up), measured) in VARIANTS.into_iter().zip(&mut tradewind) {
            let keys = keys.clone().with("train.overlap", overlap);
            let keys = keys.with("exchange.up", format!("{up:?}"));
            measured.push(training(options, name, &keys, &sizes)?);
        }
        teller.figure("rounds", round + 1);
    }

    let plain = median(plain);
    for ((name, overlap, _), measured) in VARIANTS.into_iter().zip(&tradewind) {
        let of = |value: fn(&Measured) -> f64| median(measured.iter().map(value).collect());
        let (rate, exchange) = (of(|m| m.rate), of(|m| m.exchange));
        let (ratio, step) = (rate / plain, sizes.batch as f64 / plain);
        teller.figure(
            name,
            json!({
                "samples_per_second": rate,
                "ratio_to_plain": ratio,
                "exchange_seconds": exchange,
                "exposed_seconds": of(|m| m.exposed),
                "exchange_shorter_than_step": exchange < step,
            }),
        );
        let judged = options.device == On::Cuda && overlap == 1 && exchange < step;
        teller.demand(!judged || ratio >= GOAL, || {
            format!("{name}: {ratio:.3} of the plain loop, and the goal is {GOAL}")
        });
    }
    match (ddp.is_empty(), without_ddp) {
        (false, _) => {
            let rate = median(ddp);
            teller.figure(
                "pytorch_ddp",
                json!({
                    "samples_per_second": rate,
                    "ratio_to_plain": rate / plain,
                }),
            );
        }
        (true, why) => {
            let why = why.unwrap_or_default();
            teller.demand(options.device == On::Cpu, || {
                format!("PyTorch's DDP was not measured: {why}")
            });
            teller.figure("pytorch_ddp", json!({ "not_measured": why }));
        }
    }
    Ok(())
}

/// Samples per second.
fn plain_loop(options: &Options, keys: &Keys, sizes: &Sizes) -> anyhow::Result<f64> {
    let folder = options.folder("plain")?;
    let (config, out) = (folder.join("config.toml"), folder.join("found.json"));
    fs::write(&config, keys.config()?.resolved())?;
    let arguments = [
        "plain".to_owned(),
        format!("--config={}", config.display()),
        format!("--warmup={}", sizes.warmup),
        format!("--steps={}", sizes.steps),
        format!("--out={}", out.display()),
    ];
    Process::start("plain", own(&arguments)?, &folder)?.finish(options.patience(LIMIT))?;
    rate(&read_json(&out)?)
}

/// Samples per second, and PyTorch's version.
fn pytorch(options: &Options, sizes: &Sizes) -> anyhow::Result<(f64, Value)> {
    let python = options.python.as_ref().context("no --python was given")?;
    let folder = options.folder("ddp")?;
    let out = folder.join("found.json");
    let mut command = Command::new(python);
    command
        .arg(&options.ddp)
        .arg(format!("--device={}", options.size("cuda", "cpu")))
        .arg(format!("--pixels={}", sizes.pixels))
        .arg(format!("--batch={}", sizes.batch))
        .arg(format!("--warmup={}", sizes.warmup))
        .arg(format!("--steps={}", sizes.steps))
        .arg(format!("--out={}", out.display()));
    Process::start("ddp", command, &folder)?.finish(options.patience(LIMIT))?;
    let found = read_json(&out)?;
    Ok((rate(&found)?, found["torch"].clone()))
}

fn rate(found: &Value) -> anyhow::Result<f64> {
    found["samples_per_second"]
        .as_f64()
        .context("no samples_per_second in the result")
}

struct Measured {
    /// Samples per second.
    rate: f64,
    /// Seconds of an exchange, waiting included.
    exchange: f64,
    /// Seconds of it in which the rank stood still.
    exposed: f64,
}

fn training(options: &Options, name: &str, keys: &Keys, sizes: &Sizes) -> anyhow::Result<Measured> {
    let cluster = Cluster::start(options, name, keys, Ranks::Workers)?;
    let records = cluster
        .finish(options.patience(LIMIT))
        .context(name.to_owned())?;
    anyhow::ensure!(
        records.len() > sizes.warmup + 1,
        "{name}: {} steps were recorded, too few to tell",
        records.len()
    );
    let timed = &records[sizes.warmup..];
    let seconds = timed[timed.len() - 1].wall - timed[0].wall;
    let of = |value: fn(&StepRecord) -> f64| median(timed.iter().map(value).collect());
    Ok(Measured {
        rate: (timed.len() - 1) as f64 * sizes.batch as f64 / seconds,
        exchange: of(|record| record.exchange_seconds + record.wait_seconds),
        exposed: of(|record| record.exposed_seconds),
    })
}
