//! What Python is told when something fails.

use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use tradewind_client::verdict::Verdict;

create_exception!(
    tradewind,
    TradewindError,
    PyRuntimeError,
    "What was asked of Tradewind cannot be done; the text says why, and what to do. It ends the run if the script does \
     not catch it."
);
create_exception!(
    tradewind,
    Unavailable,
    TradewindError,
    "A file, a disk or another rank is not there, and may be for the next process: the script is started again."
);
create_exception!(
    tradewind,
    GroupBroken,
    TradewindError,
    "This incarnation of the group is over: a rank of it is gone, or the coordinator has taken it out."
);

/// An error, as the script's thread is told of it.
pub struct Failure {
    /// What follows.
    pub verdict: Verdict,
    /// What it says.
    pub text: String,
}

/// Something that was asked cannot be done.
pub fn wrong(text: impl Into<String>) -> PyErr {
    TradewindError::new_err(text.into())
}

/// Something is not there that may be for another process.
pub fn unavailable(text: impl Into<String>) -> PyErr {
    Unavailable::new_err(text.into())
}

/// Of the failure that ends the process; 0 while there is none.
static STATUS: AtomicU8 = AtomicU8::new(0);

/// The status of the failure that ends the process; 0 if there was none.
#[pyfunction]
pub fn failed_with() -> u8 {
    STATUS.load(Ordering::Relaxed)
}

/// A failure of a rank's training. One after which the rank joins again is [`GroupBroken`]; after any other
/// the process ends with the status that says to the launcher what follows.
pub fn ended(Failure { verdict, text }: Failure) -> PyErr {
    match verdict {
        Verdict::Again => GroupBroken::new_err(text),
        Verdict::Failed
        | Verdict::GivenUp
        | Verdict::Diverged
        | Verdict::Lost
        | Verdict::ShutOut => {
            tracing::error!("{text}");
            let status = verdict.exit().number();
            STATUS.store(status, Ordering::Relaxed);
            PySystemExit::new_err(i32::from(status))
        }
    }
}

/// A failure that another process would meet, too.
pub fn given_up(error: anyhow::Error) -> PyErr {
    ended(Failure {
        verdict: Verdict::GivenUp,
        text: format!("{error:#}"),
    })
}
