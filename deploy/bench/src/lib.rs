//! `tradewind bench`: what this machine moves. `exchange` measures exchanges between clients and
//! servers beside bare TCP that does the same work; `isolation` what one run feels of another on the
//! same servers; `apply` measures the optimizers beside memory; `scale` what grows with the number of groups;
//! `data` measures how training keeps up with samples that are read, and `predict` measures nothing and tells what
//! to expect. The processes that a measurement starts are
//! `tradewind-server` and [`Helper`]s of the program `tradewind-bench`.

mod apply;
mod client;
mod data;
mod exchange;
mod fleet;
mod floor;
mod folder;
mod isolation;
mod links;
mod model;
mod orders;
mod predict;
mod ranks;
mod report;
mod scale;
mod size;
mod steady;
mod steps;
mod usage;

use std::process::ExitCode;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use tradewind_common::exit::Exit;
use tradewind_folder::input;
use tradewind_process::Docs;

/// What is typed behind `tradewind bench`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

/// What can be measured, or told without measuring.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Exchanges between client and server processes, beside bare TCP that does the same work.
    Exchange(exchange::Arguments),
    /// Exchanges of a run while another one floods: on the same servers, and on servers of its own.
    Isolation(isolation::Arguments),
    /// Updates of a large vector by each optimizer, beside a triad over the same memory.
    Apply(apply::Arguments),
    /// Reading samples while steps last as long as those of a known workload on an accelerator.
    Data(data::Arguments),
    /// What exchanges of a run would move and take, by the cost model; measures nothing.
    Predict(predict::Arguments),
    /// Operations of a core in runs of more and more groups: what they cost, and what they count.
    Scale(scale::Arguments),
    /// Compare results of `bench exchange --json` with links of a given rate.
    #[command(hide = true)]
    Links(links::Arguments),
}

/// A process that a measurement starts: `tradewind-bench` and one of these verbs.
#[derive(Debug, Subcommand)]
pub enum Helper {
    /// A client of an exchange: obeys lines on its input.
    #[command(hide = true)]
    Client(client::Arguments),
    /// Groups of one rank that are connected: obeys lines on its input.
    #[command(hide = true)]
    Ranks(ranks::Arguments),
    /// A server of the floor of an exchange.
    #[command(hide = true)]
    FloorServer(floor::server::Arguments),
    /// A client of the floor of an exchange: obeys lines on its input.
    #[command(hide = true)]
    FloorClient(floor::client::Arguments),
}

/// How a measurement did not come to its end.
enum Stop {
    /// What was asked for cannot be measured.
    Input(String),
    /// It went wrong.
    Failed(anyhow::Error),
    /// By Ctrl-C or SIGTERM.
    Interrupted(&'static str),
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Measures, and prints what came of it.
pub fn run(arguments: &Arguments) -> ExitCode {
    measure(&arguments.verb)
}

/// The same, of the verb alone.
pub fn measure(verb: &Verb) -> ExitCode {
    ended(match verb {
        Verb::Exchange(arguments) => exchange::run(arguments),
        Verb::Isolation(arguments) => isolation::run(arguments),
        Verb::Apply(arguments) => apply::run(arguments),
        Verb::Data(arguments) => data::run(arguments),
        Verb::Predict(arguments) => predict::run(arguments),
        Verb::Scale(arguments) => scale::run(arguments),
        Verb::Links(arguments) => links::run(arguments).map_err(Stop::Failed),
    })
}

/// Does the part of a process of a measurement, to its end.
pub fn help(helper: &Helper) -> ExitCode {
    let ran = match helper {
        Helper::Client(arguments) => client::run(arguments),
        Helper::Ranks(arguments) => ranks::run(arguments),
        Helper::FloorServer(arguments) => floor::server::run(arguments),
        Helper::FloorClient(arguments) => floor::client::run(arguments),
    };
    ended(ran.map_err(Stop::Failed))
}

/// Complains about what went wrong; the exit status.
fn ended(ran: Result<(), Stop>) -> ExitCode {
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Input(text)) => {
            tradewind_process::complain!("{text}");
            Docs::BENCH.point();
            Exit::BadInput.into()
        }
        Err(Stop::Failed(error)) => input::fail(&error, Docs::BENCH).into(),
        Err(Stop::Interrupted(by)) => {
            tradewind_process::complain!("{by}: all processes are ended");
            Exit::Interrupted.into()
        }
    }
}

/// A line on the terminal behind stderr, if there is one, for at most so many samples.
fn progress(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    let style = ProgressStyle::with_template("[{bar:40}] {wide_msg}");
    bar.set_style(style.expect("a fixed template").progress_chars("=> "));
    bar
}
