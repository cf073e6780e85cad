//! Membership as the coordinator decided it and a shard sees it.

use std::collections::BTreeMap;

use tradewind_common::{Clock, Generation, GroupId, Incarnation, ServerId};

/// One generation of a run's membership. Older views are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Orders views.
    pub generation: Generation,
    /// Groups that may push, with their first clock.
    pub live: BTreeMap<GroupId, (Incarnation, Clock)>,
    /// Incarnations that have joined and do not push yet.
    pub joined: BTreeMap<GroupId, Incarnation>,
    /// The one incarnation that may create; `None` once the run is ready.
    pub creator: Option<(GroupId, Incarnation)>,
    /// How many groups there are, those among them that are not here included.
    pub groups: u32,
}

/// What a group is in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// It may push, from this clock on.
    Live(Incarnation, Clock),
    /// It has joined and does not push yet.
    Joined(Incarnation),
    /// It is not there: whatever life of it speaks is fenced.
    Out,
}

impl Rights {
    /// The life of the group, if it is there.
    pub fn incarnation(self) -> Option<Incarnation> {
        match self {
            Self::Live(life, _) | Self::Joined(life) => Some(life),
            Self::Out => None,
        }
    }
}

/// What has changed from one view to a later one. Of each group that has changed it says what it is in the later
/// one. So it leads there from every view between the two, and not only from the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewChange {
    /// The generation of the first view: whoever follows an earlier one lacks what changed before it. 0 for a view
    /// in which nobody is.
    pub base: Generation,
    /// That of the later one.
    pub generation: Generation,
    /// Every group that is something else in the later view, and perhaps others.
    pub changed: BTreeMap<GroupId, Rights>,
    /// As in the later view.
    pub creator: Option<(GroupId, Incarnation)>,
    /// As in the later view.
    pub groups: u32,
}

/// What an order says of membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderedView {
    /// All of it.
    Whole(View),
    /// What has changed since a view that the server has followed.
    Since(ViewChange),
}

/// What has changed since a view that is not here, nor a later one: the change would leave a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the change goes on from generation {base}, but what is here is of generation {has}")]
pub struct Behind {
    /// The generation of what is here; 0 if nothing is.
    pub has: Generation,
    /// That from which the change goes on.
    pub base: Generation,
}

impl View {
    /// Whether the run's values may be read and pushed to (rule 6).
    pub fn ready(&self) -> bool {
        self.generation > Generation(0) && self.creator.is_none()
    }

    /// The incarnation of a group that the view knows, live or not.
    pub fn incarnation(&self, group: GroupId) -> Option<Incarnation> {
        self.live
            .get(&group)
            .map(|(life, _)| *life)
            .or_else(|| self.joined.get(&group).copied())
    }

    /// What a group is in it.
    pub fn rights(&self, group: GroupId) -> Rights {
        let live = self.live.get(&group);
        let live = live.map(|(life, start)| Rights::Live(*life, *start));
        let joined = || self.joined.get(&group).copied().map(Rights::Joined);
        live.or_else(joined).unwrap_or(Rights::Out)
    }

    /// What leads from here to a later view, which costs as much as both know of groups.
    pub fn change_to(&self, later: &Self) -> ViewChange {
        let groups = |view: &Self| {
            let all = view.live.keys().chain(view.joined.keys());
            all.copied().collect::<Vec<_>>()
        };
        let all = groups(self).into_iter().chain(groups(later));
        let changed = all.filter(|group| self.rights(*group) != later.rights(*group));
        ViewChange {
            base: self.generation,
            generation: later.generation,
            changed: changed.map(|group| (group, later.rights(group))).collect(),
            creator: later.creator,
            groups: later.groups,
        }
    }

    /// Goes on to a later view; not if this is later, or the same.
    ///
    /// # Errors
    /// If this is earlier than the view from which the change goes on. Nothing is changed then.
    pub fn change(&mut self, change: &ViewChange) -> Result<(), Behind> {
        if self.generation >= change.generation {
            return Ok(());
        }
        change.check(self.generation)?;
        for (group, rights) in &change.changed {
            self.live.remove(group);
            self.joined.remove(group);
            match rights {
                Rights::Live(life, start) => drop(self.live.insert(*group, (*life, *start))),
                Rights::Joined(life) => drop(self.joined.insert(*group, *life)),
                Rights::Out => {}
            }
        }
        self.generation = change.generation;
        (self.creator, self.groups) = (change.creator, change.groups);
        Ok(())
    }

    /// The same for what an order says. Whether this is what was ordered now: not if it is later, nor if it is another
    /// view of the same generation, as where a coordinator that remembers nothing comes after another one.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn follow(&mut self, told: &OrderedView) -> Result<bool, Behind> {
        match told {
            OrderedView::Whole(view) => {
                // Nothing is followed in generation 0: nobody is there.
                if view.generation > self.generation || self.generation == Generation(0) {
                    *self = view.clone();
                }
                Ok(*self == *view)
            }
            OrderedView::Since(change) => {
                self.change(change)?;
                Ok(self.generation == change.generation)
            }
        }
    }
}

