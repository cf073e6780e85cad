//! Step time: the plain loop, PyTorch's DDP, and Tradewind with one group of one rank, in turns, in f32, in bf16, and in
//! bf16 as fast as a GPU computes it, with channels last and tuned convolutions. All read batches ahead by as many
//! readers into page-locked memory, and nobody waits for their copies.

mod measure;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tradewind_client::stopwatch::Stopwatch;

use super::median;
use crate::options::{Keys, On, Options};
use crate::report::Teller;
use measure::{Measured, plain_loop, pytorch, training};

const ROUNDS_MAX: u32 = 3;

const LIMIT: Duration = Duration::from_secs(200);

/// Another round is begun where it will have ended after this part of the time.
const FILLED: f64 = 0.9;

/// A step at overlap 1 may take so many times as long as DDP's: noise of a few steps, and nothing besides.
const TO_DDP: f64 = 1.02;

/// Part of the time in which a device may have nothing to do, at overlap 1.
const IDLE: f64 = 0.03;

/// How to compute, and for how long.
pub(super) struct Plan {
    /// What its figures are called.
    name: &'static str,
    /// The value of `compute.precision`.
    precision: &'static str,
    /// The value of `exchange.up` and `exchange.down`.
    wire: &'static str,
    /// The values of `compute.channels_last` and `compute.autotune`: what makes a GPU fastest.
    tuned: bool,
    pixels: u32,
    batch: u64,
    classes: u32,
    warmup: usize,
    steps: usize,
    /// Values of `train.overlap`.
    overlaps: &'static [u32],
    /// A step at overlap 1 may take so many times as long as the plain loop's.
    to_plain: f64,
}

impl Plan {
    fn all(options: &Options) -> [Self; 3] {
        let f32 = Self {
            name: "f32",
            precision: "f32",
            wire: "none",
            tuned: false,
            // With 16 pixels the last maps have one cell, of which oneDNN's gradient in bf16 is not always a number.
            pixels: options.size(224, 32),
            batch: options.size(256, 4),
            classes: options.size(1000, 10),
            warmup: options.size(5, 2),
            steps: options.size(15, 4),
            overlaps: &[0, 1],
            to_plain: 1.03,
        };
        // Shorter steps: more of them, and what does not shrink is a larger part.
        let bf16 = Self {
            name: "bf16",
            precision: "bf16",
            wire: "bf16",
            warmup: options.size(10, 2),
            steps: options.size(30, 4),
            overlaps: &[1],
            to_plain: 1.05,
            ..f32
        };
        let tuned = Self {
            name: "bf16_tuned",
            tuned: true,
            ..bf16
        };
        [f32, bf16, tuned]
    }

    fn keys(&self, options: &Options) -> Keys {
        let samples = self.batch * (self.warmup + self.steps + 1) as u64;
        Keys::common(options, "check")
            .resnet(options, self.pixels, self.classes)
            .with("compute.precision", format!("{:?}", self.precision))
            .with("compute.channels_last", self.tuned)
            .with("compute.autotune", self.tuned)
            .with("cluster.servers", options.size(4, 1))
            .with("train.batch", self.batch)
            .with("train.samples", samples)
            .with("optimizer.momentum", 0.9)
            .with("exchange.bucket_bytes", 4 << 20)
            .with("exchange.up", format!("{:?}", self.wire))
            .with("exchange.down", format!("{:?}", self.wire))
            .reading_ahead()
    }
}

/// What was measured in each round, by name.
type Rounds = BTreeMap<String, Vec<Measured>>;

