//! How `tradewind-server` and `tradewind-worker` are started.
//!
//! The arguments of a program are one type. Whoever starts the program fills in all of its fields and
//! makes a command of it; the program parses the same type from its command line. So an argument that
//! was forgotten or misspelt does not compile, on either side. Beside them stand what else the processes
//! of a run agree on: the [variables](tradewind_common::environment) of their environment, the
//! [files](tradewind_common::run_files) of a run's folder, and the [statuses](tradewind_common::exit)
//! with which they end.

mod render;
mod script;
pub mod server;
pub mod worker;

pub use script::ScriptError;

/// The name of the server's program.
pub const SERVER: &str = "tradewind-server";

/// The name of the worker's program.
pub const WORKER: &str = "tradewind-worker";
