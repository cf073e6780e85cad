use tradewind_common::GroupId;

use super::{Consistency, Standing};

/// Synchronous across groups: a block applies clock c when every live group that started at or
/// before c has contributed or skipped (rule 3).
#[derive(Clone, Copy, Debug)]
pub struct Sync;

impl Consistency for Sync {
    fn decide(&self, standing: &[Standing]) -> Option<Vec<GroupId>> {
        // A group that starts later stands at a larger clock and is not waited for.
        let clock = standing.iter().map(|s| s.next).min()?;
        let due = || standing.iter().filter(|s| s.next == clock);
        due()
            .all(|s| s.arrived)
            .then(|| due().map(|s| s.group).collect())
    }

    fn averages(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::consistency::bounded::tests::standing;

    #[test]
    fn waits_for_every_group_that_has_started() {
        let check = |text, want: Option<&[u32]>| {
            let want = want.map(|groups| groups.iter().map(|g| GroupId(*g)).collect::<Vec<_>>());
            assert_eq!(Sync.decide(&standing(text)), want, "{text}");
        };
        check("", None);
        check("5", None);
        check("5!", Some(&[0]));
        check("5! 5", None);
        check("5! 5!", Some(&[0, 1]));
        check("5! 7", Some(&[0]));
        check("5! 7!", Some(&[0]));
        check("5 7! 5!", None);
    }
}
