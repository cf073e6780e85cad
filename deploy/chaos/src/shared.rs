//! What the thread of the faults and the launcher's know of each other, and those on it who hurt and
//! who look on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::schedule::Fault;
use super::victim::Known;
use tradewind_launch::Member;

/// A fault that has happened.
#[derive(Clone, Debug)]
pub struct Injected {
    pub fault: Fault,
    /// When, seconds since the Unix epoch.
    pub wall: f64,
    /// Whose processes were hurt.
    pub members: Vec<Member>,
}

/// A time in which a server could say nothing, or nothing that arrives: it was stopped or cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Silence {
    /// Seconds since the Unix epoch.
    pub from: f64,
    /// `None` while it goes on.
    pub until: Option<f64>,
    /// Faults that go on, and those of them that stop the process, so that it is of no use to ask it.
    pub faults: u32,
    pub stops: u32,
}

/// Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Inner>);

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
    known: Known,
    /// The last one of each server.
    silences: BTreeMap<u32, Silence>,
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

    /// Faults whose victims were not there.
    pub(super) fn left_out(&self, faults: usize) {
        self.state().left_out += faults;
    }

    /// What has happened, and how much has not.
    pub(super) fn faults(&self) -> (Vec<Injected>, usize) {
        let state = self.state();
        (state.injected.clone(), state.left_out)
    }

    /// Who is who, as it was seen last.
    pub(super) fn known(&self) -> Known {
        self.state().known.clone()
    }

    pub(super) fn set_known(&self, known: Known) {
        self.state().known = known;
    }

    /// A server falls silent.
    pub(super) fn silenced(&self, server: u32, wall: f64, stopped: bool) {
        let mut state = self.state();
        let new = Silence {
            from: wall,
            until: None,
            faults: 0,
            stops: 0,
        };
        let silence = state.silences.entry(server).or_insert(new);
        if silence.until.is_some() {
            *silence = new;
        }
        silence.faults += 1;
        silence.stops += u32::from(stopped);
    }

    /// One of the faults that make it silent is over.
    pub(super) fn heard(&self, server: u32, wall: f64, stopped: bool) {
        if let Some(silence) = self.state().silences.get_mut(&server) {
            silence.faults = silence.faults.saturating_sub(1);
            silence.stops = silence.stops.saturating_sub(u32::from(stopped));
            if silence.faults == 0 {
                silence.until = Some(wall);
            }
        }
    }

    /// The last silence of each server.
    pub(super) fn silences(&self) -> BTreeMap<u32, Silence> {
        self.state().silences.clone()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_silent_until_the_last_of_its_faults_is_over() {
        let shared = Shared::default();
        let told = |shared: &Shared| {
            let silence = shared.silences()[&1];
            (silence.from, silence.until, silence.stops)
        };
        shared.silenced(1, 10.0, true);
        shared.silenced(1, 11.0, false);
        shared.heard(1, 12.0, true);
        assert_eq!(told(&shared), (10.0, None, 0), "it is still cut off");
        shared.heard(1, 13.0, false);
        assert_eq!(told(&shared), (10.0, Some(13.0), 0));
        shared.silenced(1, 20.0, true);
        assert_eq!(told(&shared), (20.0, None, 1));
    }
}
