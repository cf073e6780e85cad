//! Groups that take turns, so that what each of them computes on is known beforehand.

use std::sync::{Arc, Condvar, Mutex};

use super::PATIENCE;

/// Of a group of one rank: a turn is the steps between two exchanges, and the exchange. The first one
/// begins when all groups have pulled.
pub(super) struct Turns {
    own: usize,
    /// Of a turn.
    pub(super) steps: usize,
    next: Arc<(Mutex<Next>, Condvar)>,
}

/// Whose turn it is, who has begun, and who has ended.
struct Next {
    turn: usize,
    begun: Vec<bool>,
    ended: Vec<bool>,
}

impl Next {
    fn give_on(&mut self) {
        let groups = self.ended.len();
        let others = (1..=groups).map(|after| (self.turn + after) % groups);
        let mut still = others.filter(|group| !self.ended[*group]);
        self.turn = still.next().unwrap_or(self.turn);
    }
}

impl Turns {
    pub(super) fn of(groups: usize, steps: usize) -> Vec<Self> {
        let next = Next {
            turn: 0,
            begun: vec![false; groups],
            ended: vec![false; groups],
        };
        let next = Arc::new((Mutex::new(next), Condvar::new()));
        let own = |own| Self {
            own,
            steps,
            next: next.clone(),
        };
        (0..groups).map(own).collect()
    }

    /// Gives on the turn that it has had, unless this is its first, and waits for the next.
    pub(super) fn take(&self, first: bool) {
        let (next, changed) = &*self.next;
        let mut next = next.lock().unwrap();
        match first {
            true => next.begun[self.own] = true,
            false => next.give_on(),
        }
        changed.notify_all();
        let waits = |next: &mut Next| next.turn != self.own || next.begun.contains(&false);
        let waited = changed.wait_timeout_while(next, PATIENCE, waits);
        assert!(!waited.unwrap().1.timed_out(), "in vain for a turn");
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let (next, changed) = &*self.next;
        let mut next = next.lock().unwrap();
        // If it never began, others need not wait for that.
        next.begun[self.own] = true;
        next.ended[self.own] = true;
        if next.turn == self.own {
            next.give_on();
        }
        changed.notify_all();
    }
}
