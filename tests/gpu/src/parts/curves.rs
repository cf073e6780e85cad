//! Losses of training on the device, beside those of the same training on the CPU and in f64.
//!
//! A step makes of a difference in the values a larger one, the more the deeper the network: f32 and f64
//! of ResNet-50 differ by 2 % after one step and by 20 % after ten. So a residual network of 14 layers is trained.

use std::fs;
use std::thread;

use serde_json::json;
use tradewind_common::record::StepRecord;

use super::agreement::{FACTOR, LIMIT, train};
use super::median;
use crate::options::{Keys, Options, Planted, WRONG_SCALE};
use crate::process::{Process, own, read_json};
use crate::report::Teller;

/// Steps whose losses are compared with those in f64: so many that an error which happens to be small counts little, and
/// so few that they still follow each other.
const COMPARED_STEPS: usize = 10;

/// And so much besides, relative: some roundings of f32, grown through the steps.
const FLOOR: f64 = 1e-4;

/// Steps whose median is the final loss.
const FINAL_STEPS: usize = 5;

/// Where the CPU's final loss is less than this part of its first one, the device's has to be as well.
const FALLEN: f64 = 0.5;

/// A task's training, three times.
struct Runs {
    device: Vec<f64>,
    cpu: Vec<f64>,
    exact: Vec<f64>,
}

/// Trains the tasks, and judges what came of it.
pub(super) fn run(
    options: &Options,
    teller: &Teller,
    tasks: &[(&str, Keys)],
) -> anyhow::Result<()> {
    let runs = thread::scope(|scope| {
        // Side by side: on the CPU a rank has one core.
        let started: Vec<_> = tasks
            .iter()
            .map(|(name, keys)| scope.spawn(|| Runs::new(options, name, keys)))
            .collect();
        let joined = started
            .into_iter()
            .map(|runs| runs.join().expect("no panic"));
        joined.collect::<anyhow::Result<Vec<_>>>()
    })?;
    for ((name, _), runs) in tasks.iter().zip(&runs) {
        let (device_error, cpu_error) = (runs.error(&runs.device), runs.error(&runs.cpu));
        let first = runs.cpu[0];
        let (device, cpu) = (end(&runs.device), end(&runs.cpu));
        teller.figure(
            format!("{name}_losses"),
            json!({
                "compared_steps": runs.exact.len(),
                "device_error": device_error,
                "cpu_error": cpu_error,
                "steps": runs.device.len(),
                "first": first,
                "final": device,
                "final_cpu": cpu,
            }),
        );
        // Written so that a loss that is no number is a fault, too.
        teller.demand(device_error <= FACTOR * cpu_error + FLOOR, || {
            let steps = runs.exact.len();
            format!("{name}: losses of {steps} steps are {device_error:.1e} from f64, relative, and the CPU's {cpu_error:.1e}")
        });
        let falls = |loss: f64| loss < FALLEN * first;
        teller.demand(device.is_finite() && (falls(device) || !falls(cpu)), || {
            format!("{name}: the loss falls from {first:.5} to {device:.5}, on the CPU to {cpu:.5}")
        });
    }
    Ok(())
}

impl Runs {
    fn new(options: &Options, name: &str, keys: &Keys) -> anyhow::Result<Self> {
        let batch = 8;
        let keys = keys
            .clone()
            .with("train.batch", batch)
            .with("train.samples", batch * options.size(50, 8));
        let on_cpu = keys.clone().with("compute.device", "\"cpu\"");
        let mut on_device = keys.clone();
        if options.plant == Some(Planted::WrongScale) {
            let rate = keys.config()?.optimizer.schedule.learning_rate;
            on_device = keys.with("optimizer.learning_rate", WRONG_SCALE * rate);
        }
        thread::scope(|scope| {
            let train = |place: &str, keys: &Keys| {
                let records = train(options, &format!("{name}-{place}"), keys)?;
                anyhow::ensure!(!records.is_empty(), "{name}: no step was recorded");
                Ok(losses(&records))
            };
            let device = scope.spawn(move || train("device", &on_device));
            let exact = scope.spawn(|| exact(options, name, &on_cpu));
            let cpu = train("cpu", &on_cpu)?;
            Ok(Self {
                device: device.join().expect("no panic")?,
                cpu,
                exact: exact.join().expect("no panic")?,
            })
        })
    }

    /// How far losses are from those in f64, relative: the root of the mean square over the steps that are compared.
    fn error(&self, losses: &[f64]) -> f64 {
        if losses.len() < self.exact.len() {
            return f64::NAN;
        }
        let pairs = losses.iter().zip(&self.exact);
        let squares = pairs.map(|(loss, exact)| ((loss - exact) / exact).powi(2));
        (squares.sum::<f64>() / self.exact.len() as f64).sqrt()
    }
}

/// The plain loop's losses in f64.
fn exact(options: &Options, name: &str, keys: &Keys) -> anyhow::Result<Vec<f64>> {
    let folder = options.folder(&format!("{name}-f64"))?;
    let (config, out) = (folder.join("config.toml"), folder.join("found.json"));
    fs::write(&config, keys.config()?.resolved())?;
    let arguments = [
        "plain".to_owned(),
        format!("--config={}", config.display()),
        "--warmup=0".to_owned(),
        format!("--steps={}", options.size(COMPARED_STEPS, 8)),
        "--double".to_owned(),
        format!("--out={}", out.display()),
    ];
    Process::start("plain", own(&arguments)?, &folder)?.finish(options.patience(LIMIT))?;
    let found = read_json(&out)?;
    Ok(serde_json::from_value(found["losses"].clone())?)
}

/// By step.
fn losses(records: &[StepRecord]) -> Vec<f64> {
    let losses = records.iter().map(|record| record.loss);
    losses.map(|loss| loss.unwrap_or(f64::NAN)).collect()
}

/// The median loss of the last steps.
fn end(losses: &[f64]) -> f64 {
    let last = losses.iter().rev().take(FINAL_STEPS);
    median(last.copied().collect())
}
