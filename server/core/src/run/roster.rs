//! Which groups of a run there may be: those that are configured, those that came on top, without those
//! that were asked to leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tradewind_common::range::RangeError;
use tradewind_common::spec::{GROUP_SIZE_MAX, GROUPS_MAX, RunSpec, SpecError};
use tradewind_common::{GroupId, Rank};

use super::outbox::Outbox;
use crate::answer::Refused;
use crate::event::{Event, EventKind};
use crate::refusal::Refusal;

/// Groups that were asked to leave. They do not come back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    all: bool,
    groups: BTreeSet<GroupId>,
}

/// The groups that there may be.
#[derive(Clone, Debug)]
pub(super) struct Roster {
    /// Has those that are configured.
    spec: Arc<RunSpec>,
    /// Ranks of the groups that came on top of those that are configured.
    attached: Vec<u32>,
    drained: Drained,
    /// How many of those that were attached are written down.
    attached_written: usize,
    /// Who was asked to leave, as far as that is not written down.
    drained_unwritten: Option<Drained>,
}

/// What has changed in a roster since it was written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterChange {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attached: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drained: Option<Drained>,
}

impl RosterChange {
    /// Makes it, in what was written down before.
    pub(super) fn make(self, attached: &mut Vec<u32>, drained: &mut Drained) {
        attached.extend(self.attached);
        if let Some(more) = self.drained {
            drained.all |= more.all;
            drained.groups.extend(more.groups);
        }
    }
}

impl Roster {
    /// The groups of the specification, those that were `attached`, without those that were `drained`.
    pub(super) fn new(spec: Arc<RunSpec>, attached: Vec<u32>, drained: Drained) -> Self {
        Self {
            spec,
            attached_written: attached.len(),
            attached,
            drained,
            drained_unwritten: None,
        }
    }

    /// What has changed since this was last asked.
    pub(super) fn take_change(&mut self) -> RosterChange {
        let written = std::mem::replace(&mut self.attached_written, self.attached.len());
        RosterChange {
            attached: self.attached[written..].to_vec(),
            drained: self.drained_unwritten.take(),
        }
    }

    pub(super) fn attached(&self) -> &[u32] {
        &self.attached
    }

    pub(super) fn drained(&self) -> &Drained {
        &self.drained
    }

