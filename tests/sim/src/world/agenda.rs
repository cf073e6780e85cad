//! Virtual time: what will happen and when, and which processes do nothing meanwhile.

use std::collections::BTreeMap;

use super::event::{Event, Process};

/// What happens now.
pub(super) struct Happens {
    pub(super) event: Event,
    /// Its process has slept until now, since then.
    pub(super) woken: Option<(Process, u64)>,
}

/// The time, and what will happen, in order.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    now_us: u64,
    /// What is planned for the same time happens in the order in which it was planned.
    queue: BTreeMap<(u64, u64), Event>,
    planned: u64,
    /// Processes that do nothing: since when, and until when.
    asleep: BTreeMap<Process, (u64, u64)>,
}

impl Agenda {
    pub(super) fn now_us(&self) -> u64 {
        self.now_us
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    pub(super) fn after(&mut self, after_us: u64, event: Event) {
        self.at(self.now_us + after_us, event);
    }

    pub(super) fn at(&mut self, at_us: u64, event: Event) {
        self.planned += 1;
        self.queue.insert((at_us, self.planned), event);
    }

    /// Goes on to what comes next; `None` if its process sleeps: then it comes again when that one wakes.
    ///
    /// # Panics
    /// If nothing comes.
    pub(super) fn advance(&mut self) -> Option<Happens> {
        let ((at_us, _), event) = self.queue.pop_first().expect("faults and ticks go on");
        self.now_us = at_us;
        let process = event.whom();
        let woken = process.and_then(|process| Some((process, *self.asleep.get(&process)?)));
        let Some((process, (since_us, until_us))) = woken else {
            return Some(Happens { event, woken: None });
        };
        if until_us > at_us {
            self.at(until_us, event);
            return None;
        }
        self.asleep.remove(&process);
        let woken = Some((process, since_us));
        Some(Happens { event, woken })
    }

    /// A process does nothing for a while.
    pub(super) fn sleep(&mut self, process: Process, for_us: u64) {
        let until = (self.now_us, self.now_us + for_us);
        self.asleep.insert(process, until);
    }

    /// For how long a process has done nothing, if it still sleeps.
    pub(super) fn slept_us(&self, process: Process) -> Option<u64> {
        let (since_us, until_us) = *self.asleep.get(&process)?;
        (until_us > self.now_us).then_some(self.now_us - since_us)
    }

    /// Forgets what is planned, but for these.
    pub(super) fn keep_only(&mut self, kept: impl Fn(&Event) -> bool) {
        self.queue.retain(|_, event| kept(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happens(agenda: &mut Agenda) -> (u64, Option<u64>) {
        loop {
            if let Some(Happens { woken, .. }) = agenda.advance() {
                return (agenda.now_us(), woken.map(|(_, since_us)| since_us));
            }
        }
    }

    #[test]
    fn what_happens_to_a_process_that_sleeps_waits_until_it_wakes() {
        let mut agenda = Agenda::default();
        agenda.at(10, Event::Wrote(1));
        agenda.at(20, Event::Wrote(2));
        agenda.sleep(Process::Coordinator(1), 50);
        assert_eq!(happens(&mut agenda), (20, None));
        assert_eq!(agenda.slept_us(Process::Coordinator(1)), Some(20));
        assert_eq!(happens(&mut agenda), (50, Some(0)));
        assert_eq!(agenda.slept_us(Process::Coordinator(1)), None);
    }
}
