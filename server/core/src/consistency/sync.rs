use tradewind_common::{Clock, GroupId};

use super::{Consistency, Decision, Scene};

/// Synchronous across groups: a block applies clock c when every live group that started at or
/// before c has contributed or skipped (rule 3).
///
/// With b backup groups it applies when the gradients of all but b of them are there (Chen, Pan,
/// Monga, Bengio and Jozefowicz 2016, "Revisiting Distributed Synchronous SGD", algorithm 4; there
/// the gradients of N of N + b workers are waited for). A skip is none of them, or it would keep a
/// good gradient out; but nobody is waited for when everybody has come. What comes after that is left out, and its group told which clock is next: it
/// goes on there. By then it may have been passed over at one block, and be waited for at another,
/// which is a clock behind: so a block does not wait for those that have gone on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sync {
    /// b; less than the number of groups.
    pub backup_groups: usize,
}

impl Sync {
    /// The clock that is made; `None` while nobody is there.
    fn clock(&self, scene: &Scene<'_>) -> Option<Clock> {
        let gathered = scene.gathered.map(|gathered| gathered.clock);
        // Without backup groups nobody is late: what was decided of a later clock was left out
        // because values had been restored.
        let next = || match self.backup_groups {
            0 => scene.slowest(),
            _ => scene.present(),
        };
        gathered.or_else(next)
    }
}

impl Consistency for Sync {
    fn decide(&self, scene: &Scene<'_>) -> Decision {
        let Some(clock) = self.clock(scene) else {
            return Decision::Wait;
        };
        let mut late: Vec<_> = scene.waiting_before(clock).collect();
        late.sort_unstable();
        if !late.is_empty() {
            return Decision::LeaveOut(late);
        }
        // A group that starts later stands at a larger clock and is not waited for, and neither is
        // one that has gone on to a larger one.
        let everybody = scene.came(clock) == scene.due(clock);
        let enough = || {
            let needed = scene.begun(clock).saturating_sub(self.backup_groups);
            scene.gradients(clock) >= needed.max(1)
        };
        if everybody || (self.backup_groups > 0 && enough()) {
            Decision::Merge(scene.waiting_at(clock).collect())
        } else {
            Decision::Wait
        }
    }

    /// Of the clock that is made: without backup groups in GroupId order, so that bits do not depend on the
    /// order in which they come. With them who is in follows from that order.
    fn gathers(&self, scene: &Scene<'_>) -> Option<GroupId> {
        let clock = self.clock(scene)?;
        let first = scene.waiting_at(clock).next()?;
        (self.backup_groups > 0 || scene.is_next(first, clock)).then_some(first)
    }

    fn averages(&self) -> bool {
        true
    }

