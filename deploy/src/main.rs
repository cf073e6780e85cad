//! The `tradewind` command: starts, watches and reads runs. One file a verb.

/// What std's macro of this name does, but that nothing happens where it cannot be written.
macro_rules! eprintln {
    ($($text:tt)*) => { tradewind_process::log::complain(format_args!($($text)*)) };
}

mod bench;
mod chaos;
mod clock;
mod cluster;
mod config;
mod doctor;
mod events;
mod experiment;
mod export;
mod failure;
mod folder;
mod launch;
mod lines;
mod lock;
mod place;
mod progress;
mod report;
mod results;
mod rotation;
mod run;
mod runtime;
mod slurm;
mod snapshot;
mod status;
mod summary;
mod whole;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tradewind_process::log::say;

/// This one, with the commit if it is a release.
pub(crate) const VERSION: &str = env!("TRADEWIND_VERSION");

/// Memory of finished transfers is used again: fresh pages cost more than the copies into them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Trains one model on many machines without letting the slowest set the pace.
#[derive(Debug, Parser)]
#[command(name = "tradewind", version = VERSION)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Train on this machine: servers and groups as processes of their own.
    Run(run::Arguments),
    /// Run every combination of settings and seeds of an experiment, and compare them.
    Experiment(experiment::Arguments),
    /// Compare runs that were made by hand, on one page.
    Report(report::verb::Arguments),
    /// Show how a run stands: groups, servers, shards, the last snapshot, what has happened.
    Status(status::Arguments),
    /// Have a snapshot of a run taken now.
    Snapshot(snapshot::Arguments),
    /// Join a snapshot into one model.safetensors.
    Export(export::Arguments),
    /// Measure on this machine: the exchange beside bare TCP, the optimizers beside memory.
    Bench(bench::Arguments),
    /// Train on this machine while processes die, hang and are cut off, and check what must hold.
    Chaos(chaos::Arguments),
    /// Train on a cluster: hand runs to Slurm, watch, grow and end them.
    Slurm(slurm::Arguments),
    /// Print what this node has for training on GPUs, and what is missing.
    Doctor(doctor::Arguments),
    /// Check a configuration and print it with every key, or print the table of all keys.
    Config(config::Arguments),
}

fn main() -> ExitCode {
    tradewind_process::run(begin)
}

fn begin() -> ExitCode {
    match Arguments::parse().verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Experiment(arguments) => experiment::run(&arguments),
        Verb::Report(arguments) => report::verb::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Snapshot(arguments) => snapshot::run(&arguments),
        Verb::Export(arguments) => export::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Chaos(arguments) => chaos::run(&arguments),
        Verb::Slurm(arguments) => slurm::run(&arguments),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Config(arguments) => config::run(&arguments),
    }
}
