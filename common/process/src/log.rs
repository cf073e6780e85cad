//! The log: lines of `tracing` on standard error, as `TRADEWIND_LOG` asks for them.
//!
//! One that cannot be written, on a full disk or into a pipe that is closed (std ignores SIGPIPE) or that
//! nobody reads, stops nothing and nobody. Lines are dropped and counted; once they can be
//! written again, the first is preceded by one that says how many are missing.

use std::fmt::Display;
use std::io;

use tracing_subscriber::EnvFilter;
use tradewind_common::environment;

use crate::sink;

/// Starts the log of a program that [`run`](crate::run) runs. `lost` is told of the number of lines that
/// are lost whenever it changes.
pub fn start(lost: fn(u64)) {
    sink::tell(lost);
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_env(environment::LOG).unwrap_or_else(|_| "info".into()),
        )
        .with_writer(|| Line)
        .with_ansi(false)
        // It would complain on standard error, and panic where that fails.
        .log_internal_errors(false)
        .init();
}

/// How many lines are lost.
pub fn lost() -> u64 {
    sink::lost_so_far()
}

/// A line of standard error that is no event of `tracing`.
pub fn complain(text: impl Display) {
    sink::put(format!("{text}\n").as_bytes());
}

/// A line of standard output for people, who may go at any time (`| head`): the program goes on.
pub fn say(text: impl Display) {
    sink::say(format!("{text}\n").as_bytes());
}

/// What a program was asked for, on standard output. That nobody reads it to its end is no error.
pub fn print(text: &str) -> io::Result<()> {
    match sink::print(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Takes whole lines.
struct Line;

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        sink::put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
