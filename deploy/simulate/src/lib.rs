//! `tradewind simulate`: what a run would do on a machine that is not there. The cores of server and coordinator
//! are the real ones, under a virtual clock; values are symbolic, bytes exact, and a group is one actor.

mod against;
mod agenda;
mod chart;
mod legs;
mod machine;
mod members;
mod outcome;
mod plan;
mod quantiles;
mod report;
mod resource;
mod slowest;
mod stored;
mod time;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use tradewind_common::exit::Exit;
use tradewind_process::Docs;
use tradewind_process::log::{print, say};

use crate::legs::Sizes;
use crate::plan::Plan;
use crate::report::Report;
use crate::world::World;

/// What is typed behind `tradewind simulate`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The plan: a run's file with a section [machine].
    #[arg(required_unless_present = "keys")]
    plan: Option<PathBuf>,
    /// Override a key: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write results.csv, and curves.png and curves.svg of a sweep, into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare with what was measured: the folder of a run, or the results.csv of an experiment. The run's
    /// configuration is taken from there, the machine and the model's size from the plan.
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// An experiment's file: simulate each of its cells on the plan's machine, or with --against results.csv
    /// those that have results.
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// One JSON object a point instead of text.
    #[arg(long, conflicts_with = "against")]
    json: bool,
    /// Print the keys of a plan that a run's file does not have, in Markdown.
    #[arg(long)]
    keys: bool,
}

/// Simulates a plan, and prints what comes of it.
pub fn run(arguments: &Arguments) -> ExitCode {
    if arguments.keys {
        return match print(&machine::markdown()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let refuse = |error: &anyhow::Error| {
        tradewind_process::complain!("{error:#}");
        Docs::SCALE.point();
        Exit::BadInput.into()
    };
    let path = arguments.plan.as_deref().expect("clap requires it");
    let plan = match Plan::read(path, &arguments.set) {
        Ok(plan) => plan,
        Err(error) => return refuse(&error),
    };
    let done = match (&arguments.against, &arguments.experiment) {
        (Some(measured), experiment) => against::compare(&plan, measured, experiment.as_deref()),
        (None, Some(experiment)) => against::predict_all(&plan, experiment),
        (None, None) => points(&plan, arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

/// Simulates each point of the plan's sweep.
fn points(plan: &Plan, arguments: &Arguments) -> anyhow::Result<()> {
    let mut reports = Vec::new();
    for (values, point) in plan.points()? {
        let report = simulate(&point)?.at(&plan.axes, values);
        if arguments.json {
            say(report.json());
        } else if plan.axes.is_empty() {
            say(report.text());
        } else {
            say(report.line());
        }
        reports.push(report);
    }
    if let Some(folder) = &arguments.out {
        write(plan, &reports, folder)?;
    }
    Ok(())
}

/// What comes of a plan without a sweep.
pub(crate) fn simulate(plan: &Plan) -> anyhow::Result<Report> {
    let sizes = Sizes::new(plan).context("the model cannot be laid out")?;
    let outcome = World::new(plan, &sizes).run();
    Ok(Report::new(plan, &sizes, &outcome))
}

fn write(plan: &Plan, reports: &[Report], folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let table = folder.join("results.csv");
    tradewind_process::whole::write(&table, report::csv(reports)?)?;
    say(format_args!("{}", table.display()));
    if !plan.axes.is_empty() {
        for path in chart::write(plan, reports, folder)? {
            say(format_args!("{}", path.display()));
        }
    }
    Ok(())
}
