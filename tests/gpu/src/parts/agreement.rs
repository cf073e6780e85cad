//! The device computes as precisely as the CPU: gradients, and losses of training; and under `sync`
//! two groups are one.
//!
//! How far f32 is from exact numbers depends on the network: of ResNet-50 at its initial values a
//! gradient is 1e-2 off on whatever is computed, of the forecaster 1e-6. So f64 on the CPU is the
//! yardstick, and the device's f32 may be as far from it as the CPU's f32 is.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use tradewind_common::record::StepRecord;

use super::curves;
use crate::cluster::{Cluster, Ranks};
use crate::options::{Keys, Options, Planted};
use crate::process::{Process, own, read_json};
use crate::report::Teller;

/// So many times as far from f64 as the CPU's f32 the device's may be: it rounds as often, but
/// convolutions add in another order, or by another algorithm (Winograd's loses some bits).
pub(super) const FACTOR: f64 = 4.0;

/// And so much besides, of gradients, relative: some roundings of f32, for where the CPU happens to make none.
const GRADIENT_FLOOR: f64 = 1e-6;

/// Of losses of two groups and of one, relative: only the order of sums differs.
const GROUPS: f64 = 1e-3;

pub(super) const LIMIT: Duration = Duration::from_secs(75);

pub(super) fn run(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    let forecast = Keys::common(options, "check").forecast(options).exact();
    let resnet = Keys::common(options, "check").exact();
    let resnet = resnet.resnet(options, options.size(64, 16), 10);
    let tasks = [("forecast", forecast.clone()), ("resnet50", resnet)];
    for (name, keys) in &tasks {
        gradients(options, teller, name, keys)?;
    }
    let [forecaster, (_, resnet)] = tasks;
    let shallow = resnet.with("model.blocks", "[1, 1, 1, 1]");
    curves::run(options, teller, &[forecaster, ("resnet14", shallow)])?;
    groups(options, teller, &forecast)
}

fn gradients(options: &Options, teller: &Teller, name: &str, keys: &Keys) -> anyhow::Result<()> {
    let folder = options.folder(&format!("gradients-{name}"))?;
    let (config, out) = (folder.join("config.toml"), folder.join("found.json"));
    let keys = keys.clone().with("train.samples", 1);
    let keys = keys.with("train.batch", options.size(16, 4));
    fs::write(&config, keys.config()?.resolved())?;
    let mut arguments = vec![
        "gradients".to_owned(),
        format!("--config={}", config.display()),
        format!("--out={}", out.display()),
    ];
    if options.plant == Some(Planted::WrongScale) {
        arguments.push("--wrong".into());
    }
    Process::start("gradients", own(&arguments)?, &folder)?.finish(options.patience(LIMIT))?;
    let found = read_json(&out)?;
    let error = |of: &str| found[of].as_f64().unwrap_or(f64::NAN);
    let (device, cpu) = (error("device_error"), error("cpu_error"));
    teller.demand(device <= FACTOR * cpu + GRADIENT_FLOOR, || {
        format!("{name}: gradients are {device:.1e} from f64, relative, and the CPU's {cpu:.1e}")
    });
    teller.figure(format!("{name}_gradient"), found);
    Ok(())
}

/// Trains with the ranks of a configuration; returns what they wrote down.
pub(super) fn train(options: &Options, name: &str, keys: &Keys) -> anyhow::Result<Vec<StepRecord>> {
    let cluster = Cluster::start(options, name, keys, Ranks::Workers)?;
    let ended = cluster.finish(options.patience(LIMIT));
    ended.with_context(|| name.to_owned())
}

/// Two groups of two ranks and one of four, which see the same samples between updates.
fn groups(options: &Options, teller: &Teller, forecast: &Keys) -> anyhow::Result<()> {
    let sync = forecast
        .clone()
        .with("train.consistency", "\"sync\"")
        .with("train.batch", 2)
        .with("train.samples", 8 * options.size(50, 8))
        .with("cluster.servers", 2);
    let two = sync.clone().with("cluster.groups", "[2, 2]");
    let two = train(options, "two-groups", &two)?;
    let one = train(options, "one-group", &sync.with("cluster.groups", "[4]"))?;
    let difference = apart(&two, &one)?;
    teller.figure(
        "groups_2x2_against_1x4_loss_relative_difference",
        difference,
    );
    teller.demand(difference <= GROUPS, || {
        format!("two groups of two ranks are not one of four: losses differ by {difference:.1e}")
    });
    Ok(())
}

/// The largest relative difference of two runs' losses at a clock, each over all groups' samples.
fn apart(a: &[StepRecord], b: &[StepRecord]) -> anyhow::Result<f64> {
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
