//! What happened in a run, as it is told: the newest, and of faults more than of what is ordinary.

use std::collections::VecDeque;

use tradewind_folder::events::Event;

/// Events that are kept.
pub(crate) const EVENTS_MAX: usize = 1000;

/// Bytes of the words of an event.
const TEXT_MAX: usize = 600;

/// An event with its number.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// Which one it is, from 0.
    pub(crate) number: u64,
    pub(crate) event: Event,
}

/// The events of a run, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    events: VecDeque<Told>,
    next: u64,
}

impl Timeline {
    /// Takes in the next one. Where there are too many the oldest ordinary one goes, or else the oldest.
    pub(crate) fn take_in(&mut self, mut event: Event) {
        if event.text.len() > TEXT_MAX {
            event
                .text
                .truncate(event.text.floor_char_boundary(TEXT_MAX));
            event.text.push('…');
        }
        self.events.push_back(Told {
            number: self.next,
            event,
        });
        self.next += 1;
        if self.events.len() > EVENTS_MAX {
            let ordinary = self.events.iter().position(|told| !told.event.is_fault());
            // The new one itself may be the only ordinary one: it is the newest, and stays.
            let last = self.events.len() - 1;
            self.events
                .remove(ordinary.filter(|at| *at < last).unwrap_or(0));
        }
    }

    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = &Told> {
        self.events.iter()
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_folder::events::fixture::event;

    #[test]
    fn faults_stay_longer_than_what_is_ordinary() {
        let mut timeline = Timeline::default();
        timeline.take_in(event(0.0, "process_died", "server 1 died"));
        for number in 0..2 * EVENTS_MAX {
            timeline.take_in(event(number as f64, "snapshot", "snapshot is whole"));
        }
        let kept: Vec<&Told> = timeline.all().collect();
        assert_eq!(kept.len(), EVENTS_MAX);
        assert_eq!(kept[0].event.kind, "process_died");
        assert_eq!(kept[EVENTS_MAX - 1].number, 2 * EVENTS_MAX as u64);
        assert_eq!(timeline.count(), 2 * EVENTS_MAX as u64 + 1);
        for _ in 0..2 * EVENTS_MAX {
            timeline.take_in(event(0.0, "process_died", &"ä".repeat(1000)));
        }
        assert_eq!(timeline.all().count(), EVENTS_MAX);
        assert!(
            timeline
                .all()
                .all(|told| told.event.text.len() <= TEXT_MAX + 3)
        );
    }
}