    fn leaves_behind(&self) -> bool {
        self.backup_groups > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consistency::Gathered;
    use crate::consistency::tests::{groups, scene, standings};

    #[test]
    fn waits_for_every_group_that_has_started() {
        let check = |text, want: Option<&[u32]>| {
            let policy = Sync::default();
            let decision = policy.decide(&scene(&standings(text, 0), None));
            let want = want.map_or(Decision::Wait, |want| Decision::Merge(groups(want)));
            assert_eq!(decision, want, "{text}");
        };
        check("", None);
        check("5", None);
        check("5!", Some(&[0]));
        check("5! 5", None);
        check("5! 5!", Some(&[0, 1]));
        check("5! 7", Some(&[0]));
        check("5! 7!", Some(&[0]));
        check("5 7! 5!", None);
        check("5? 5!", Some(&[0, 1]));
        check("5? 5", None);
        check("5? 5?", Some(&[0, 1]));
    }

    #[test]
    fn goes_on_without_as_many_as_there_are_backups() {
        let check = |backup_groups, highest: u64, text, want: Decision| {
            let policy = Sync { backup_groups };
            let decision = policy.decide(&scene(&standings(text, 0), Some(highest)));
            assert_eq!(
                decision, want,
                "{backup_groups} backups after {highest}: {text}"
            );
        };
        let merge = |of: &[u32]| Decision::Merge(groups(of));
        let leave = |of: &[u32]| Decision::LeaveOut(groups(of));
        check(1, 4, "5! 5! 5", merge(&[0, 1]));
        check(1, 4, "5! 5 5", Decision::Wait);
        check(2, 4, "5! 5 5", merge(&[0]));
        check(2, 4, "5 5 5", Decision::Wait);
        // Who skips is not among those that are waited for, but everybody is enough.
        check(1, 4, "5? 5", Decision::Wait);
        check(1, 4, "5? 5!", merge(&[0, 1]));
        check(1, 4, "5! 5", merge(&[0]));
        check(1, 4, "5? 5! 5", Decision::Wait);
        check(1, 4, "5? 5! 5!", merge(&[0, 1, 2]));
        check(2, 4, "5? 5! 5", merge(&[0, 1]));
        check(1, 4, "5? 5? 5?", merge(&[0, 1, 2]));
        check(1, 4, "5? 5? 5", Decision::Wait);
        check(1, 4, "5? 5! 2", Decision::Wait);
        check(1, 4, "5? 5! 6", merge(&[0, 1]));
        check(1, 4, "5? 5! 9+", merge(&[0, 1]));
        // One that is still at an earlier clock counts among those that are not waited for.
        check(1, 4, "5! 5! 2", merge(&[0, 1]));
        check(1, 4, "5! 5 2", Decision::Wait);
        check(1, 4, "5 5 2!", leave(&[2]));
        check(2, 4, "5! 3! 2!", leave(&[1, 2]));
        // Those that have gone on do not come any more: whoever is left is enough.
        check(1, 4, "5! 6 5", Decision::Wait);
        check(1, 4, "5! 6! 6", merge(&[0]));
        check(1, 4, "6! 6! 6", merge(&[0, 1]));
        check(1, 4, "6! 6 6", Decision::Wait);
        // With fewer live groups than backups the first one is enough.
        check(2, 4, "5! 5", merge(&[0]));
        check(2, 4, "5", Decision::Wait);
        // Nobody is late where everybody is waited for.
        check(0, 8, "5! 5! 9", merge(&[0, 1]));
        check(0, 8, "5! 5 9!", Decision::Wait);
        // One that starts later is not counted before.
        check(1, 4, "5! 5 9+", merge(&[0]));
        check(1, 8, "9! 9 9+", Decision::Wait);
    }

    #[test]
    fn gathers_what_is_next_in_order_and_makes_its_clock() {
        let check = |backup_groups, gathered: Option<(u64, u32)>, text, next: Option<u32>, want| {
            let policy = Sync { backup_groups };
            let standings = standings(text, 0);
            let gathered = gathered.map(|(clock, last)| Gathered {
                clock: Clock(clock),
                last: GroupId(last),
            });
            let scene = Scene {
                gathered,
                ..scene(&standings, Some(4))
            };
            assert_eq!(policy.gathers(&scene), next.map(GroupId), "{text}");
            assert_eq!(policy.decide(&scene), want, "{text}");
        };
        let merge = |of: &[u32]| Decision::Merge(groups(of));
        check(0, None, "5! 5 5!", Some(0), Decision::Wait);
        check(0, None, "5 5! 5!", None, Decision::Wait);
        check(0, Some((5, 0)), "5: 5 5!", None, Decision::Wait);
        check(0, Some((5, 0)), "5: 5! 5", Some(1), Decision::Wait);
        check(0, Some((5, 0)), "5: 5! 5!", Some(1), merge(&[1, 2]));
        // Who stands elsewhere is not waited for.
        check(0, Some((5, 0)), "5: 6 5! 5", Some(2), Decision::Wait);
        // The groups of what is gathered are gone, and so is everybody who stood there.
        check(0, Some((5, 0)), "6 6! 6", None, merge(&[]));
        check(0, Some((5, 0)), "6 5 6!", None, Decision::Wait);
        check(0, Some((5, 3)), "", None, merge(&[]));
        // With backup groups the order is free.
        check(1, None, "5 5! 5", Some(1), Decision::Wait);
        check(1, Some((5, 1)), "5 5: 5!", Some(2), merge(&[2]));
        check(1, Some((5, 1)), "5! 5: 5 5", Some(0), Decision::Wait);
        check(
            1,
            Some((5, 1)),
            "5 5: 4!",
            None,
            Decision::LeaveOut(groups(&[2])),
        );
    }
}
