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
        let first = scene.first().zip(scene.slowest());
        let admitted =
            first.filter(|((clock, _), slowest)| self.bound.admit(*clock, *slowest) == Admit::Now);
        admitted.map_or(Decision::Wait, |((_, group), _)| {
            Decision::Merge(vec![group])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consistency::tests::{groups, scene, standings};

    #[test]
    fn admits_within_the_bound() {
        let check = |bound, text, want: Option<u32>| {
            let policy = Bounded { bound };
            let got = policy.decide(&scene(&standings(text, 0), None));
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
