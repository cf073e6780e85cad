//! The values that groups compute on, as a block sent them: kept only where the staleness policy
//! needs them, shared with the block and with other groups that were sent the same, and the
//! primary's alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tradewind_common::GroupId;

/// Most answers of a group that are kept. One is computed on, with overlap the next one is there
/// already, and repeats may have brought others meanwhile.
pub const BACKUPS_MAX: usize = 4;

type Values = Arc<Vec<f32>>;

/// What was sent to each group of one block.
#[derive(Debug, Default)]
pub struct Backups {
    /// By version, rising.
    sent: BTreeMap<GroupId, VecDeque<(u64, Values)>>,
    /// The staleness policy's own.
    pub mean_square: Vec<f32>,
}

impl Backups {
    /// Forgets all groups but these.
    pub fn retain(&mut self, stays: impl Fn(&GroupId) -> bool) {
        self.sent.retain(|group, _| stays(group));
    }

    /// An answer with the values of a version leaves.
    pub fn keep(&mut self, group: GroupId, version: u64, values: &Values) {
        let sent = self.sent.entry(group).or_default();
        if sent.back().is_some_and(|(last, _)| *last >= version) {
            return;
        }
        if sent.len() == BACKUPS_MAX {
            sent.pop_front();
        }
        sent.push_back((version, values.clone()));
    }

    /// The values of the version that a gradient was computed on. No later one is computed on older
    /// values, so what is older is forgotten.
    pub fn computed_on(&mut self, group: GroupId, version: u64) -> Option<Values> {
        let sent = self.sent.get_mut(&group)?;
        while sent.front().is_some_and(|(of, _)| *of < version) {
            sent.pop_front();
        }
        let (of, values) = sent.front()?;
        (*of == version).then(|| values.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_may_still_be_computed_on() {
        let group = GroupId(3);
        let values = |version: u64| Arc::new(vec![version as f32]);
        let mut backups = Backups::default();
        let mut keep = |version| backups.keep(group, version, &values(version));
        [2, 2, 5, 7].into_iter().for_each(&mut keep);
        assert_eq!(backups.computed_on(GroupId(0), 2), None);
        assert_eq!(backups.computed_on(group, 2), Some(values(2)));
        assert_eq!(backups.computed_on(group, 5), Some(values(5)));
        assert_eq!(
            backups.computed_on(group, 5),
            Some(values(5)),
            "with overlap"
        );
        assert_eq!(backups.computed_on(group, 2), None, "nobody goes back");
        for version in 8..20 {
            backups.keep(group, version, &values(version));
        }
        assert_eq!(backups.computed_on(group, 7), None, "bounded");
        assert_eq!(backups.computed_on(group, 16), Some(values(16)));
        backups.retain(|of| *of != group);
        assert_eq!(backups.computed_on(group, 19), None);
    }
}
