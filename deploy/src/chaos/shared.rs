//! What the thread of the faults and the launcher's know of each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::schedule::Fault;
use crate::launch::Member;

/// A fault that has happened.
#[derive(Clone, Debug)]
pub(crate) struct Injected {
    pub(crate) fault: Fault,
    /// When, seconds since the Unix epoch.
    pub(crate) wall: f64,
    /// Whose processes were hurt.
    pub(crate) members: Vec<Member>,
}

/// Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    enough: AtomicBool,
    /// Training is over; whether in order.
    over: watch::Sender<Option<bool>>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<String>,
    injected: Vec<Injected>,
    left_out: usize,
}

impl Shared {
    /// A line for people.
    pub(super) fn say(&self, line: String) {
        self.state().lines.push(line);
    }

    pub(super) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.state().lines)
    }

    pub(super) fn injected(&self, injected: Injected) {
        self.state().injected.push(injected);
    }

    /// Faults that would have been one too many.
    pub(super) fn left_out(&self, faults: usize) {
        self.state().left_out += faults;
    }

    /// What has happened, and how much has not.
    pub(super) fn faults(&self) -> (Vec<Injected>, usize) {
        let state = self.state();
        (state.injected.clone(), state.left_out)
    }

    /// Training shall end.
    pub(super) fn set_enough(&self) {
        self.0.enough.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_enough(&self) -> bool {
        self.0.enough.load(Ordering::Relaxed)
    }

    pub(super) fn set_over(&self, in_order: bool) {
        self.0.over.send_replace(Some(in_order));
    }

    /// Waits until training is over; whether it has ended in order.
    pub(super) async fn over(&self) -> bool {
        let mut over = self.0.over.subscribe();
        let told = over.wait_for(Option::is_some).await;
        told.ok().and_then(|over| *over).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here leaves it half-changed.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
