//! `tradewind-worker`: the ranks of a run that trains one of the built-in models.

use std::process::ExitCode;

fn main() -> ExitCode {
    tradewind_worker::main([])
}
