//! `tradewind experiment`: a matrix of runs on this machine, and what it comes to.

mod analysis;
mod cell;
mod compare;
mod display;
mod earlier;
mod earlier_job;
mod file;
mod grid;
mod job;
mod keys;
mod known;
mod levels;
mod line;
mod machine;
mod matrix;
mod mllog;
mod origin;
mod page;
mod prepare;
mod reading;
pub mod report;
mod results;
mod rounds;
mod runner;
mod stats;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod tuning;

use std::fs::File;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use tradewind_common::exit::Exit;

pub use keys::keys_of;

use file::ExperimentPlan;
use known::Known;
use line::{CellState, Line, Run};
use matrix::Matrix;
use origin::Origin;
use page::Page;
use reading::Reading;
use runner::{On, Runner};
use tradewind_folder::input;
use tradewind_folder::lock;
use tradewind_folder::runtime::one_thread;
use tradewind_launch::slurm;
use tradewind_process::Docs;
use tradewind_process::log::say;
use tradewind_process::whole;
use tuning::Searches;

/// What is typed behind `tradewind experiment`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The experiment.
    file: PathBuf,
    /// Run what its section `quick` makes of it.
    #[arg(long)]
    quick: bool,
    /// The experiment's folder; experiments/NAME if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run nothing; write the results and the report of what has been run.
    #[arg(long)]
    report_only: bool,
    /// Do not run the trials that this tuning.csv has: that of an earlier run of the same experiment.
    #[arg(long, value_name = "FILE")]
    trials: Option<PathBuf>,
    /// Run each cell and each trial as a job of Slurm. Ctrl-C leaves the jobs alone; the same command
    /// gathers what they have come to.
    #[arg(long, conflicts_with = "report_only")]
    slurm: bool,
    /// With --slurm: jobs at a time, at most.
    #[arg(long, value_name = "JOBS", default_value_t = 8, requires = "slurm")]
    at_once: usize,
}

/// How an experiment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Complete,
    /// Some cells have no results.
    Incomplete,
    Interrupted,
}

/// Runs what is missing of an experiment, and writes its results.
pub fn run(arguments: &Arguments) -> ExitCode {
    let read = ExperimentPlan::read(&arguments.file, arguments.quick);
    let read = read.and_then(|plan| {
        let matrix = Matrix::new(&plan)?;
        if arguments.slurm {
            let mut configs = matrix.cells.iter().map(|cell| &cell.config);
            configs.try_for_each(slurm::check)?;
        }
        Ok((Searches::new(&plan, &matrix)?, matrix, plan))
    });
    let (searches, mut matrix, plan) = match read {
        Ok(read) => read,
        Err(error) => return input::refuse(&error, Docs::EXPERIMENTS).into(),
    };
    let runtime = one_thread();
    let ran = runtime
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(conduct(&plan, &mut matrix, searches, arguments)));
    match ran {
        Ok(Status::Complete) => ExitCode::SUCCESS,
        Ok(Status::Incomplete) => ExitCode::FAILURE,
        Ok(Status::Interrupted) => Exit::Interrupted.into(),
        Err(error) if error.is::<prepare::Refused>() => {
            input::refuse(&error, Docs::EXPERIMENTS).into()
        }
        Err(error) => input::fail(&error, Docs::EXPERIMENTS).into(),
    }
}

