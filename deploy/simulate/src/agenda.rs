//! What happens next, in the order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Nanos;

/// What is to happen, earliest first; at one time in the order in which it was put in.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    entries: BinaryHeap<Reverse<Entry<T>>>,
    put: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Nanos,
    number: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            entries: BinaryHeap::new(),
            put: 0,
        }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn put(&mut self, at: Nanos, what: T) {
        let number = self.put;
        self.put += 1;
        self.entries.push(Reverse(Entry { at, number, what }));
    }

    pub(crate) fn next(&mut self) -> Option<(Nanos, T)> {
        let Reverse(entry) = self.entries.pop()?;
        Some((entry.at, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_earlier_comes_first_and_of_one_time_what_was_put_in_first() {
        let mut agenda = Agenda::default();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            agenda.put(at, what);
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.next()).collect();
        assert_eq!(order, [(1, 'a'), (2, 'b'), (5, 'c'), (5, 'd')]);
    }
}
