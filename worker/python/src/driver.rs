//! A thread that does what a script waits for.
//!
//! The script's thread has the interpreter's lock given up meanwhile and looks every 50 ms whether a signal
//! has come: an exception that its handler raises, such as that of Ctrl-C, ends the wait. What was under way
//! ends by itself then, or with the process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::unavailable;

const LOOK: Duration = Duration::from_millis(50);

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The thread, which owns an `S`.
pub struct Driver<S>(Mutex<Sender<Job<S>>>);

impl<S: Send + 'static> Driver<S> {
    /// Starts it; it ends when this is dropped.
    pub fn start(mut state: S) -> std::io::Result<Self> {
        let (to, jobs) = channel::<Job<S>>();
        let run = move || jobs.into_iter().for_each(|job| job(&mut state));
        let thread = std::thread::Builder::new().name("tradewind".to_owned());
        thread.spawn(run)?;
        Ok(Self(Mutex::new(to)))
    }

    /// Has the thread do something and waits for it, with the interpreter's lock given up.
    pub fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> PyResult<T> {
        let (tell, told) = channel();
        let job: Job<S> = Box::new(move |state| {
            // Who asked may have been interrupted.
            let _ = tell.send(what(state));
        });
        let to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        to.send(job).map_err(|_| gone())?;
        drop(to);
        wait(py, told)
    }
}

fn wait<T: Send + 'static>(py: Python<'_>, told: Receiver<T>) -> PyResult<T> {
    let mut told = told;
    loop {
        let answer;
        (answer, told) = py.detach(move || (told.recv_timeout(LOOK), told));
        match answer {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
        }
    }
}

fn gone() -> PyErr {
    unavailable("the rank's thread has ended; its log says why")
}
