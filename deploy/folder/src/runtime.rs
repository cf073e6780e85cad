//! The runtime of a command that starts processes.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// One thread: children die with the thread that started them.
pub fn one_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
