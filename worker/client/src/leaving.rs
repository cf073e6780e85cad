//! A rank that is asked to leave its run.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tradewind_common::exit::Exit;
use tradewind_process::supervise;

/// What of a rank's process whoever asks it to leave must know. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Leaving(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    trains: bool,
    asked: bool,
}

/// What follows a request to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The group leaves when its exchange has ended.
    Finishes,
    /// There is nothing to finish: the process may end.
    Ends,
}

/// A rank trains until this is dropped.
#[derive(Debug)]
pub struct Training(Leaving);

impl Drop for Training {
    fn drop(&mut self) {
        self.0.set_trains(false);
    }
}

impl Leaving {
    /// Asks the rank to leave; its group leaves with it. Who asks again changes nothing: Slurm sends a
    /// signal to all processes of a job, and whoever started this one sends it, too.
    pub fn ask(&self) -> Asked {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let again = std::mem::replace(&mut state.asked, true);
        match state.trains || again {
            true => Asked::Finishes,
            false => Asked::Ends,
        }
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// It trains until the answer is dropped.
    pub fn train(&self) -> Training {
        self.set_trains(true);
        Training(self.clone())
    }

    fn set_trains(&self, trains: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.trains = trains;
    }
}

/// Has the rank asked to leave on SIGTERM, which ends the process at once where nothing is under way.
///
/// # Errors
/// The system has no room for the watch.
pub fn leave_when_told(leaving: Leaving, runtime: &Handle) -> std::io::Result<()> {
    let _context = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let watch = async move {
        while terminate.recv().await.is_some() {
            match leaving.ask() {
                Asked::Finishes => tracing::info!("SIGTERM: leaving when the exchange has ended"),
                Asked::Ends => tradewind_process::exit(Exit::Terminated.number().into()),
            }
        }
    };
    supervise("the watch for SIGTERM", watch);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_trains_is_given_time_however_often_it_is_asked() {
        let check = |trains: bool, want: [Asked; 2]| {
            let leaving = Leaving::default();
            let _trains = trains.then(|| leaving.train());
            assert!(!leaving.is_asked());
            assert_eq!([leaving.ask(), leaving.ask()], want);
            assert!(leaving.is_asked());
        };
        check(true, [Asked::Finishes, Asked::Finishes]);
        check(false, [Asked::Ends, Asked::Finishes]);
        let leaving = Leaving::default();
        drop(leaving.train());
        assert_eq!(leaving.ask(), Asked::Ends, "it has come back");
    }
}
