use tradewind_common::staleness::{Admit, StalenessBound};

use super::{Consistency, Decision, Scene};

/// Applied on arrival while the staleness bound admits it (rule 1; Ho et al. 2013, "More Effective
/// Distributed ML via a Stale Synchronous Parallel Parameter Server", section 2): a group's clock c while
/// c − m ≤ s, m the smallest clock at which a live group stands. `async` has no bound. What
/// waits is applied in the order of (clock, group), so that a run repeats.
#[derive(Clone, Copy, Debug)]
pub struct Bounded {
    /// `s`.
    pub bound: StalenessBound,
}

impl Consistency for Bounded {
    fn decide(&self, scene: &Scene<'_>) -> Decision {
        let all = scene.standing;
        let min = all.iter().map(|s| s.next).min().unwrap_or_default();
        let admitted = all
            .iter()
            .filter(|s| s.arrived && self.bound.admit(s.next, min) == Admit::Now);
        let first = admitted.min_by_key(|s| (s.next, s.group));
        first.map_or(Decision::Wait, |s| Decision::Merge(vec![s.group]))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::consistency::Standing;
    use tradewind_common::{Clock, GroupId};

    /// `"5! 6? 7 9+"`: group 0 stands at clock 5 and has arrived, group 1 at 6 with a skip, group 2 at
    /// 7 and has not, group 3 starts at 9; the others have started long ago.
    pub(in crate::consistency) fn standing(text: &str) -> Vec<Standing> {
        let parse = |(group, word): (usize, &str)| {
            let next = Clock(word.trim_end_matches(['!', '?', '+']).parse().unwrap());
            Standing {
                group: GroupId(group as u32),
                start: if word.ends_with('+') { next } else { Clock(0) },
                next,
                arrived: word.ends_with(['!', '?']),
                gradient: word.ends_with('!'),
                since_us: 0,
            }
        };
        text.split_whitespace().enumerate().map(parse).collect()
    }

    pub(in crate::consistency) fn scene(standing: &[Standing], highest: Option<u64>) -> Scene<'_> {
        Scene {
            standing,
            highest: highest.map(Clock),
            now_us: 0,
            gap_us: None,
        }
    }

    pub(in crate::consistency) fn groups(numbers: &[u32]) -> Vec<GroupId> {
        numbers.iter().map(|group| GroupId(*group)).collect()
    }

    #[test]
    fn admits_within_the_bound() {
        let check = |bound, text, want: Option<u32>| {
            let policy = Bounded { bound };
            let got = policy.decide(&scene(&standing(text), None));
            let want = want.map_or(Decision::Wait, |g| Decision::Merge(groups(&[g])));
            assert_eq!(got, want, "{bound:?} {text}");
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
