//! What a coordinator has decided that others must hear, and what happened last.

use std::collections::VecDeque;

use super::Output;
use crate::ReplyTo;
use crate::answer::{Answer, Refused};
use crate::event::{EVENTS_MAX, Event};
use crate::run::Changes;

/// Outputs in the order in which they came up, and the last events.
#[derive(Debug, Default)]
pub(super) struct Journal {
    outputs: VecDeque<Output>,
    recent: VecDeque<Event>,
    /// How many events there were.
    events: u64,
    now_ms: u64,
    dirty: bool,
    leased: bool,
}

impl Journal {
    /// It is this time: events bear it.
    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Something has to be written down before outputs are acted on.
    pub(super) fn touch(&mut self) {
        self.dirty = true;
    }

    /// Whether something was decided, since this was last asked, that has to be written down.
    pub(super) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Whether data were leased since this was last asked.
    pub(super) fn take_leased(&mut self) -> bool {
        std::mem::take(&mut self.leased)
    }

    /// The next thing to do, oldest first.
    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Answers a call.
    pub(super) fn reply(&mut self, to: ReplyTo, answer: Result<Answer, Refused>) {
        self.push(Output::Reply(to, answer));
    }

    /// Drops outputs that need not leave any more.
    pub(super) fn drop_stale(&mut self, stale: impl Fn(&Output) -> bool) {
        self.outputs.retain(|output| !stale(output));
    }

    /// Tells people: numbers the event, and keeps it among the last ones.
    pub(super) fn tell(&mut self, mut event: Event) {
        self.events += 1;
        event.number = self.events;
        event.at_ms = self.now_ms;
        if self.recent.len() == EVENTS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(event.clone());
        self.push(Output::Event(event));
    }

    /// What happened last, oldest first.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Event> {
        self.recent.iter()
    }

    /// Takes over what has come of a run's inputs.
    pub(super) fn collect(&mut self, changes: Changes) {
        self.dirty |= changes.dirty;
        self.leased |= changes.leased;
        for output in changes.outputs {
            match output {
                Output::Event(event) => self.tell(event),
                Output::Reply(..)
                | Output::Order(_)
                | Output::Runs(..)
                | Output::Revoked(..)
                | Output::Over(..)
                | Output::Manifest(_)
                | Output::DropMarks(_)
                | Output::Delete { .. } => self.push(output),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    #[test]
    fn events_are_numbered_and_only_the_last_are_kept() {
        let mut journal = Journal::default();
        journal.set_now(7);
        for _ in 0..=EVENTS_MAX {
            journal.tell(Event::new(EventKind::Disk, "full"));
        }
        let first = journal.recent().next().unwrap();
        assert_eq!((first.number, first.at_ms), (2, 7));
        assert_eq!(journal.recent().count(), EVENTS_MAX);
        assert!(!journal.take_dirty());
        journal.touch();
        assert!(journal.take_dirty() && !journal.take_dirty());
    }
}
