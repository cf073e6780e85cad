//! The `tradewind` command: starts, watches and reads runs. One file a verb.

mod clean;
mod completions;
mod config;
mod data;
mod diff;
mod explain;
mod export;
mod export_run;
mod init;
mod man;
mod revoke;
mod run;
mod runs;
mod size;
mod slurm;
mod snapshot;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tradewind_folder::VERSION_AND_LIBTORCH;

/// Memory of finished transfers is used again: fresh pages cost more than the copies into them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Trains one model on many machines without letting the slowest set the pace.
#[derive(Debug, Parser)]
#[command(name = "tradewind", version = VERSION_AND_LIBTORCH)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write a commented configuration to begin with: for your script, your data, or a built-in model.
    Init(init::Arguments),
    /// Train on this machine: servers and groups as processes of their own.
    Run(run::Arguments),
    /// Run every combination of settings and seeds of an experiment, and compare them.
    Experiment(tradewind_lab::Arguments),
    /// Compare runs that were made by hand, on one page.
    Report(tradewind_lab::report::Arguments),
    /// Show how a run stands: groups, servers, shards, the last snapshot, what has happened.
    Status(status::Arguments),
    /// Show runs in the browser, while they go on and afterwards: curves, groups, servers, faults, logs.
    Watch(tradewind_watch::Arguments),
    /// List the runs in a folder: state, metric, age, size.
    Runs(runs::Arguments),
    /// Show which keys and which results of two runs differ.
    Diff(diff::Arguments),
    /// Say where the time of a run went, and which keys would help.
    Explain(explain::Arguments),
    /// Delete what runs need no more, such as old snapshots: says how much that is, and asks first.
    Clean(clean::Arguments),
    /// Have a snapshot of a run taken now.
    Snapshot(snapshot::Arguments),
    /// Shut groups, ranks, servers or people out of a run under TLS until it starts anew: revoke their certificates.
    Revoke(revoke::Arguments),
    /// Join a snapshot into one model.safetensors.
    Export(export::Arguments),
    /// Hand a run that has ended to MLflow, or to W&B's offline mode.
    ExportRun(export_run::Arguments),
    /// Measure on this machine: the exchange beside bare TCP, the optimizers beside memory.
    Bench(tradewind_bench::Arguments),
    /// Tell what a run would do on a machine that a plan describes: time, load, lag, failures.
    Simulate(tradewind_simulate::Arguments),
    /// Train on this machine while processes die, hang and are cut off, and check what must hold.
    Chaos(tradewind_chaos::Arguments),
    /// Pack samples, look at them, verify and count them.
    Data(data::Arguments),
    /// Train on a cluster: submit runs to Slurm, watch, grow and end them.
    Slurm(slurm::Arguments),
    /// Print what this node has for training on GPUs, and what is missing.
    Doctor(tradewind_doctor::Arguments),
    /// Check a configuration and print it with every key, or print the table of all keys.
    Config(config::Arguments),
    /// Print what a shell needs to complete verbs, options and files.
    Completions(completions::Arguments),
    /// Write the man pages.
    #[command(hide = true)]
    Man(man::Arguments),
}

fn main() -> ExitCode {
    tradewind_process::run(begin)
}

fn begin() -> ExitCode {
    match Arguments::parse().verb {
        Verb::Init(arguments) => init::run(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Experiment(arguments) => tradewind_lab::run(&arguments),
        Verb::Report(arguments) => tradewind_lab::report::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Watch(arguments) => tradewind_watch::run(&arguments),
        Verb::Runs(arguments) => runs::run(&arguments),
        Verb::Diff(arguments) => diff::run(&arguments),
        Verb::Explain(arguments) => explain::run(&arguments),
        Verb::Clean(arguments) => clean::run(&arguments),
        Verb::Snapshot(arguments) => snapshot::run(&arguments),
        Verb::Revoke(arguments) => revoke::run(&arguments),
        Verb::Export(arguments) => export::run(&arguments),
        Verb::ExportRun(arguments) => export_run::run(&arguments),
        Verb::Bench(arguments) => tradewind_bench::run(&arguments),
        Verb::Simulate(arguments) => tradewind_simulate::run(&arguments),
        Verb::Chaos(arguments) => tradewind_chaos::run(&arguments),
        Verb::Data(arguments) => data::run(&arguments),
        Verb::Slurm(arguments) => slurm::run(&arguments),
        Verb::Doctor(arguments) => tradewind_doctor::run(&arguments),
        Verb::Config(arguments) => config::run(&arguments),
        Verb::Completions(arguments) => completions::run(&arguments),
        Verb::Man(arguments) => man::run(&arguments),
    }
}
