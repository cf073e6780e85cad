//! Ctrl-C and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for whoever wants the run to end.
pub struct Interruption {
    interrupt: Signal,
    terminate: Signal,
}

impl Interruption {
    /// Takes both signals from now on.
    ///
    /// # Errors
    /// They cannot be taken.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns how it was asked for. May be dropped and called again.
    pub async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "asked to terminate",
        }
    }
}
