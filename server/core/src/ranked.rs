//! An ordered set that also tells which element stands at a place.

/// Most elements that an insertion moves.
const RUN_MAX: usize = 256;

/// Elements in order, each once. They lie in runs of at most `RUN_MAX`, so that an element is found by its order
/// among n of them in O(log n), and by its place in O(n / `RUN_MAX`).
#[derive(Clone, Debug)]
pub(crate) struct Ranked<T> {
    /// None of them is empty, unless it is the only one.
    runs: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Ranked<T> {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Copy + Ord> Ranked<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, item: T) {
        if self.runs.is_empty() {
            self.runs.push(Vec::new());
        }
        let at = self.run_of(&item);
        let run = &mut self.runs[at];
        if let Err(place) = run.binary_search(&item) {
            run.insert(place, item);
            self.len += 1;
        }
        if run.len() > RUN_MAX {
            let rest = run.split_off(RUN_MAX / 2);
            self.runs.insert(at + 1, rest);
        }
    }

    pub(crate) fn remove(&mut self, item: &T) {
        if self.runs.is_empty() {
            return;
        }
        let at = self.run_of(item);
        let run = &mut self.runs[at];
        let Ok(place) = run.binary_search(item) else {
            return;
        };
        run.remove(place);
        self.len -= 1;
        // Runs of few elements would make places slow to find.
        let few = |runs: &[Vec<T>]| runs.iter().map(Vec::len).sum::<usize>() <= RUN_MAX / 2;
        if self.runs.len() > 1 && self.runs[at].is_empty() {
            self.runs.remove(at);
        } else if self.runs.get(at..at + 2).is_some_and(few) {
            let next = self.runs.remove(at + 1);
            self.runs[at].extend(next);
        }
    }

    /// The element before which there are so many others.
    pub(crate) fn nth(&self, mut place: usize) -> Option<T> {
        for run in &self.runs {
            match run.get(place) {
                Some(item) => return Some(*item),
                None => place -= run.len(),
            }
        }
        None
    }

    /// In order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.runs.iter().flatten().copied()
    }

    /// The run that has the element, or would.
    fn run_of(&self, item: &T) -> usize {
        let before = |run: &Vec<T>| run.last().is_some_and(|last| last < item);
        let at = self.runs.partition_point(before);
        at.min(self.runs.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tradewind_common::mix::mixed;

    use super::*;

    #[test]
    fn is_an_ordered_set_of_which_places_are_known() {
        let (mut ranked, mut plain) = (Ranked::default(), BTreeSet::new());
        for turn in 0..40_000u64 {
            // It grows to some thousand elements, and shrinks to none.
            let item = mixed(7, [turn, 0]) % 5_000;
            match mixed(7, [turn, 1]) % 10 < if turn < 20_000 { 7 } else { 2 } {
                true => {
                    ranked.insert(item);
                    plain.insert(item);
                }
                false => {
                    ranked.remove(&item);
                    plain.remove(&item);
                }
            }
            assert_eq!(ranked.len(), plain.len());
            if turn % 997 == 0 {
                assert!(ranked.iter().eq(plain.iter().copied()), "turn {turn}");
                let runs = ranked.runs.iter().map(Vec::len);
                assert!(runs.clone().all(|len| len <= RUN_MAX));
                // Two neighbours have more than half a run, unless one was never removed from.
                assert!(runs.len() <= 2 + 4 * plain.len() / RUN_MAX, "turn {turn}");
                for place in [
                    0,
                    1,
                    plain.len() / 2,
                    plain.len().saturating_sub(1),
                    plain.len(),
                ] {
                    assert_eq!(ranked.nth(place), plain.iter().nth(place).copied());
                }
            }
        }
        (0..5_000).for_each(|item| ranked.remove(&item));
        assert_eq!((ranked.len(), ranked.nth(0)), (0, None));
    }
}
