use tradewind_common::policy::MergeSpec;
use tradewind_common::staleness::StalenessBound;
use tradewind_common::{Clock, GroupId};

use super::{Consistency, Decision, Scene};

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

    /// The last clock that the bound admits while the slowest group stands at this one.
    fn reach(&self, slowest: Clock) -> Clock {
        match self.bound {
            StalenessBound::Finite(s) => Clock(slowest.0.saturating_add(s)),
            StalenessBound::Unbounded => Clock(u64::MAX),
        }
    }

    /// When the window closes while so many are enough, of those that `reach` lets in; `None` if nobody has come.
    fn closes_us(&self, scene: &Scene<'_>, reach: Clock, enough: usize) -> Option<u64> {
        let wait_us = |first_us: u64| first_us.saturating_add(self.wait_us_max);
        match scene.arrival_us(enough - 1, reach) {
            // Nothing is known of gaps before two arrivals.
            Some(opened_us) => {
                let twice = |gap_us: u64| gap_us.saturating_mul(2);
                let usual_us = scene.gap_us.map_or(self.grace_us_max, twice);
                Some(opened_us.saturating_add(usual_us.min(self.grace_us_max)))
            }
            None => scene.arrival_us(0, reach).map(wait_us),
        }
    }
}

impl Consistency for Window {
    fn decide(&self, scene: &Scene<'_>) -> Decision {
        // Who is left alone with what others have gathered waits for nobody.
        let alone = |scene: &Scene<'_>| match scene.gathered {
            Some(_) => Decision::Merge(Vec::new()),
            None => Decision::Wait,
        };
        let Some(reach) = scene.slowest().map(|slowest| self.reach(slowest)) else {
            return alone(scene);
        };
        let (came, possible) = (scene.came_up_to(reach), scene.due(reach));
        let enough = self.min_groups.clamp(1, possible);
        let Some(closes_us) = self.closes_us(scene, reach, enough) else {
            return alone(scene);
        };
        if came == possible || scene.now_us >= closes_us {
            Decision::Merge(scene.waiting_up_to(reach))
        } else {
            Decision::WaitUntil(closes_us)
        }
    }

    /// Whoever the bound lets in. Where a group stands that was not heard since values were restored, and so how
    /// far the bound reaches, is not known before it is heard.
    fn gathers(&self, scene: &Scene<'_>) -> Option<GroupId> {
        let (clock, group) = scene.first()?;
        let reach = self.reach(scene.slowest()?);
        let lasts = self.bound == StalenessBound::Unbounded || !scene.has_silent();
        (clock <= reach && lasts).then_some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consistency::Gathered;
    use crate::consistency::tests::{groups, scene, standings};

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
            let standings = standings(text, 10);
            let gathered = text.contains(':').then_some(Gathered {
                clock: Clock(0),
                last: GroupId(0),
            });
            let scene = Scene {
                now_us,
                gap_us,
                gathered,
                ..scene(&standings, None)
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
        // What is gathered counts as it came, and is in.
        check(2, 20, Some(100), "5: 5! 5", until(210));
        check(2, 210, Some(100), "5: 5! 5", merge(&[1]));
        check(2, 30, Some(100), "5: 5: 5!", merge(&[2]));
    }
}
