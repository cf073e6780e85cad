use tradewind_common::policy::MergeSpec;
use tradewind_common::staleness::{Admit, StalenessBound};

use super::{Consistency, Decision, Scene, Standing};

/// Like [`Bounded`](super::Bounded), but what arrives about the same time becomes one update
/// (Douillard et al. 2026, "Decoupled DiLoCo": a minimum of learners, then an adaptive grace window
/// for more, merged by what each has seen).
///
/// A block waits for `min_groups` contributions that the bound admits, or for all that may come if
/// those are fewer. From the arrival of the last of them it waits for more, until everybody is there,
/// and no longer than twice the mean gap between arrivals, or `grace_us_max`: who does not come in
/// two gaps is not about to come.
///
/// Two groups may each be waited for at a block while they wait for each other at two others. So a
/// block waits for `min_groups` no longer than `wait_us_max` from the first arrival.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    bound: StalenessBound,
    min_groups: usize,
    grace_us_max: u64,
    wait_us_max: u64,
}

impl Window {
    /// The windows of a run under this staleness bound.
    pub fn new(bound: StalenessBound, merge: MergeSpec) -> Self {
        Self {
            bound,
            min_groups: merge.min_groups as usize,
            grace_us_max: merge.grace_ms_max.saturating_mul(1000),
            wait_us_max: merge.wait_ms_max.saturating_mul(1000),
        }
    }

    /// When the window closes of which contributions arrived at these times, in order, while so many
    /// are enough.
    fn closes_us(&self, arrivals_us: &[u64], enough: usize, gap_us: Option<u64>) -> u64 {
        match arrivals_us.get(enough - 1) {
            // Nothing is known of gaps before two arrivals.
            Some(opened_us) => {
                let usual = gap_us.map_or(self.grace_us_max, |gap_us| gap_us.saturating_mul(2));
                opened_us.saturating_add(usual.min(self.grace_us_max))
            }
            None => arrivals_us[0].saturating_add(self.wait_us_max),
        }
    }
}

impl Consistency for Window {
    fn decide(&self, scene: &Scene<'_>) -> Decision {
        let all = scene.standing;
        let min = all.iter().map(|s| s.next).min().unwrap_or_default();
        let may_come = |s: &&Standing| self.bound.admit(s.next, min) == Admit::Now;
        let possible = all.iter().filter(may_come).count();
        let came: Vec<_> = all.iter().filter(may_come).filter(|s| s.arrived).collect();
        if came.is_empty() {
            return Decision::Wait;
        }
        let mut arrivals_us: Vec<_> = came.iter().map(|s| s.since_us).collect();
        arrivals_us.sort_unstable();
        let enough = self.min_groups.clamp(1, possible);
        let closes_us = self.closes_us(&arrivals_us, enough, scene.gap_us);
        if came.len() == possible || scene.now_us >= closes_us {
            Decision::Merge(came.iter().map(|s| s.group).collect())
        } else {
            Decision::WaitUntil(closes_us)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consistency::bounded::tests::{groups, scene, standing};

    #[test]
    fn waits_for_enough_and_then_for_a_while() {
        // "5!" has arrived at 0, the next one in the line at 10, and so on.
        let check = |min_groups, now_us, gap_us, text, want: Decision| {
            let merge = MergeSpec {
                min_groups,
                grace_ms_max: 1,
                wait_ms_max: 5,
            };
            let policy = Window::new(StalenessBound::Finite(2), merge);
            let mut standing = standing(text);
            for (at, group) in standing.iter_mut().enumerate() {
                group.since_us = 10 * at as u64;
            }
            let scene = Scene {
                now_us,
                gap_us,
                ..scene(&standing, None)
            };
            let got = policy.decide(&scene);
            assert_eq!(
                got, want,
                "{min_groups} at {now_us}, gap {gap_us:?}: {text}"
            );
        };
        let merge = |of: &[u32]| Decision::Merge(groups(of));
        let until = Decision::WaitUntil;
        check(2, 0, None, "5 5 5", Decision::Wait);
        // Not enough: no longer than 5 ms from the first arrival.
        check(2, 20, Some(7), "5! 5 5", until(5000));
        check(2, 5000, Some(7), "5! 5 5", merge(&[0]));
        // Enough: from the second arrival two gaps, or 1 ms.
        check(2, 20, Some(100), "5! 5! 5", until(210));
        check(2, 20, Some(9000), "5! 5! 5", until(1010));
        check(2, 20, None, "5! 5! 5", until(1010));
        check(2, 210, Some(100), "5! 5! 5", merge(&[0, 1]));
        check(2, 20, Some(100), "5! 5 5!", until(220));
        // Everybody is there.
        check(2, 30, Some(100), "5! 5! 5!", merge(&[0, 1, 2]));
        check(9, 30, Some(100), "5! 5! 5!", merge(&[0, 1, 2]));
        check(1, 0, Some(100), "5!", merge(&[0]));
        // Whoever is too far ahead does not count: the first two are all that may come.
        check(3, 30, Some(100), "5! 5! 8! 8", merge(&[0, 1]));
        check(3, 30, Some(100), "5! 5 8! 8!", until(5000));
        check(2, 30, Some(100), "5! 7! 8!", merge(&[0, 1]));
    }
}
