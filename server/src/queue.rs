//! Orders of the coordinator that wait to be obeyed. Those of one run are obeyed one after the other,
//! those of different runs side by side: values may have to be read from disk for minutes, and nobody
//! else waits for that.

use std::collections::{BTreeSet, VecDeque};

use tradewind_proto::v1::ServerOrder;

/// Orders that wait; beyond so many no more are taken from the connection.
pub(crate) const WAITING_MAX: usize = 1024;

/// Orders in the order in which they came, and what is being obeyed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<ServerOrder>,
    /// Runs of orders that are being obeyed; an empty name stands for who says which runs there are.
    busy: BTreeSet<String>,
}

impl Queue {
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    pub(crate) fn add(&mut self, order: ServerOrder) {
        self.waiting.push_back(order);
    }

    /// Forgets what waits: on a new connection everything is ordered anew.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// An order that may be obeyed now.
    pub(crate) fn next(&mut self) -> Option<ServerOrder> {
        let order = self.waiting.remove(self.free()?)?;
        self.busy.insert(order.run.clone());
        Some(order)
    }

    /// The order of this run that was taken last has been obeyed.
    pub(crate) fn done(&mut self, run: &str) {
        self.busy.remove(run);
    }

    fn free(&self) -> Option<usize> {
        let mut before: BTreeSet<&str> = self.busy.iter().map(String::as_str).collect();
        if before.contains("") {
            return None;
        }
        for (index, order) in self.waiting.iter().enumerate() {
            let tells_runs = order.run.is_empty();
            let is_free = match tells_runs {
                // A run is not forgotten while an order of it is obeyed, or none would remember that it was.
                true => before
                    .iter()
                    .all(|run| order.runs.iter().any(|kept| kept == run)),
                false => !before.contains(order.run.as_str()),
            };
            if is_free {
                return Some(index);
            }
            if tells_runs {
                // What follows may be of another run of a name that is to be forgotten first.
                return None;
            }
            before.insert(&order.run);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(run: &str, coordinator: u64) -> ServerOrder {
        ServerOrder {
            run: run.into(),
            coordinator,
            ..ServerOrder::default()
        }
    }

    fn runs(runs: &[&str]) -> ServerOrder {
        ServerOrder {
            runs: runs.iter().map(ToString::to_string).collect(),
            ..ServerOrder::default()
        }
    }

    /// Names and numbers of all that may be obeyed now.
    fn all(queue: &mut Queue) -> Vec<(String, u64)> {
        let next = || queue.next().map(|order| (order.run, order.coordinator));
        std::iter::from_fn(next).collect()
    }

    fn named(run: &str, number: u64) -> (String, u64) {
        (run.to_owned(), number)
    }

    #[test]
    fn runs_do_not_wait_for_each_other() {
        let mut queue = Queue::default();
        for (run, number) in [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("a", 5)] {
            queue.add(order(run, number));
        }
        assert_eq!(all(&mut queue), [named("a", 1), named("b", 3)]);
        queue.done("b");
        assert_eq!(all(&mut queue), [named("b", 4)]);
        queue.done("a");
        assert_eq!(all(&mut queue), [named("a", 2)]);
        queue.clear();
        queue.done("a");
        assert_eq!(all(&mut queue), []);
    }

    #[test]
    fn a_run_is_forgotten_between_its_orders() {
        let mut queue = Queue::default();
        queue.add(order("a", 1));
        queue.add(order("b", 2));
        queue.add(runs(&["b"]));
        queue.add(order("a", 3));
        queue.add(order("b", 4));
        assert_eq!(all(&mut queue), [named("a", 1), named("b", 2)]);
        queue.done("b");
        assert_eq!(all(&mut queue), [], "a is being obeyed");
        queue.done("a");
        assert_eq!(all(&mut queue), [named("", 0)]);
        queue.done("");
        assert_eq!(all(&mut queue), [named("a", 3), named("b", 4)]);
    }

    #[test]
    fn telling_runs_waits_for_nobody_that_stays() {
        let mut queue = Queue::default();
        queue.add(order("a", 1));
        queue.add(runs(&["a", "c"]));
        assert_eq!(all(&mut queue), [named("a", 1), named("", 0)]);
    }
}
