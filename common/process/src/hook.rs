//! What is logged of a panic: who, where, why. A message that panics in its turn aborts the process, by
//! std, which says so.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{PanicHookInfo, set_hook};

use crate::now::now;
use crate::{sink, task};

/// From now on panics are logged past `tracing`, which may be what has panicked.
pub(crate) fn install() {
    set_hook(Box::new(|panic| sink::put(text(panic).as_bytes())));
}

fn text(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let who = match task::name() {
        Some(task) => format!("{task} (thread {thread})"),
        None => format!("thread {thread}"),
    };
    let place = panic.location().map_or_else(
        || "a place that is not known".to_owned(),
        ToString::to_string,
    );
    let why = panic.payload_as_str().unwrap_or("no message");
    let mut text = format!("{} ERROR {who} has panicked at {place}: {why}\n", now());
    // As RUST_BACKTRACE asks for it.
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        text += &trace.to_string();
    }
    text
}
