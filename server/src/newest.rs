//! Orders of the coordinator that wait: of each run only the newest, which says all that an older one would
//! and goes on from something that its server has followed. There are never more than runs, however many are given.

use std::collections::{BTreeSet, VecDeque};

/// Orders that wait, and before all of them which runs are kept.
#[derive(Debug)]
pub(crate) struct Newest<R, O> {
    /// The runs that are kept, if some may be there that are not.
    kept: Option<BTreeSet<R>>,
    /// Each run once; who waits longest comes first.
    orders: VecDeque<(R, O)>,
}

impl<R, O> Default for Newest<R, O> {
    fn default() -> Self {
        Self {
            kept: None,
            orders: VecDeque::new(),
        }
    }
}

impl<R: Clone + Ord, O> Newest<R, O> {
    /// The run shall be so, whatever was ordered of it before.
    pub(crate) fn order(&mut self, run: R, order: O) {
        match self.orders.iter_mut().find(|(known, _)| *known == run) {
            Some((_, known)) => *known = order,
            None => self.orders.push_back((run, order)),
        }
    }

    /// There are these runs: all others shall be forgotten, and what waits of them is.
    ///
    /// To be told before the orders that wait: it does not concern those of the runs that are kept. A
    /// run that was to be forgotten already still is, although there is one of its name again: what waits
    /// of that is of the later one.
    pub(crate) fn keep(&mut self, runs: BTreeSet<R>) {
        self.orders.retain(|(run, _)| runs.contains(run));
        self.kept = Some(match self.kept.take() {
            Some(before) => &before & &runs,
            None => runs,
        });
    }

    /// Takes the runs that are kept, if that is still to be told and `may` be now.
    pub(crate) fn take_kept(&mut self, may: impl Fn(&BTreeSet<R>) -> bool) -> Option<BTreeSet<R>> {
        self.kept.take_if(|kept| may(kept))
    }

    /// Takes the first order of a run that `may` be told now, and of which no other run is still to be
    /// forgotten.
    pub(crate) fn take(&mut self, may: impl Fn(&R) -> bool) -> Option<(R, O)> {
        let stays = |run: &R| self.kept.as_ref().is_none_or(|kept| kept.contains(run));
        let mut orders = self.orders.iter();
        let index = orders.position(|(run, _)| stays(run) && may(run))?;
        self.orders.remove(index)
    }

    /// How many orders wait.
    pub(crate) fn waiting(&self) -> usize {
        self.orders.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told, in order, of what was given: `a3` orders run a for the third time, `=ab` keeps a
    /// and b, `.` takes one thing.
    fn told(given: &str) -> String {
        let mut waiting = Newest::default();
        let mut told = Vec::new();
        let mut take = |waiting: &mut Newest<char, char>| match waiting.take_kept(|_| true) {
            Some(kept) => told.push(format!("={}", String::from_iter(kept))),
            None => told.extend(waiting.take(|_| true).map(|(r, n)| format!("{r}{n}"))),
        };
        for word in given.split(' ') {
            match word.strip_prefix('=') {
                Some(runs) => waiting.keep(runs.chars().collect()),
                None if word == "." => take(&mut waiting),
                None => {
                    let (run, number) = word.split_at(1);
                    let first = |text: &str| text.chars().next().unwrap();
                    waiting.order(first(run), first(number));
                }
            }
        }
        while waiting.waiting() > 0 || waiting.kept.is_some() {
            take(&mut waiting);
        }
        told.join(" ")
    }

    #[test]
    fn the_newest_of_each_run_is_told_and_forgetting_comes_between_runs_of_a_name() {
        for (given, want) in [
            // Of each run the newest, in the place of the first.
            ("a1 b1 a2 b2 a3", "a3 b2"),
            ("a1 b1 . a2 b2", "a1 b2 a2"),
            // A run that is removed is forgotten, with what waits of it.
            ("a1 b1 =b", "=b b1"),
            ("a1 b1 . =b b2", "a1 =b b2"),
            // Another run of its name comes after that.
            ("a1 . =b a2 b1", "a1 =b a2 b1"),
            ("a1 =b a2 b1", "=b a2 b1"),
            // It is not forgotten that the first one is to be, whatever is removed next.
            ("a1 c1 . . =ac =c a2 =a", "a1 c1 = a2"),
            ("a1 . =b a2 =ab a3", "a1 =b a3"),
            ("a1 . =b . a2 =ab", "a1 =b =ab a2"),
            // Twice removed, and not there in the end.
            ("a1 . = a2 = ", "a1 ="),
        ] {
            assert_eq!(told(given.trim_end()), want, "{given}");
        }
    }

    #[test]
    fn there_are_never_more_than_runs() {
        let mut waiting = Newest::default();
        for number in 0..10_000 {
            waiting.order(number % 3, number);
            waiting.keep(BTreeSet::from([0, 1, 2]));
        }
        assert_eq!(waiting.waiting(), 3);
        assert_eq!(waiting.take(|run| *run != 0), Some((1, 9_997)));
    }
}