impl ViewChange {
    /// Refuses to lead on from a generation that is earlier than its base.
    ///
    /// # Errors
    /// If it is.
    pub fn check(&self, has: Generation) -> Result<(), Behind> {
        let base = self.base;
        match has < base {
            true => Err(Behind { has, base }),
            false => Ok(()),
        }
    }
}

impl OrderedView {
    /// The generation of the view.
    pub fn generation(&self) -> Generation {
        match self {
            Self::Whole(view) => view.generation,
            Self::Since(change) => change.generation,
        }
    }

    /// Whether the run's values may be read and pushed to in it (rule 6).
    pub fn ready(&self) -> bool {
        let creator = match self {
            Self::Whole(view) => view.creator,
            Self::Since(change) => change.creator,
        };
        self.generation() > Generation(0) && creator.is_none()
    }

    /// How many groups it names.
    pub fn named(&self) -> usize {
        match self {
            Self::Whole(view) => view.live.len() + view.joined.len(),
            Self::Since(change) => change.changed.len(),
        }
    }
}

/// What a holder of a shard says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledge {
    /// The generation that it follows.
    pub generation: Generation,
    /// The highest clock seen in any push, or decided.
    pub clock_seen: Option<Clock>,
    /// Whether every block has a value.
    pub complete: bool,
    /// Of a primary: the copies that have everything, and since when each is one.
    pub full: Vec<(ServerId, Generation)>,
    /// Of a primary: the copies that have confirmed nothing for a lease while something waits for them,
    /// and since when each is one.
    pub stalled: Vec<(ServerId, Generation)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `3: 0@1:7 1@2`: in generation 3 life 1 of group 0 is live from clock 7 on, and life 2 of group 1 has
    /// joined.
    fn view(text: &str) -> View {
        let (generation, groups) = text.split_once(':').unwrap();
        let mut view = View {
            generation: Generation(generation.parse().unwrap()),
            groups: 9,
            ..View::default()
        };
        for group in groups.split_whitespace() {
            let (group, life) = group.split_once('@').unwrap();
            let group = GroupId(group.parse().unwrap());
            match life.split_once(':') {
                Some((life, start)) => {
                    let life = Incarnation(life.parse().unwrap());
                    view.live
                        .insert(group, (life, Clock(start.parse().unwrap())));
                }
                None => drop(
                    view.joined
                        .insert(group, Incarnation(life.parse().unwrap())),
                ),
            }
        }
        view
    }

    #[test]
    fn a_change_leads_on_from_every_view_between_and_from_none_before() {
        let views = [
            "1:",
            "2: 0@1",
            "3: 0@1:0 1@1",
            "4: 1@1 0@1:0 2@1",
            "5: 1@1:3 2@1:3",
            "6: 0@2 1@1:3",
            "9: 0@2:8 1@2 3@1",
        ]
        .map(view);
        let last = &views[views.len() - 1];
        for (index, base) in views.iter().enumerate() {
            // As a coordinator tells it, which knows who has changed since then and no more.
            let mut since = base.change_to(last);
            for between in &views[index..] {
                since.changed.extend(between.change_to(last).changed);
            }
            for between in &views[index..] {
                let mut follows = between.clone();
                assert_eq!(follows.change(&since), Ok(()));
                assert_eq!(follows, *last, "from {}", between.generation);
            }
            for before in &views[..index] {
                let mut follows = before.clone();
                let behind = Behind {
                    has: before.generation,
                    base: base.generation,
                };
                assert_eq!(follows.change(&since), Err(behind));
                assert_eq!(follows, *before, "nothing is changed");
            }
        }
    }

    #[test]
    fn who_has_nothing_follows_no_change_and_who_is_later_none_that_is_old() {
        let change = view("1:").change_to(&view("3: 0@1:0"));
        let behind = Behind {
            has: Generation(0),
            base: Generation(1),
        };
        assert_eq!(View::default().change(&change), Err(behind));
        let mut later = view("4: 1@1");
        assert_eq!(later.follow(&OrderedView::Since(change)), Ok(false));
        assert_eq!(later.follow(&OrderedView::Whole(view("3: 0@1"))), Ok(false));
        assert_eq!(later, view("4: 1@1"));
        let again = OrderedView::Whole(view("4: 1@1"));
        assert_eq!(later.follow(&again), Ok(true), "it is the present one");
        let other = OrderedView::Whole(view("4: 1@1 2@1"));
        assert_eq!(later.follow(&other), Ok(false), "it is another's");
        assert_eq!(later, view("4: 1@1"));
        let next = OrderedView::Whole(view("5: 2@1"));
        assert_eq!(later.follow(&next), Ok(true));
        assert_eq!(later, view("5: 2@1"), "which heals with the next one");
    }
}
