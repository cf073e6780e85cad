//! What all programs of Tradewind do alike: a log that stops nobody, and tasks that do not die alone.
//!
//! A `main` hands its work to [`run`]. What it must not lose it starts with [`supervise`] and its
//! kin; a panic there ends the process, and whoever started the process starts it again.

mod docs;
mod files;
mod hook;
mod lines;
pub mod log;
mod now;
mod sink;
mod task;
pub mod usage;
pub mod whole;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use tradewind_common::exit::Exit;

pub use docs::Docs;
pub use task::{Supervised, supervise, supervise_blocking, supervise_thread, watched};

/// Status of a process of which a task has ended that must not: by a panic, whose place the log has.
const TASK_ENDED: i32 = Exit::TaskEnded.number() as i32;

/// How long the end of a process waits for the last lines of its log to be taken.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Complains as `eprintln!` does, but that nothing happens where it cannot be written.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => { $crate::log::complain(format_args!($($text)*)) };
}

/// Runs a program, which may have as many files and connections open as the system lets it. What it logs
/// stops nothing; a panic is logged with its place, and one of `main` ends the process with
/// [`Exit::TaskEnded`].
pub fn run(main: impl FnOnce() -> ExitCode) -> ExitCode {
    begin();
    files::raise_limit();
    let code = catch_unwind(AssertUnwindSafe(main));
    let code = code.unwrap_or_else(|_| task::lost("the main thread"));
    sink::flush(LAST_WORDS);
    code
}

/// Begins what [`run`] does for a program: for a library in a process of somebody else's. The log stops
/// nothing from here on, and a panic is logged with its place.
pub fn begin() {
    sink::start();
    hook::install();
}

/// Waits for the last lines of the log to be taken, a second at most.
pub fn flush() {
    sink::flush(LAST_WORDS);
}

/// Ends the process at once, when the log has taken what it was told. Nothing else is cleaned up:
/// `std::process::exit` runs destructors of libraries beside threads that still use what they destroy.
pub fn exit(status: i32) -> ! {
    // SAFETY: it is declared as the C library declares it. It may be called at any time, by any thread.
    unsafe extern "C" {
        safe fn _exit(status: c_int) -> !;
    }
    sink::flush(LAST_WORDS);
    _exit(status)
}
