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

/// The values of a version, and in how many answers they are kept.
#[derive(Debug)]
struct Version {
    values: Values,
    answers: usize,
}

/// What was sent to each group of one block.
#[derive(Debug, Default)]
pub struct Backups {
    /// Versions, rising.
    sent: BTreeMap<GroupId, VecDeque<u64>>,
    /// Those that are among them.
    versions: BTreeMap<u64, Version>,
    /// The staleness policy's own.
    pub mean_square: Vec<f32>,
}

impl Backups {
    /// Forgets a group.
    pub fn forget(&mut self, group: GroupId) {
        let sent = self.sent.remove(&group);
        for version in sent.into_iter().flatten() {
            self.release(version);
        }
    }

    /// An answer with the values of a version leaves. Of no more than `most` versions they are kept: what is
    /// computed on another one cannot be compared with it.
    pub fn keep(&mut self, group: GroupId, version: u64, values: &Values, most: usize) {
        let sent = self.sent.entry(group).or_default();
        if sent.back().is_some_and(|last| *last >= version) {
            return;
        }
        let oldest = match sent.len() {
            BACKUPS_MAX => sent.pop_front(),
            _ => None,
        };
        oldest.into_iter().for_each(|version| self.release(version));
        if self.versions.len() >= most && !self.versions.contains_key(&version) {
            return;
        }
        let kept = self.versions.entry(version).or_insert_with(|| Version {
            values: values.clone(),
            answers: 0,
        });
        kept.answers += 1;
        self.sent.entry(group).or_default().push_back(version);
    }

    /// The values of the version that a gradient was computed on. No later one is computed on older
    /// values, so what is older is forgotten.
    pub fn computed_on(&mut self, group: GroupId, version: u64) -> Option<Values> {
        let sent = self.sent.get_mut(&group)?;
        let older = sent.iter().take_while(|of| **of < version).count();
        let older: Vec<u64> = sent.drain(..older).collect();
        let found = sent.front() == Some(&version);
        older.into_iter().for_each(|version| self.release(version));
        let kept = self.versions.get(&version).filter(|_| found);
        kept.map(|kept| kept.values.clone())
    }

    /// One answer less keeps the values of a version.
    fn release(&mut self, version: u64) {
        let kept = self.versions.get_mut(&version);
        let kept = kept.expect("it is kept while an answer keeps it");
        kept.answers -= 1;
        if kept.answers == 0 {
            self.versions.remove(&version);
        }
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
        let mut keep = |version| backups.keep(group, version, &values(version), 64);
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
            backups.keep(group, version, &values(version), 64);
        }
        assert_eq!(backups.computed_on(group, 7), None, "bounded");
        assert_eq!(backups.computed_on(group, 16), Some(values(16)));
        backups.forget(group);
        assert_eq!(backups.computed_on(group, 19), None);
    }

    #[test]
    fn keeps_no_more_versions_than_may_be() {
        let values = |version: u64| Arc::new(vec![version as f32]);
        let mut backups = Backups::default();
        let keep = |backups: &mut Backups, group, version| {
            backups.keep(GroupId(group), version, &values(version), 2);
        };
        keep(&mut backups, 0, 1);
        keep(&mut backups, 1, 1);
        keep(&mut backups, 2, 2);
        keep(&mut backups, 3, 3);
        assert_eq!(backups.computed_on(GroupId(3), 3), None, "one too many");
        assert_eq!(backups.computed_on(GroupId(2), 2), Some(values(2)));
        // Two groups have the first: it goes with the second of them.
        backups.forget(GroupId(0));
        assert_eq!(backups.computed_on(GroupId(1), 1), Some(values(1)));
        assert_eq!(backups.computed_on(GroupId(1), 4), None);
        keep(&mut backups, 3, 5);
        assert_eq!(backups.computed_on(GroupId(3), 5), Some(values(5)));
        (0..4).map(GroupId).for_each(|group| backups.forget(group));
        assert!(backups.versions.is_empty() && backups.sent.is_empty());
    }
}