pub(super) fn run(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    let plans = Plan::all(options);
    teller.figure("batch", plans[0].batch);
    teller.figure("pixels", plans[0].pixels);
    let watch = Stopwatch::start();
    let mut rounds = Rounds::new();
    let mut without_ddp = None;
    for round in 1..=options.size(ROUNDS_MAX, 1) {
        for plan in &plans {
            let mut add = |name: &str, measured: Measured| {
                let name = format!("{}_{name}", plan.name);
                rounds.entry(name).or_default().push(measured);
            };
            let keys = plan.keys(options);
            add("plain", plain_loop(options, &keys, plan)?);
            match pytorch(options, plan) {
                Ok((measured, about)) => {
                    add("pytorch_ddp", measured);
                    teller.figure("pytorch", about);
                }
                Err(why) => without_ddp = Some(format!("{why:#}")),
            }
            for overlap in plan.overlaps {
                let name = format!("overlap_{overlap}");
                let keys = keys.clone().with("train.overlap", overlap);
                add(&name, training(options, &name, &keys, plan)?);
            }
            // After each plan, so that what there is outlives the part.
            tell(teller, plan, &rounds);
        }
        teller.figure("rounds", round);
        if !another_fits(round, watch.elapsed(), options.limit) {
            break;
        }
    }
    // On a CPU everything shares the cores.
    for plan in plans.iter().filter(|_| options.device == On::Cuda) {
        let found = medians(plan, &rounds, "overlap_1").unwrap_or_default();
        faults(plan, &found)
            .into_iter()
            .for_each(|fault| teller.fault(fault));
    }
    if let Some(why) = without_ddp {
        teller.demand(options.device == On::Cpu, || {
            format!("PyTorch's DDP was not measured: {why}")
        });
        teller.figure("pytorch", json!({ "not_measured": why }));
    }
    Ok(())
}

/// Medians over the rounds, with what follows from them.
fn medians(plan: &Plan, rounds: &Rounds, name: &str) -> Option<Measured> {
    let of = |name: &str| {
        let rounds = rounds.get(&format!("{}_{name}", plan.name))?;
        let keys = rounds.first()?.keys();
        let median = |key: &String| median(rounds.iter().map(|round| round[key]).collect());
        Some(
            keys.map(|key| (key.clone(), median(key)))
                .collect::<Measured>(),
        )
    };
    let mut found = of(name)?;
    let step = found["step_seconds"];
    let mut add = |key: &str, value: f64| found.insert(key.to_owned(), value);
    add("samples_per_second", plan.batch as f64 / step);
    let plain = of("plain")?;
    add("step_to_plain", step / plain["step_seconds"]);
    // The step of a device that never waits takes all of its time.
    add("idle_fraction", 1.0 - plain["resident_step_seconds"] / step);
    if let Some(ddp) = of("pytorch_ddp") {
        add("step_to_ddp", step / ddp["step_seconds"]);
    }
    Some(found)
}

fn tell(teller: &Teller, plan: &Plan, rounds: &Rounds) {
    for name in ["plain", "pytorch_ddp", "overlap_0", "overlap_1"] {
        if let Some(found) = medians(plan, rounds, name) {
            teller.figure(format!("{}_{name}", plan.name), json!(found));
        }
    }
}

/// Whether another round will end in time, if it takes as long as those before.
fn another_fits(rounds: u32, took: Duration, limit_seconds: Option<u64>) -> bool {
    let next = took.as_secs_f64() * f64::from(rounds + 1) / f64::from(rounds);
    limit_seconds.is_none_or(|limit| next <= FILLED * limit as f64)
}

/// What is wrong with overlap 1, beside the others, where its exchange is shorter than a step.
fn faults(plan: &Plan, found: &Measured) -> Vec<String> {
    let value = |figure: &str| found.get(figure).copied();
    if value("exchange_seconds") > value("step_seconds") {
        return Vec::new();
    }
    let limits = [
        ("step_to_plain", plan.to_plain),
        ("step_to_ddp", TO_DDP),
        ("idle_fraction", IDLE),
        ("skipped_steps", 0.0),
    ];
    let found = limits.map(|(figure, most)| (figure, value(figure), most));
    let faults = found.into_iter().filter_map(|(figure, found, most)| {
        let found = found.filter(|found| *found > most)?;
        let plan = plan.name;
        Some(format!(
            "{plan}, overlap 1: {figure} is {found:.3}, and may be {most}"
        ))
    });
    faults.collect()
}

#[cfg(test)]
mod tests;
