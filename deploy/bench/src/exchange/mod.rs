//! `tradewind bench exchange`: starts a fleet of servers and clients, and beside it the floor or
//! another fleet, has them work in turn, and reports.

mod arguments;

use std::path::Path;

use anyhow::Context;

use super::Stop;
use super::fleet::{Fleet, FleetKind, StartOptions};
use super::folder::measured;
use super::model::Model;
use super::orders::Work;
use super::report::{ExchangeReport, Measured, Other, Side, ratios};
use super::steady::{self, Series};
use tradewind_launch::run::secret;
use tradewind_process::log::say;

pub use self::arguments::Arguments;

/// Most samples of pushes and of pulls, which are measured on the side.
const ONE_WAY_RUNS: usize = 7;

pub(super) fn run(arguments: &Arguments) -> Result<(), Stop> {
    arguments.check().map_err(Stop::Input)?;
    let report = ExchangeReport::new(&measured(async |folder| measure(arguments, folder).await)?);
    if arguments.json {
        say(serde_json::to_string_pretty(&report).context("cannot write the report")?);
    } else {
        say(report.table());
    }
    Ok(())
}

async fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<Measured> {
    let suffix = secret()?;
    let attached = arguments.attached();
    let token = match attached {
        true => std::env::var(tradewind_common::environment::TOKEN).unwrap_or_default(),
        false => suffix.clone(),
    };
    let options = StartOptions {
        folder,
        token: &token,
        run: &format!("bench-{suffix}"),
        wrap: &arguments.wrap,
        host: &arguments.host,
        server_threads: arguments.threads(),
    };
    let (kind, model) = (arguments.kind(), &arguments.model);
    let mut fleet = Fleet::start(arguments::MAIN, &kind, model, &options).await?;
    let mut other = match arguments.other() {
        None => None,
        Some((names, kind, model)) => {
            let run = format!("bench-{suffix}-baseline");
            let options = StartOptions {
                run: &run,
                ..options.clone()
            };
            Some((
                Fleet::start(names, &kind, &model, &options).await?,
                kind,
                model,
            ))
        }
    };

    let bar = super::progress(arguments.runs);
    // The first exchange opens connections and touches memory.
    fleet.sample(Work::Exchange, 0.0).await?;
    if let Some((other, ..)) = &mut other {
        other.sample(Work::Exchange, 0.0).await?;
    }
    let (mut samples, mut others) = (Vec::new(), Vec::new());
    let (mut pushes, mut pulls) = (Vec::new(), Vec::new());
    loop {
        let sample = fleet.sample(Work::Exchange, arguments.seconds).await?;
        let mut text = format!("exchange {:.2} GB/s", sample.gb_per_s(2));
        samples.push(sample);
        if let Some((other, ..)) = &mut other {
            others.push(other.sample(Work::Exchange, arguments.seconds).await?);
            let ratio = ratios(&samples, &others).median().unwrap_or(f64::NAN);
            text += &format!(", {ratio:.2} of what it is compared with");
        }
        if pulls.len() < ONE_WAY_RUNS && model.step_seconds.is_none() {
            pushes.push(fleet.sample(Work::Push, arguments.seconds).await?);
            pulls.push(fleet.sample(Work::Pull, arguments.seconds).await?);
        }
        bar.set_message(text);
        bar.inc(1);
        let series = match other {
            Some(_) => ratios(&samples, &others),
            None => samples.iter().map(|s| s.gb_per_s(2)).collect::<Series>(),
        };
        if steady::enough([&series], arguments.runs) {
            break;
        }
    }
    bar.finish_and_clear();

    let side = |fleet: &Fleet, model: &Model, samples| -> anyhow::Result<Side> {
        Ok(Side {
            servers: fleet.servers(),
            model: model.clone(),
            samples,
            peaks: fleet.peaks()?,
        })
    };
    let main = side(&fleet, model, samples)?;
    let compared = match &other {
        None => None,
        Some((other, FleetKind::Floor { .. }, model)) => {
            Some(Other::Floor(side(other, model, others)?))
        }
        Some((other, _, model)) => Some(Other::Baseline(side(other, model, others)?)),
    };
    fleet.end().await?;
    if let Some((other, ..)) = other {
        other.end().await?;
    }
    Ok(Measured {
        main,
        pushes,
        pulls,
        other: compared,
        seconds: arguments.seconds,
        server_threads: (!attached).then_some(options.server_threads),
        tls: arguments.tls,
    })
}
