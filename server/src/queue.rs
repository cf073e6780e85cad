//! Orders of the coordinator that wait to be obeyed. Those of one run are obeyed one after the other,
//! those of different runs side by side: values may have to be read from disk for minutes, and nobody
//! else waits for that.

use std::collections::BTreeSet;

use tradewind_proto::v1::ServerOrder;

use crate::newest::Newest;
use tradewind_core::answer::RUNS_MAX;

/// What waits, and what is being obeyed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Newest<String, ServerOrder>,
    /// Runs of orders that are being obeyed; an empty name stands for who says which runs there are.
    busy: BTreeSet<String>,
}

impl Queue {
    /// There are no more orders than runs; who says otherwise waits.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.waiting() < RUNS_MAX
    }

    pub(crate) fn add(&mut self, order: ServerOrder) {
        match order.run.is_empty() {
            true => self.waiting.keep(order.runs.into_iter().collect()),
            false => self.waiting.order(order.run.clone(), order),
        }
    }

    /// Forgets what waits: on a new connection everything is ordered anew.
    pub(crate) fn clear(&mut self) {
        self.waiting = Newest::default();
    }

    /// An order that may be obeyed now.
    pub(crate) fn next(&mut self) -> Option<ServerOrder> {
        let busy = &self.busy;
        if busy.contains("") {
            return None;
        }
        // A run is not forgotten while an order of it is obeyed, or none would remember that it was.
        if let Some(kept) = self.waiting.take_kept(|kept| busy.is_subset(kept)) {
            self.busy.insert(String::new());
            return Some(ServerOrder {
                runs: kept.into_iter().collect(),
                ..ServerOrder::default()
            });
        }
        let (run, order) = self.waiting.take(|run| !busy.contains(run))?;
        self.busy.insert(run);
        Some(order)
    }

    /// The order of this run that was taken last has been obeyed.
    pub(crate) fn done(&mut self, run: &str) {
        self.busy.remove(run);
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
        queue.add(order("a", 1));
        assert_eq!(all(&mut queue), [named("a", 1)]);
        for (run, number) in [("a", 2), ("b", 3), ("b", 4), ("a", 5)] {
            queue.add(order(run, number));
        }
        assert_eq!(all(&mut queue), [named("b", 4)]);
        queue.done("b");
        assert_eq!(all(&mut queue), []);
        queue.done("a");
        assert_eq!(all(&mut queue), [named("a", 5)]);
        queue.add(order("a", 6));
        queue.clear();
        queue.done("a");
        assert_eq!(all(&mut queue), []);
    }

    #[test]
    fn a_run_is_forgotten_between_its_orders() {
        let mut queue = Queue::default();
        queue.add(order("a", 1));
        queue.add(order("b", 2));
        assert_eq!(all(&mut queue), [named("a", 1), named("b", 2)]);
        queue.add(runs(&["b"]));
        for (run, number) in [("a", 3), ("b", 4), ("c", 5)] {
            queue.add(order(run, number));
        }
        queue.done("b");
        // Only what stays may go on meanwhile.
        assert_eq!(all(&mut queue), [named("b", 4)], "a is being obeyed");
        queue.done("a");
        assert_eq!(all(&mut queue), [named("", 0)]);
        queue.done("");
        assert_eq!(all(&mut queue), [named("a", 3), named("c", 5)]);
    }

    #[test]
    fn telling_runs_waits_for_nobody_that_stays() {
        let mut queue = Queue::default();
        queue.add(order("a", 1));
        assert_eq!(all(&mut queue), [named("a", 1)]);
        queue.add(runs(&["a", "c"]));
        assert_eq!(all(&mut queue), [named("", 0)]);
    }

    #[test]
    fn there_are_never_more_orders_than_runs() {
        let mut queue = Queue::default();
        for number in 0..5_000 {
            assert!(queue.has_room());
            queue.add(order("a", number));
            queue.add(order("b", number));
        }
        assert_eq!(all(&mut queue), [named("a", 4_999), named("b", 4_999)]);
        let names = (0..RUNS_MAX as u64).map(|number| order(&format!("{number}"), number));
        names.for_each(|order| queue.add(order));
        assert!(!queue.has_room());
    }
}
