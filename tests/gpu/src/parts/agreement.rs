//! The device computes what the CPU computes: gradients, losses after some steps; and under `sync`
//! two groups are one.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tradewind_common::record::StepRecord;

use super::median;
use crate::cluster::{Cluster, Ranks};
use crate::options::{Keys, Options};
use crate::process::{Process, own, read_json};
use crate::report::Teller;

/// Of gradients, relative, as an L2 norm.
const GRADIENT: f64 = 1e-3;

/// Of final losses, relative.
const LOSS: f64 = 0.02;

/// Of losses of two groups and of one, relative: only the order of sums differs.
const GROUPS: f64 = 1e-3;

/// Steps whose median is the final loss.
const FINAL_STEPS: usize = 5;

const LIMIT: Duration = Duration::from_secs(75);

pub(super) fn run(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    let steps = options.size(50, 8);
    let batch = options.size(16, 4);
    let forecast = Keys::common(options, "check").forecast(options).exact();
    let resnet = Keys::common(options, "check").exact();
    let resnet = resnet.resnet(options, options.size(64, 16), 10);
    let tasks = [("forecast", forecast.clone()), ("resnet50", resnet)];

    for (name, keys) in &tasks {
        gradients(
            options,
            teller,
            name,
            &keys
                .clone()
                .with("train.samples", 1)
                .with("train.batch", batch),
        )?;
    }

    let train = |name: String, keys: Keys| -> anyhow::Result<Vec<StepRecord>> {
        let cluster = Cluster::start(options, &name, &keys, Ranks::Workers)?;
        cluster
            .finish(options.patience(LIMIT))
            .with_context(|| name)
    };
    let train = &train;
    // Side by side: on the CPU a rank has one core.
    let runs = thread::scope(|scope| {
        let started: Vec<_> = tasks
            .iter()
            .flat_map(|(name, keys)| {
                let keys = keys
                    .clone()
                    .with("train.batch", 8)
                    .with("train.samples", 8 * steps);
                let on_cpu = keys.clone().with("compute.device", "\"cpu\"");
                let own = format!("{name}-device");
                let cpu = format!("{name}-cpu");
                [
                    scope.spawn(move || train(own, keys)),
                    scope.spawn(move || train(cpu, on_cpu)),
                ]
            })
            .collect();
        let joined = started.into_iter().map(|run| run.join().expect("no panic"));
        joined.collect::<anyhow::Result<Vec<_>>>()
    })?;
    for ((name, _), pair) in tasks.iter().zip(runs.chunks_exact(2)) {
        let [device, cpu] = [&pair[0], &pair[1]].map(|records| final_loss(records));
        let difference = (device - cpu).abs() / cpu;
        teller.figure(format!("{name}_steps"), pair[0].len());
        teller.figure(
            format!("{name}_loss_first"),
            pair[1].first().and_then(|record| record.loss),
        );
        teller.figure(format!("{name}_loss_final"), device);
        teller.figure(format!("{name}_loss_final_cpu"), cpu);
        teller.figure(format!("{name}_loss_relative_difference"), difference);
        // Written so that a loss that is no number is a fault, too.
        teller.demand(difference <= LOSS, || {
            format!("{name}: after {steps} steps the loss is {device:.5}, on the CPU {cpu:.5}")
        });
    }

    let sync = forecast
        .with("train.consistency", "\"sync\"")
        .with("train.batch", 2)
        .with("train.samples", 8 * steps)
        .with("cluster.servers", 2);
    let two = train(
        "two-groups".into(),
        sync.clone().with("cluster.groups", "[2, 2]"),
    )?;
    let one = train("one-group".into(), sync.with("cluster.groups", "[4]"))?;
    let difference = curves(&two, &one)?;
    teller.figure(
        "groups_2x2_against_1x4_loss_relative_difference",
        difference,
    );
    teller.demand(difference <= GROUPS, || {
        format!("two groups of two ranks are not one of four: losses differ by {difference:.1e}")
    });
    Ok(())
}

fn gradients(options: &Options, teller: &Teller, name: &str, keys: &Keys) -> anyhow::Result<()> {
    let folder = options.folder(&format!("gradients-{name}"))?;
    let (config, out) = (folder.join("config.toml"), folder.join("found.json"));
    fs::write(&config, keys.config()?.resolved())?;
    let arguments = [
        "gradients".to_owned(),
        format!("--config={}", config.display()),
        format!("--out={}", out.display()),
    ];
    Process::start("gradients", own(&arguments)?, &folder)?.finish(options.patience(LIMIT))?;
    let found = read_json(&out)?;
    let difference = found["relative_difference"].as_f64().unwrap_or(f64::NAN);
    teller.demand(difference <= GRADIENT, || {
        format!("{name}: gradients differ from the CPU's by {difference:.1e}, relative")
    });
    teller.figure(format!("{name}_gradient"), found);
    Ok(())
}

/// The median loss of the last steps.
fn final_loss(records: &[StepRecord]) -> f64 {
    let losses = records.iter().rev().take(FINAL_STEPS);
    median(
        losses
            .map(|record| record.loss.unwrap_or(f64::NAN))
            .collect(),
    )
}

/// The largest relative difference of two runs' losses at a clock, each over all groups' samples.
fn curves(a: &[StepRecord], b: &[StepRecord]) -> anyhow::Result<f64> {
    let at = |records: &[StepRecord], clock: u64| {
        let (mut sum, mut samples) = (0.0, 0);
        for record in records.iter().filter(|record| record.clock == clock) {
            sum += record.loss.unwrap_or(f64::NAN) * record.samples as f64;
            samples += record.samples;
        }
        (sum / samples as f64, samples)
    };
    let last = |records: &[StepRecord]| records.iter().map(|record| record.clock).max();
    let (Some(end_a), Some(end_b)) = (last(a), last(b)) else {
        anyhow::bail!("a run without steps");
    };
    anyhow::ensure!(
        end_a == end_b,
        "one run has {end_a} clocks, the other {end_b}"
    );
    let mut largest: f64 = 0.0;
    for clock in 0..=end_a {
        let ((a, samples_a), (b, samples_b)) = (at(a, clock), at(b, clock));
        anyhow::ensure!(
            samples_a == samples_b,
            "clock {clock}: {samples_a} and {samples_b} samples"
        );
        let difference = (a - b).abs() / b.abs();
        if difference.is_nan() {
            return Ok(f64::NAN);
        }
        largest = largest.max(difference);
    }
    Ok(largest)
}
