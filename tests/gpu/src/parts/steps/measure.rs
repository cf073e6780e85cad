//! Times of the steps of one kind of training.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};
use tradewind_common::record::StepRecord;

use super::{LIMIT, Plan};
use crate::cluster::{Cluster, Ranks};
use crate::options::{BATCHES_AHEAD, Keys, Options, READERS};
use crate::parts::median;
use crate::process::{Process, own, read_json};

/// Figures by name: of a step at least `step_seconds`, `data_seconds` in which it waited for its batch, and `cpu_seconds`
/// of the process that computes.
pub(super) type Measured = BTreeMap<String, f64>;

/// All times of a result.
fn times(found: &Value) -> anyhow::Result<Measured> {
    let found = found.as_object().context("a result is an object")?;
    let numbers = found.iter();
    let times: Measured = numbers
        .filter(|(name, _)| name.ends_with("_seconds"))
        .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)))
        .collect();
    anyhow::ensure!(
        times.contains_key("step_seconds"),
        "no step_seconds in the result"
    );
    Ok(times)
}

/// libtorch alone; with `resident_step_seconds`, on one batch that stays on the device.
pub(super) fn plain_loop(options: &Options, keys: &Keys, plan: &Plan) -> anyhow::Result<Measured> {
    let folder = options.folder("plain")?;
    let (config, out) = (folder.join("config.toml"), folder.join("found.json"));
    fs::write(&config, keys.config()?.resolved())?;
    let arguments = [
        "plain".to_owned(),
        format!("--config={}", config.display()),
        format!("--warmup={}", plan.warmup),
        format!("--steps={}", plan.steps),
        // Nothing disturbs them: fewer tell as much.
        format!("--resident={}", plan.steps.div_ceil(2)),
        format!("--out={}", out.display()),
    ];
    Process::start("plain", own(&arguments)?, &folder)?.finish(options.patience(LIMIT))?;
    times(&read_json(&out)?)
}

/// PyTorch's own DDP, and what is to be known about it: version and readers.
pub(super) fn pytorch(options: &Options, plan: &Plan) -> anyhow::Result<(Measured, Value)> {
    let python = options.python.as_ref().context("no --python was given")?;
    let folder = options.folder("ddp")?;
    let out = folder.join("found.json");
    let mut command = Command::new(python);
    command
        .arg(&options.ddp)
        .arg(format!("--device={}", options.size("cuda", "cpu")))
        .arg(format!("--precision={}", plan.precision))
        .arg(format!("--pixels={}", plan.pixels))
        .arg(format!("--batch={}", plan.batch))
        .arg(format!("--warmup={}", plan.warmup))
        .arg(format!("--steps={}", plan.steps))
        .arg(format!("--readers={READERS}"))
        .arg(format!("--ahead={BATCHES_AHEAD}"))
        .arg(format!("--out={}", out.display()))
        .args(plan.tuned.then_some("--tuned"));
    Process::start("ddp", command, &folder)?.finish(options.patience(LIMIT))?;
    let found = read_json(&out)?;
    let about = json!({ "torch": found["torch"], "readers": found["readers"] });
    Ok((times(&found)?, about))
}

/// A rank of Tradewind; with `exchange_seconds`, waiting included, and those of them in which it stood still,
/// `exposed_seconds`; and how many steps were skipped because a gradient was not finite.
pub(super) fn training(
    options: &Options,
    name: &str,
    keys: &Keys,
    plan: &Plan,
) -> anyhow::Result<Measured> {
    let cluster = Cluster::start(options, name, keys, Ranks::Workers)?;
    let counted = cluster.finish_counting(options.patience(LIMIT));
    let (records, used) = counted.context(name.to_owned())?;
    anyhow::ensure!(
        records.len() > plan.warmup + 1,
        "{name}: {} steps were recorded, too few to tell",
        records.len()
    );
    let timed = &records[plan.warmup..];
    let steps = (timed.len() - 1) as f64;
    let of = |value: fn(&StepRecord) -> f64| median(timed.iter().map(value).collect());
    let skipped = records.iter().filter(|record| record.skipped).count();
    let data = timed[1..].iter().map(|record| record.data_seconds);
    let mut measured = Measured::from(
        [
            (
                "step_seconds",
                (timed[timed.len() - 1].wall - timed[0].wall) / steps,
            ),
            ("data_seconds", data.sum::<f64>() / steps),
            (
                "exchange_seconds",
                of(|record| record.exchange_seconds + record.wait_seconds),
            ),
            ("exposed_seconds", of(|record| record.exposed_seconds)),
            ("skipped_steps", skipped as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let begin = used.iter().find(|used| used.records > plan.warmup);
    if let (Some(begin), Some(end)) = (begin, used.last())
        && begin.records < end.records
    {
        let per_step = (end.cpu_seconds - begin.cpu_seconds) / (end.records - begin.records) as f64;
        measured.insert("cpu_seconds".to_owned(), per_step);
    }
    Ok(measured)
}
