//! What orders say of membership: to whom follows a view what has changed since, to all others everything.

use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::{Generation, GroupId, Incarnation, Rank, RunId, ServerId};

use super::harness::{SERVER_LEASE_MS, at};
use super::spec;
use crate::ReplyTo;
use crate::answer::Refused;
use crate::coordinator::Coordinator;
use crate::output::Output;
use crate::run::{Caller, Join};
use crate::view::{OrderedView, View};

const SERVER: ServerId = ServerId(0);

/// A coordinator, and one server with what it has followed.
struct World {
    core: Coordinator,
    run: RunId,
    groups: usize,
    view: View,
    replies: u64,
}

impl World {
    fn new(groups: usize) -> Self {
        let mut core = Coordinator::new(1, true, SERVER_LEASE_MS);
        core.register(SERVER, at(SERVER, Incarnation(1)), 0)
            .unwrap();
        Self {
            core,
            run: RunId::new("r").unwrap(),
            groups,
            view: View::default(),
            replies: 0,
        }
    }

    fn spec(&self) -> RunSpec {
        spec(&vec![1; self.groups], ConsistencySpec::Async)
    }

    fn join(&mut self, group: u32) {
        self.replies += 1;
        let join = Join {
            group: GroupId(group),
            rank: Rank(0),
            life: self.replies,
            store_address: String::new(),
        };
        let (run, spec, to) = (self.run.clone(), self.spec(), ReplyTo(self.replies));
        self.core.join(run, spec, join, to, 0);
    }

    fn lose(&mut self, group: u32, life: u64) {
        let caller = Caller {
            group: GroupId(group),
            incarnation: Incarnation(life),
            rank: Rank(0),
        };
        self.core.rank_lost(&self.run.clone(), caller, 0);
    }

    fn followed(&mut self, generation: Option<Generation>) -> Result<(), Refused> {
        self.core.followed(SERVER, &self.run, generation)
    }

    /// What the last order says, once the server has tried to follow it: the number of groups that it names and
    /// whether those are all; or that it leaves a gap. It is not said what was followed.
    fn ordered(&mut self) -> String {
        let mut last = None;
        while let Some(output) = self.core.poll_output() {
            if let Output::Order(order) = output {
                last = Some(order.view);
            }
        }
        let Some(told) = last else {
            return "nothing".into();
        };
        let how = match &told {
            OrderedView::Whole(_) => "whole",
            OrderedView::Since(_) => "changed",
        };
        if self.view.follow(&told).is_err() {
            return format!("{} {how}, a gap", told.named());
        }
        assert_eq!(self.view, self.core.run(&self.run).unwrap().view());
        format!("{} {how}", told.named())
    }

    fn says_so(&mut self) {
        let generation = self.view.generation;
        self.followed(Some(generation)).unwrap();
    }
}

#[test]
fn say_what_has_changed_since_what_the_server_follows() {
    let mut world = World::new(8);
    (0..5).for_each(|group| world.join(group));
    assert_eq!(world.ordered(), "5 whole");
    world.join(5);
    assert_eq!(
        world.ordered(),
        "6 whole",
        "it has not said that it follows"
    );
    world.says_so();
    let base = world.view.generation;
    world.join(6);
    assert_eq!(world.ordered(), "1 changed");
    // Until it is known to be followed everything since is said again.
    world.lose(2, 1);
    assert_eq!(world.ordered(), "2 changed");
    world.join(2);
    world.lose(3, 1);
    assert_eq!(world.ordered(), "3 changed");
    world.says_so();
    world.join(3);
    assert_eq!(world.ordered(), "1 changed", "in another life");
    // A word that comes late takes nothing back.
    world.followed(Some(base)).unwrap();
    world.join(7);
    assert_eq!(world.ordered(), "2 changed");
}

#[test]
fn say_all_where_it_is_not_known_what_is_followed() {
    let mut world = World::new(4);
    world.join(0);
    world.ordered();
    world.says_so();
    let former = world.view.generation;
    world.join(1);
    assert_eq!(world.ordered(), "1 changed");

    // A connection breaks, and is made again.
    let again = at(SERVER, Incarnation(1));
    world.core.register(SERVER, again, 0).unwrap();
    assert_eq!(world.ordered(), "2 whole");

    // Another life has followed nothing, and the last word of the former one comes late. Group 0 forms again: what it
    // was to create is gone with the server.
    let next = at(SERVER, Incarnation(2));
    world.core.register(SERVER, next, 0).unwrap();
    world.view = View::default();
    world.followed(Some(former)).unwrap();
    assert_eq!(world.ordered(), "2 changed, a gap");
    assert_eq!(world.view, View::default(), "it changes nothing");
    world.followed(None).unwrap();
    assert_eq!(world.ordered(), "1 whole");
    world.says_so();
    world.join(2);
    assert_eq!(world.ordered(), "1 changed");

    // Nobody follows what was not ordered.
    for ahead in [world.view.generation.next(), Generation(u64::MAX)] {
        let refused = world.followed(Some(ahead)).unwrap_err();
        assert!(
            matches!(refused, Refused::GenerationAhead { .. }),
            "{refused:?}"
        );
    }

    // Another coordinator knows nothing of it; what was followed of the one before is no base.
    let (durable, before) = (world.core.durable(), world.view.generation);
    world.core = Coordinator::recover(1, true, SERVER_LEASE_MS, durable, 0);
    let again = at(SERVER, Incarnation(2));
    world.core.register(SERVER, again, 0).unwrap();
    assert_eq!(world.ordered(), "2 whole");
    world.followed(Some(before)).unwrap();
    world.join(3);
    assert_eq!(world.ordered(), "3 whole");
    world.says_so();
    world.lose(3, 1);
    assert_eq!(world.ordered(), "1 changed");
}

#[test]
fn say_all_of_another_run_of_the_name() {
    let mut world = World::new(2);
    world.join(0);
    world.ordered();
    world.says_so();
    world.lose(0, 1);
    assert_eq!(world.ordered(), "1 changed");
    world.says_so();
    let former = world.view.generation;
    let (run, to) = (world.run.clone(), ReplyTo(0));
    world.core.remove(&run, to, 0);
    assert!(world.core.run(&run).is_err(), "nobody is there any more");
    world.join(0);
    // The server forgets the former one, and its last word of that comes late.
    world.view = View::default();
    world.followed(Some(former)).unwrap();
    assert_eq!(world.ordered(), "1 whole");
    world.says_so();
    world.join(1);
    assert_eq!(world.ordered(), "1 changed");
}
