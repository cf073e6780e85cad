use tradewind_common::GroupId;

use super::{Consistency, Decision, Scene, Standing, present};

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

impl Consistency for Sync {
    fn decide(&self, scene: &Scene<'_>) -> Decision {
        let all = scene.standing;
        // Without backup groups nobody is late: what was decided of a later clock was left out
        // because values had been restored.
        let clock = match self.backup_groups {
            0 => all.iter().map(|s| s.next).min(),
            _ => present(scene),
        };
        let Some(clock) = clock else {
            return Decision::Wait;
        };
        let groups = |of: &dyn Fn(&&Standing) -> bool| -> Vec<GroupId> {
            all.iter().filter(of).map(|s| s.group).collect()
        };
        let late = groups(&|s| s.arrived && s.next < clock);
        if !late.is_empty() {
            return Decision::LeaveOut(late);
        }
        let came = groups(&|s| s.arrived && s.next == clock);
        // A group that starts later stands at a larger clock and is not waited for, and neither is
        // one that has gone on to a larger one.
        let due = all.iter().filter(|s| s.next <= clock).count();
        let count = all.iter().filter(|s| s.start <= clock).count();
        let needed = count.saturating_sub(self.backup_groups).max(1);
        let gradients = groups(&|s| s.gradient && s.next == clock);
        if gradients.len() >= needed || came.len() == due {
            Decision::Merge(came)
        } else {
            Decision::Wait
        }
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
    use crate::consistency::bounded::tests::{groups, scene, standing};

    #[test]
    fn waits_for_every_group_that_has_started() {
        let check = |text, want: Option<&[u32]>| {
            let policy = Sync::default();
            let decision = policy.decide(&scene(&standing(text), None));
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
            let decision = policy.decide(&scene(&standing(text), Some(highest)));
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
}
