//! The time, as lines of the log have it.

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The time as lines of the log have it.
pub(crate) fn now() -> String {
    let mut text = String::new();
    // A clock that cannot be told leaves it empty.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}
