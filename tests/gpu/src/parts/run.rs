//! `tradewind run` as a user has it: the shipped configuration of ResNet-50, shortened, in f32 and in bf16.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tradewind_common::run_files;

use crate::options::{Keys, Options, beside};
use crate::process::{Process, read_json};
use crate::report::Teller;

const LIMIT: Duration = Duration::from_secs(60);

/// What the final loss may be at most, of the first one.
const FALLEN: f64 = 0.9;

pub(super) fn run(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    let (pixels, batch) = options.size((224, 256), (32, 8));
    for (precision, steps) in [("f32", 40), ("bf16", options.size(80, 40))] {
        let keys = Keys::default()
            // Few kinds of images are told apart after few steps.
            .resnet(options, pixels, 10)
            .with("compute.device", options.device_key())
            .with("compute.precision", format!("{precision:?}"))
            .with("data.samples", 20 * batch)
            .with("train.batch", batch)
            .with("train.samples", steps * batch)
            // Adam brings the loss down within tens of steps; SGD at a rate that is safe does not.
            .with("optimizer.name", "\"adam\"")
            .with("optimizer.learning_rate", options.size("0.0005", "0.005"))
            .with("schedule.warmup_samples", 0)
            .reading_ahead();
        one(options, teller, precision, &keys)?;
    }
    Ok(())
}

fn one(options: &Options, teller: &Teller, precision: &str, keys: &Keys) -> anyhow::Result<()> {
    let folder = options.folder(&format!("run-{precision}"))?;
    let run = folder.join("run");
    let mut command = Command::new(beside("tradewind")?);
    command
        .arg("run")
        .arg(options.configs.join("resnet50.toml"))
        .arg(format!("--out={}", run.display()))
        .args(keys.settings());
    Process::start("run", command, &folder)?.finish(options.patience(LIMIT))?;
    let summary = read_json(&run.join(run_files::SUMMARY))?;
    let number = |at: &str| {
        let value = summary.pointer(at).and_then(|value| value.as_f64());
        value.with_context(|| format!("{}: no number at {at}", run_files::SUMMARY))
    };
    let (first, last) = (number("/loss/first")?, number("/loss/final")?);
    teller.figure(
        precision,
        json!({
            "samples_per_second": number("/samples/applied")? / number("/train_seconds")?,
            "train_seconds": number("/train_seconds")?,
            "wall_seconds": number("/wall_seconds")?,
            "utilization": number("/groups/0/utilization")?,
            "loss_first": first,
            "loss_final": last,
            "validation_error_percent": number("/metric/validation/value")?,
            "held_out_error_percent": number("/metric/value")?,
        }),
    );
    teller.demand(last <= FALLEN * first, || {
        format!("{precision}: the loss was {first:.3} at first and is {last:.3} in the end")
    });
    Ok(())
}
