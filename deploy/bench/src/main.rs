//! `tradewind-bench`: the clients and the floor that `tradewind bench` starts beside `tradewind-server`.
//! It also measures by itself, with the same verbs, so that a benchmark need not build the whole command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tradewind_bench::{Helper, help, measure};
use tradewind_folder::VERSION;

/// As in `tradewind` and `tradewind-worker`: memory of finished transfers is used again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures this machine, as `tradewind bench` does.
#[derive(Debug, Parser)]
#[command(name = "tradewind-bench", version = VERSION)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Measure(tradewind_bench::Verb),
    #[command(flatten)]
    Help(Helper),
}

fn main() -> ExitCode {
    tradewind_process::run(|| match Arguments::parse().verb {
        Verb::Measure(verb) => measure(&verb),
        Verb::Help(helper) => help(&helper),
    })
}
