//! Runs with faults beside the same runs without.

use std::path::Path;

use anyhow::Context;
use tradewind_common::record::Evaluation;

use super::session::FaultPlan;
use super::{Arguments, ChaosReport, MINUTES, NO_BUDGET, Order};
use tradewind_process::log::say;

/// Faults of a run whose end is compared.
const FAULTS: usize = 10;

/// The part of the steps that shall be done in spite of faults.
const EFFICIENCY: f64 = 0.9;

/// By how much the mean metric may differ.
const DIFFERENCE: f64 = 0.01;

/// Steps done in the same time, with faults and without. Whether all is well.
pub(super) fn efficiency(arguments: &Arguments) -> anyhow::Result<bool> {
    let lasts = arguments.minutes.unwrap_or(MINUTES) * 60.0;
    let config = arguments.config(&[NO_BUDGET.to_owned()])?;
    let out = arguments.folder(&config);
    let run = |name: &str, faults: bool| -> anyhow::Result<ChaosReport> {
        say(format_args!("{name}:"));
        let order = Order {
            config: config.clone(),
            out: out.join(name.replace(' ', "-")),
            seed: arguments.seed,
            plan: FaultPlan {
                faults: match faults {
                    true => arguments.faults(&config)?,
                    false => Box::new(std::iter::empty()),
                },
                lasts: Some(lasts),
                one_at_a_time: true,
            },
        };
        order.carry_out()
    };
    let without = run("without faults", false)?;
    let with = run("with faults", true)?;
    let rate = |report: &ChaosReport| report.work.steps as f64 / report.work.seconds;
    let samples = |report: &ChaosReport| report.work.samples as f64 / report.work.seconds;
    let (steps, samples) = (
        rate(&with) / rate(&without),
        samples(&with) / samples(&without),
    );
    let faults: usize = with.faults.values().sum();
    say(format_args!(
        "efficiency: {:.1} % of the steps and {:.1} % of the samples, with {faults} faults in {lasts:.0} s",
        steps * 100.0,
        samples * 100.0,
    ));
    if steps < EFFICIENCY {
        say(format_args!(
            "less than {:.0} % of the steps",
            EFFICIENCY * 100.0
        ));
    }
    // An aim, and on a machine that others use no measure: only what must hold fails.
    Ok(without.violations.is_empty() && with.violations.is_empty())
}

/// The final metric of pairs of runs of one seed each. Whether all is well.
pub(super) fn convergence(arguments: &Arguments, pairs: u64) -> anyhow::Result<bool> {
    let most = arguments.faults.unwrap_or(FAULTS);
    let mut rows = Vec::new();
    let mut held = true;
    for seed in 1..=pairs {
        let mut config = arguments.config(&[])?;
        let folder = arguments.folder(&config);
        let mut set = arguments.set.clone();
        set.push(format!("run.seed={seed}"));
        config = tradewind_folder::config::read(&arguments.config, &set)?;
        let mut run = |faults: usize| -> anyhow::Result<(f64, usize)> {
            let out = folder.join(format!("seed-{seed}-faults-{faults}"));
            say(format_args!("seed {seed}, {faults} faults:"));
            let all = super::schedule::drawn(
                arguments.field(&config)?,
                arguments.seed + seed,
                arguments.every,
            );
            let order = Order {
                config: config.clone(),
                out: out.clone(),
                seed: arguments.seed + seed,
                plan: FaultPlan {
                    faults: Box::new(all.take(faults)),
                    lasts: None,
                    one_at_a_time: true,
                },
            };
            let report = order.carry_out()?;
            held &= report.violations.is_empty();
            Ok((metric(&out)?, report.faults.values().sum()))
        };
        let (without, _) = run(0)?;
        let (with, faults) = run(most)?;
        rows.push((seed, without, with, faults));
    }
    say("seed   without      with     ratio   faults");
    for (seed, without, with, faults) in &rows {
        let ratio = with / without;
        say(format_args!(
            "{seed:>4}  {without:8.4}  {with:8.4}  {ratio:8.4}  {faults:>7}"
        ));
    }
    let sum = |of: fn(&(u64, f64, f64, usize)) -> f64| rows.iter().map(of).sum::<f64>();
    let ratio = sum(|row| row.2) / sum(|row| row.1);
    say(format_args!("ratio of the means: {ratio:.4}"));
    let near = (ratio - 1.0).abs() <= DIFFERENCE;
    if !near {
        say(format_args!("more than {:.0} % apart", DIFFERENCE * 100.0));
    }
    Ok(held && near)
}

fn metric(out: &Path) -> anyhow::Result<f64> {
    let path = out.join("evaluation.json");
    let text = std::fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let evaluation: Evaluation = serde_json::from_str(&text)?;
    Ok(evaluation.metric.value)
}
