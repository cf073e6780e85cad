//! Groups that come on top of those that are configured, and groups that are asked to leave.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tradewind_common::GroupId;
use tradewind_common::range::RangeError;
use tradewind_common::spec::{ConsistencySpec, GROUP_SIZE_MAX, GROUPS_MAX, RunSpec, SpecError};

use super::{GroupState, Run};
use crate::ReplyTo;
use crate::answer::{Answer, Refused};
use crate::event::{Event, EventKind};
use crate::refusal::Refusal;

/// Groups that were asked to leave. They do not come back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    all: bool,
    groups: BTreeSet<GroupId>,
}

impl Drained {
    /// Whether this one was.
    pub(super) fn has(&self, group: GroupId) -> bool {
        self.all || self.groups.contains(&group)
    }
}

impl Run {
    /// Ranks of each group there may be: of those that are configured, then of those that came on top.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        let configured = self.spec.group_sizes.iter();
        configured.chain(&self.attached).copied()
    }

    /// Ranks of a group; `None` if there is no such group.
    pub(super) fn size(&self, group: GroupId) -> Option<u32> {
        let configured = &self.spec.group_sizes;
        let index = group.0 as usize;
        let attached = || self.attached.get(index - configured.len());
        configured.get(index).or_else(attached).copied()
    }

    /// The first field in which the specification of a joiner differs. Of the groups it may know only
    /// those that there were when it was started.
    pub(crate) fn difference(&self, other: &RunSpec) -> Option<&'static str> {
        let (configured, named) = (&self.spec.group_sizes, &other.group_sizes);
        let sizes: Vec<u32> = self.sizes().take(named.len()).collect();
        match named.len() >= configured.len() && sizes == *named {
            true => self.spec.difference_besides_groups(other),
            false => Some("group_sizes"),
        }
    }

    /// Adds groups of so many ranks each; answered with the number of the first.
    pub(crate) fn attach(&mut self, sizes: &[u32], to: ReplyTo) {
        let added = self.try_attach(sizes);
        self.reply(to, added.map(Answer::Attached));
    }

    fn try_attach(&mut self, sizes: &[u32]) -> Result<GroupId, Refused> {
        self.may_go_on()?;
        if self.spec.consistency == ConsistencySpec::Sync {
            return Err(Refused::FixedGroups);
        }
        let first = self.sizes().count();
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
        self.change();
        let first = GroupId(first as u32);
        let text = match sizes.len() {
            1 => format!("group {first} may join"),
            _ => format!("groups {first} to {} may join", groups - 1),
        };
        self.tell(Event::new(EventKind::GroupAttached, text));
        Ok(first)
    }

    /// Asks groups to leave, or where none is named all of them and whoever comes later.
    pub(crate) fn drain(&mut self, groups: &[GroupId], to: ReplyTo, now_ms: u64) {
        let asked = self.try_drain(groups);
        self.reply(to, asked.map(|()| Answer::Draining));
        self.advance(now_ms);
    }

    fn try_drain(&mut self, groups: &[GroupId]) -> Result<(), Refused> {
        self.may_go_on()?;
        let last = GroupId(self.sizes().count() as u32 - 1);
        if let Some(group) = groups.iter().copied().find(|group| *group > last) {
            return Err(Refusal::UnknownGroup { group, last }.into());
        }
        // The launcher and the servers may both ask for it.
        if self.drained.all {
            return Ok(());
        }
        self.drained.all = groups.is_empty();
        self.drained.groups.extend(groups);
        self.dirty = true;
        let text = match groups {
            [] => "all groups are asked to leave".to_owned(),
            [one] => format!("group {one} is asked to leave"),
            many => format!("{} groups are asked to leave", many.len()),
        };
        self.tell(Event::new(EventKind::GroupDrained, text));
        // Those that gather have nothing to finish.
        let gathering = self
            .groups
            .iter()
            .filter(|(id, group)| group.state == GroupState::Gathering && self.drained.has(**id));
        for id in gathering.map(|(id, _)| *id).collect::<Vec<_>>() {
            let group = self.groups.get_mut(&id).expect("a known group");
            let mut members = std::mem::take(&mut group.members);
            let waiting = members
                .values_mut()
                .flat_map(|member| member.take_waiting());
            let waiting: Vec<ReplyTo> = waiting.collect();
            self.reply_all(waiting, Err(Refused::Drained(id)));
            self.gone(id);
        }
        Ok(())
    }

    /// Whether all groups were asked to leave.
    pub fn is_draining(&self) -> bool {
        self.drained.all
    }

    /// A group that is out of the view does not come back.
    pub(super) fn gone(&mut self, id: GroupId) {
        let asked = self.drained.has(id);
        let group = self.groups.get_mut(&id).expect("a known group");
        group.state = GroupState::Left;
        let life = group.incarnation;
        let text = match asked {
            true => format!("group {id} has left, as it was asked to"),
            false => format!("group {id} is done and has left"),
        };
        let event = Event::new(EventKind::GroupLeft, text);
        self.tell(event.group(id).life(life.0));
        self.dirty = true;
        self.want_last_snapshot();
    }

    fn may_go_on(&self) -> Result<(), Refused> {
        self.over().map_or(Ok(()), Err)
    }
}
