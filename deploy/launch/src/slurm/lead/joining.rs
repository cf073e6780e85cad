//! Ranks that never join their groups: a script may have forgotten to.

use std::collections::BTreeSet;
use std::time::Duration;

use tradewind_proto::v1::StatusReply;

use crate::supervisor::{NEVER_JOINED_MS, WHY_NOT_JOINED};

/// Ranks that are named in a message.
const NAMED_MAX: usize = 8;

/// Which ranks have joined.
#[derive(Debug, Default)]
pub(super) struct Joining {
    /// When the coordinator answered first.
    since: Option<Duration>,
    /// Group and rank.
    joined: BTreeSet<(u32, u32)>,
    is_told: bool,
}

impl Joining {
    /// At `now` the coordinator has answered `status`; the job has groups of `sizes`. What is to be told, once.
    pub(super) fn hear(
        &mut self,
        status: &StatusReply,
        sizes: &[u32],
        now: Duration,
    ) -> Option<String> {
        if self.is_told {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        for group in &status.groups {
            let is_over = ["left", "dead"].contains(&group.state.as_str());
            let ranks = match is_over {
                true => (0..group.size).collect::<Vec<_>>(),
                false => group.ranks.iter().map(|rank| rank.rank).collect(),
            };
            self.joined
                .extend(ranks.into_iter().map(|rank| (group.group, rank)));
        }
        if (now - since).as_millis() < NEVER_JOINED_MS.into() {
            return None;
        }
        self.is_told = true;
        let all = (0..).zip(sizes);
        let all = all.flat_map(|(group, size)| (0..*size).map(move |rank| (group, rank)));
        let never: Vec<_> = all.filter(|rank| !self.joined.contains(rank)).collect();
        let named = never.iter().take(NAMED_MAX);
        let named = named.map(|(group, rank)| format!("rank {rank} of group {group}"));
        let mut named = named.collect::<Vec<_>>().join(", ");
        if never.len() > NAMED_MAX {
            named += &format!(" and {} more", never.len() - NAMED_MAX);
        }
        let seconds = NEVER_JOINED_MS / 1000;
        (!never.is_empty())
            .then(|| format!("not joined after {seconds} s: {named}: {WHY_NOT_JOINED}"))
    }
}

#[cfg(test)]
mod tests {
    use tradewind_proto::v1::{GroupStatus, RankStatus};

    use super::*;

    fn status(groups: &[(u32, &str, &[u32])]) -> StatusReply {
        let groups = groups.iter().map(|(group, state, ranks)| GroupStatus {
            group: *group,
            size: 2,
            state: (*state).into(),
            ranks: ranks
                .iter()
                .map(|rank| RankStatus {
                    rank: *rank,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        StatusReply {
            groups: groups.collect(),
            ..Default::default()
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn ranks_that_have_never_joined_are_told_once() {
        let mut joining = Joining::default();
        let first = status(&[(0, "gathering", &[1])]);
        assert_eq!(joining.hear(&first, &[2, 2, 2], seconds(100)), None);
        // It has joined, and died since; group 2 has left.
        let later = status(&[(0, "gathering", &[]), (2, "left", &[])]);
        assert_eq!(joining.hear(&later, &[2, 2, 2], seconds(159)), None);
        let told = joining.hear(&later, &[2, 2, 2], seconds(160)).unwrap();
        let named =
            "not joined after 60 s: rank 0 of group 0, rank 0 of group 1, rank 1 of group 1: ";
        assert!(told.starts_with(named), "{told}");
        assert!(told.contains("tradewind.join()"), "{told}");
        assert_eq!(joining.hear(&later, &[2, 2, 2], seconds(500)), None);
    }

    #[test]
    fn of_many_some_are_named_and_of_none_nothing_is_told() {
        let hear = |sizes: &[u32], status: &StatusReply| {
            let mut joining = Joining::default();
            joining.hear(status, sizes, seconds(0));
            joining.hear(status, sizes, seconds(60))
        };
        let told = hear(&[20], &status(&[])).unwrap();
        assert!(told.contains("rank 7 of group 0 and 12 more: "), "{told}");
        assert_eq!(hear(&[2], &status(&[(0, "live", &[0, 1])])), None);
    }
}