async fn conduct(
    plan: &ExperimentPlan,
    matrix: &mut Matrix,
    searches: Searches,
    arguments: &Arguments,
) -> anyhow::Result<Status> {
    let name = match arguments.quick {
        true => format!("{}-quick", plan.name),
        false => plan.name.clone(),
    };
    let folder = arguments.out.clone();
    let folder = folder.unwrap_or_else(|| Path::new("experiments").join(&name));
    let on = match arguments.slurm {
        true => On::Slurm {
            at_once: arguments.at_once.max(1),
        },
        false => On::Machine,
    };
    let runner = Runner::new(&folder, on)?;
    let _lock = lock(&folder)?;
    whole::write(&folder.join("experiment.toml"), &plan.text)?;
    let where_to = (name.as_str(), folder.as_path());
    let known = Known::new(arguments.trials.as_deref())?;
    let look_only = arguments.report_only;
    let came = rounds::run(
        (plan, known),
        matrix,
        searches,
        where_to,
        &runner,
        look_only,
    )
    .await?;

    let table = arguments.trials.as_deref();
    let origin = Origin::new(matrix, &came.known.records, &came.trials, table);
    let mut lines = read_lines(plan, matrix, &runner, came.known);
    for trial in came.trials.iter().filter(|trial| trial.chosen) {
        lines[trial.setting].on_edge.clone_from(&trial.on_edge);
    }
    if plan.tuning.is_some() {
        let columns = results::trials(matrix, &came.trials);
        table::write_csv(&columns, &folder.join("tuning.csv"))?;
    }
    let columns = results::columns(&name, &lines);
    table::write_csv(&columns, &folder.join("results.csv"))?;
    table::write_parquet(&columns, &folder.join("results.parquet"))?;
    let about = match arguments.quick {
        true => format!("{} (quick: smaller than the experiment itself)", plan.about),
        false => plan.about.clone(),
    };
    let page = Page {
        title: &name,
        about: about.trim(),
        target: plan.target.as_ref(),
        lines: &lines,
        trials: &results::trials(matrix, &came.trials),
        origin: &origin,
        command: &command(plan, arguments),
        files: &sources(plan),
    };
    whole::write(&folder.join("report.html"), page::page(&page))?;
    let curves = folder.join("curves.svg");
    match page::figure(&page) {
        Some(figure) => whole::write(&curves, figure)?,
        // That of an earlier call would not be of this page.
        None if curves.exists() => std::fs::remove_file(&curves)
            .with_context(|| format!("cannot remove {}", curves.display()))?,
        None => {}
    }
    say(terminal::tables(plan, &lines));
    say(format_args!(
        "results.csv, results.parquet and report.html are in {}",
        folder.display()
    ));
    Ok(status(came.interrupted, &lines))
}

/// How it is called again, with what its results depend on.
fn command(plan: &ExperimentPlan, arguments: &Arguments) -> String {
    let mut command = format!("tradewind experiment {}", plan.file);
    if arguments.quick {
        command += " --quick";
    }
    if let Some(trials) = &arguments.trials {
        command += &format!(" --trials {}", trials.display());
    }
    if arguments.slurm {
        command += &format!(" --slurm --at-once {}", arguments.at_once);
    }
    command
}

/// What it comes to. Training that diverged is a result; a cell that is void, or that this machine could
/// not run, is none.
fn status(interrupted: bool, lines: &[Line]) -> Status {
    let mut runs = lines.iter().flat_map(|line| &line.runs);
    let complete =
        runs.all(|run| matches!(run.state, CellState::Completed(_) | CellState::Failed(_)));
    match (interrupted, complete) {
        (true, _) => Status::Interrupted,
        (false, true) => Status::Complete,
        (false, false) => Status::Incomplete,
    }
}

/// The files that an experiment is made of, as far as they can be read.
fn sources(plan: &ExperimentPlan) -> Vec<(String, String)> {
    let base = std::fs::read_to_string(&plan.base).ok();
    let base = base.map(|text| ("the base configuration".to_owned(), text));
    iter::once((plan.file.clone(), plan.text.clone()))
        .chain(base)
        .collect()
}

/// What every cell comes to, finished or not.
fn read_lines(
    plan: &ExperimentPlan,
    matrix: &Matrix,
    runner: &Runner,
    mut known: Known,
) -> Vec<Line> {
    let target = plan.target.as_ref();
    let runs = matrix.cells.iter().map(|cell| {
        let failure = known.failures.remove(&cell.id);
        let record = known.record(cell, runner);
        let ended = record.as_ref();
        let ended = ended.map(|record| (record, Reading::of(&runner.run_folder(cell))));
        let run = match failure {
            Some(why) => Run::of(
                cell.id.clone(),
                cell.seed,
                CellState::NotRun(Some(why)),
                target,
            ),
            None => Run::new(cell, ended, target),
        };
        (cell.id.clone(), run)
    });
    analysis::lines(matrix, runs.collect(), target)
}

/// One at a time works on an experiment; the lock goes with its process, however that ends.
fn lock(folder: &Path) -> anyhow::Result<File> {
    let lock = lock::take(folder)?;
    lock.with_context(|| {
        format!(
            "an experiment is under way in {}; wait for it, or choose another folder with --out",
            folder.display()
        )
    })
}
