//! The log of a script's process, for whatever of the package it uses first.

use std::sync::OnceLock;

use tradewind_process::log;

/// Begins it, once.
pub fn begin() {
    static LOG: OnceLock<()> = OnceLock::new();
    LOG.get_or_init(|| {
        tradewind_process::begin();
        log::start(|_| ());
    });
}