    /// Ranks of each group there may be: of those that are configured, then of those that came on top.
    pub(super) fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        let configured = self.spec.group_sizes.iter();
        configured.chain(&self.attached).copied()
    }

    /// How many groups there may be.
    pub(super) fn count(&self) -> usize {
        self.spec.group_sizes.len() + self.attached.len()
    }

    /// Ranks of a group; `None` if there is no such group.
    pub(super) fn size(&self, group: GroupId) -> Option<u32> {
        let configured = &self.spec.group_sizes;
        let index = group.0 as usize;
        let attached = || self.attached.get(index - configured.len());
        configured.get(index).or_else(attached).copied()
    }

    /// The groups that are waited for at the beginning, from one on, and then those before it.
    pub(super) fn awaited_from(&self, first: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        let configured = self.spec.group_sizes.len() as u32;
        let groups = (first.0..configured).chain(0..first.0).map(GroupId);
        groups.filter(|group| !self.is_drained(*group))
    }

    /// Whether a group was asked to leave.
    pub(super) fn is_drained(&self, group: GroupId) -> bool {
        self.drained.all || self.drained.groups.contains(&group)
    }

    /// Whether all groups were asked to leave.
    pub(super) fn is_draining(&self) -> bool {
        self.drained.all
    }

    fn last(&self) -> GroupId {
        GroupId(self.count() as u32 - 1)
    }

    /// Refuses a rank that there is not.
    pub(super) fn check(&self, group: GroupId, rank: Rank) -> Result<(), Refusal> {
        let last = self.last();
        let size = self
            .size(group)
            .ok_or(Refusal::UnknownGroup { group, last })?;
        if rank.0 >= size {
            return Err(Refusal::UnknownRank {
                group,
                rank,
                last: Rank(size - 1),
            });
        }
        Ok(())
    }

    /// The first field in which the specification of a joiner differs. Of the groups it may know only
    /// those that there were when it was started.
    pub(super) fn difference(&self, other: &RunSpec) -> Option<String> {
        let (configured, named) = (&self.spec.group_sizes, &other.group_sizes);
        let same = named.len() <= self.count()
            && named
                .split_at_checked(configured.len())
                .is_some_and(|(first, rest)| {
                    first == &configured[..] && self.attached.starts_with(rest)
                });
        match same {
            true => self.spec.difference_besides_groups(other),
            false => Some("group_sizes".into()),
        }
    }

    /// Adds groups of so many ranks each; answers the number of the first.
    pub(super) fn attach(&mut self, sizes: &[u32], out: &mut Outbox) -> Result<GroupId, Refused> {
        if self.spec.consistency.waits_for_all() {
            return Err(Refused::FixedGroups);
        }
        let first = self.count();
        let range = |field, value: String, wanted| {
            SpecError::Range(RangeError {
                field,
                value,
                wanted,
            })
        };
        if let Some(size) = sizes.iter().find(|n| !(1..=GROUP_SIZE_MAX).contains(*n)) {
            return Err(range("group size", size.to_string(), "1 to 65536").into());
        }
        let groups = first + sizes.len();
        if sizes.is_empty() || groups > GROUPS_MAX {
            return Err(range("number of groups", groups.to_string(), "1 more to 65536").into());
        }
        self.attached.extend(sizes);
        out.change();
        let first = GroupId(first as u32);
        let text = match sizes.len() {
            1 => format!("group {first} may join"),
            _ => format!("groups {first} to {} may join", groups - 1),
        };
        out.tell(Event::new(EventKind::GroupAttached, text));
        Ok(first)
    }

    /// Asks groups to leave, or where none is named all of them and whoever comes later. Answers whether
    /// that is new: the launcher and the servers may both ask for it.
    pub(super) fn drain(&mut self, groups: &[GroupId], out: &mut Outbox) -> Result<bool, Refusal> {
        let last = self.last();
        if let Some(group) = groups.iter().copied().find(|group| *group > last) {
            return Err(Refusal::UnknownGroup { group, last });
        }
        if self.drained.all {
            return Ok(false);
        }
        self.drained.all = groups.is_empty();
        self.drained.groups.extend(groups);
        let unwritten = self.drained_unwritten.get_or_insert_default();
        unwritten.all |= groups.is_empty();
        unwritten.groups.extend(groups);
        out.touch();
        let text = match groups {
            [] => "all groups are asked to leave".to_owned(),
            [one] => format!("group {one} is asked to leave"),
            many => format!("{} groups are asked to leave", many.len()),
        };
        out.tell(Event::new(EventKind::GroupDrained, text));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::spec::ConsistencySpec;
    use tradewind_common::{Generation, RunId};

    use super::*;
    use crate::tests::spec;

    #[test]
    fn groups_come_on_top_and_are_asked_to_leave() {
        let mut out = Outbox::new(RunId::new("r").unwrap(), Generation(1));
        let spec = Arc::new(spec(&[2, 1], ConsistencySpec::Async));
        let mut roster = Roster::new(spec.clone(), Vec::new(), Drained::default());
        assert_eq!(roster.attach(&[3], &mut out), Ok(GroupId(2)));
        assert_eq!(out.generation(), Generation(2));
        assert_eq!(roster.sizes().collect::<Vec<_>>(), [2, 1, 3]);
        assert_eq!(roster.check(GroupId(2), Rank(2)), Ok(()));
        let unknown = |group, last| Refusal::UnknownGroup { group, last };
        let refused = Err(unknown(GroupId(3), GroupId(2)));
        assert_eq!(roster.check(GroupId(3), Rank(0)), refused);
        assert!(roster.attach(&[], &mut out).is_err() && roster.attach(&[0], &mut out).is_err());

        assert_eq!(roster.drain(&[GroupId(0)], &mut out), Ok(true));
        assert_eq!(
            roster.awaited_from(GroupId(0)).collect::<Vec<_>>(),
            [GroupId(1)]
        );
        assert_eq!(roster.drain(&[], &mut out), Ok(true));
        assert_eq!(roster.drain(&[GroupId(1)], &mut out), Ok(false));
        assert!(roster.is_draining() && roster.is_drained(GroupId(7)));
        assert_eq!(roster.difference(&spec), None);
        let mut other = spec.as_ref().clone();
        other.group_sizes = vec![2];
        assert_eq!(roster.difference(&other).as_deref(), Some("group_sizes"));
    }
}
