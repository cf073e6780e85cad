//! A stream in main memory: work that nobody does before somebody waits for it.
//!
//! That is as late as a device may be. So what is read too early, or overwritten too early, is
//! wrong every time, and tests without a device see it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::c10d::C10dError;

pub(super) type Work = Box<dyn FnOnce() -> Result<(), C10dError> + Send>;

#[derive(Clone, Default)]
pub(super) struct Queue(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    done: u64,
    failed: Option<String>,
}

/// A place in a queue.
pub(super) struct Place(Queue, u64);

impl Queue {
    pub(super) fn push(&self, work: Work) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.push_back(work);
    }

    pub(super) fn end(&self) -> Place {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = state.done + state.waiting.len() as u64;
        Place(self.clone(), end)
    }
}

impl Place {
    /// Does all that is before it. Fails if any of that has ever failed.
    pub(super) fn reach(&self) -> Result<(), C10dError> {
        let Self(queue, end) = self;
        let mut state = queue.0.lock().unwrap_or_else(PoisonError::into_inner);
        while state.done < *end {
            let work = state.waiting.pop_front().expect("there up to the end");
            state.done += 1;
            if let Err(error) = work() {
                state.failed.get_or_insert(error.to_string());
            }
        }
        match &state.failed {
            None => Ok(()),
            Some(message) => Err(C10dError::Torch {
                what: "work beside the computation",
                message: message.clone(),
            }),
        }
    }
}
