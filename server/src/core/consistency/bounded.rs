use tradewind_common::GroupId;
use tradewind_common::staleness::{Admit, StalenessBound};

use super::{Consistency, Standing};

/// Applied on arrival while the staleness bound admits it (rule 1); `async` has no bound. What
/// waits is applied in the order of (clock, group), so that a run repeats.
#[derive(Clone, Copy, Debug)]
pub struct Bounded {
    /// `s`.
    pub bound: StalenessBound,
}

impl Consistency for Bounded {
    fn decide(&self, standing: &[Standing]) -> Option<Vec<GroupId>> {
        let min = standing.iter().map(|s| s.next).min()?;
        standing
            .iter()
            .filter(|s| s.arrived && self.bound.admit(s.next, min) == Admit::Now)
            .min_by_key(|s| (s.next, s.group))
            .map(|s| vec![s.group])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tradewind_common::Clock;

    /// `"5! 7"`: group 0 stands at clock 5 and has arrived, group 1 at 7 and has not.
    pub(in crate::core::consistency) fn standing(text: &str) -> Vec<Standing> {
        let parse = |(group, word): (usize, &str)| Standing {
            group: GroupId(group as u32),
            next: Clock(word.trim_end_matches('!').parse().unwrap()),
            arrived: word.ends_with('!'),
        };
        text.split_whitespace().enumerate().map(parse).collect()
    }

    #[test]
    fn admits_within_the_bound() {
        let check = |bound, text, want: Option<u32>| {
            let policy = Bounded { bound };
            let got = policy.decide(&standing(text));
            assert_eq!(got, want.map(|g| vec![GroupId(g)]), "{bound:?} {text}");
        };
        use StalenessBound::{Finite, Unbounded};
        check(Finite(0), "0! 0", Some(0));
        check(Finite(0), "1! 0", None);
        check(Finite(3), "3! 0", Some(0));
        check(Finite(3), "4! 0", None);
        check(Finite(3), "4! 0!", Some(1));
        check(Finite(3), "4! 1", Some(0));
        check(Finite(3), "4! 4!", Some(0));
        check(Finite(3), "9!", Some(0));
        check(Unbounded, "999! 0", Some(0));
        check(Unbounded, "999 0", None);
    }
}
