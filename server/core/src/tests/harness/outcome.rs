//! What the coordinator wants done after a line, and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::{Generation, ServerId, ShardId};

use super::Harness;
use super::show::{said, show, word};
use crate::answer::Answer;
use crate::order::Order;
use crate::output::Output;
use crate::view::{OrderedView, View};

impl Harness {
    pub(super) fn outputs(&mut self) -> Vec<String> {
        let (mut said_to, mut manifest) = (Vec::new(), None);
        let (mut orders, mut last) = (BTreeMap::<ServerId, Box<Order>>::new(), None);
        let mut before = self.order.clone();
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                Output::Reply(to, answer) => {
                    self.waiting.remove(&to);
                    if answer == Ok(Answer::Create) {
                        self.creators.insert(self.callers[&to].clone());
                    }
                    let answer = said(answer.map(|answer| word(&answer)));
                    said_to.push(format!("{} {answer}", self.callers[&to]).trim().into());
                }
                Output::Order(mut order) => {
                    self.follow(&mut order);
                    last = Some(order.server);
                    self.told.insert(order.server, order.clone());
                    orders.insert(order.server, order);
                }
                Output::Runs(server, runs) => {
                    if !runs.contains(&self.run) && self.told.remove(&server).is_some() {
                        self.views.remove(&server);
                        said_to.push(format!("server {server} forgets"));
                        before = None;
                    }
                }
                Output::Event(_)
                | Output::DropMarks(_)
                | Output::Over(..)
                | Output::Revoked(..) => {}
                Output::Manifest(data) => {
                    manifest = Some(format!("manifest {}", data.number));
                    self.manifests.push(*data);
                }
                Output::Delete { number, .. } => said_to.push(format!("delete {number}")),
            }
        }
        // Together the orders of a generation say what each server has to do.
        let mut changed = last.and_then(|last| orders.remove(&last));
        if let Some(order) = &mut changed {
            for other in orders.values() {
                if other.view.generation() == order.view.generation() {
                    order.capture.extend(&other.capture);
                    order.restore.extend(&other.restore);
                }
            }
        }
        if let Some(order) = &changed {
            self.keeps_the_rules(before.as_deref(), order);
        }
        let shown = changed.as_ref().map(|order| show(before.as_deref(), order));
        self.order = changed.or(before);
        said_to.into_iter().chain(manifest).chain(shown).collect()
    }

    /// A server follows an order, and says so. Then it knows what it would if it had been told all, which the
    /// order says from here on.
    fn follow(&mut self, order: &mut Order) {
        let view = self.views.entry(order.server).or_default();
        view.follow(&order.view)
            .expect("it goes on from what was followed");
        let run = self.coordinator.run(&self.run).unwrap();
        // In generation 0 nobody is there yet, and nothing is followed.
        if view.generation > Generation(0) {
            assert_eq!(*view, run.view(), "server {}", order.server);
        }
        let generation = Some(order.view.generation());
        if let OrderedView::Since(_) = order.view {
            order.view = OrderedView::Whole(view.clone());
        }
        let followed = self
            .coordinator
            .followed(order.server, &self.run, generation);
        assert_eq!(followed, Ok(()));
    }

    /// What must hold of every order, whatever has happened.
    fn keeps_the_rules(&mut self, before: Option<&Order>, order: &Order) {
        for (shard, holders) in (0..).map(ShardId).zip(&order.holders) {
            let servers: BTreeSet<ServerId> = holders.servers().collect();
            assert_eq!(servers.len(), holders.servers().count(), "each once");
            let restores = order.restore.iter().any(|restore| restore.shard == shard);
            if let Some(heir) = holders.heir.filter(|_| order.view.ready()) {
                let has_all = holders.candidates.iter().any(|c| c.server == heir.server);
                assert!(has_all || restores, "the heir of shard {shard} has nothing");
                assert!(holders.primary.is_none(), "while somebody answers");
            }
            let Some(primary) = holders.primary else {
                continue;
            };
            let new = self
                .primaries
                .insert((shard, primary.server, primary.since));
            let Some(before) = before.filter(|before| new && before.view.ready()) else {
                continue;
            };
            let was = &before.holders[shard.0 as usize];
            assert_eq!(
                was.heir,
                Some(primary),
                "nobody answers before it is the heir"
            );
        }
        let view = all_of(order);
        for (group, (life, start)) in &view.live {
            let was = before.and_then(|before| all_of(before).live.get(group));
            let passed = self.saw.is_some_and(|saw| saw >= *start);
            assert!(
                was == Some(&(*life, *start)) || !passed,
                "a clock comes twice"
            );
        }
        let live = view.live.iter().map(|(group, (life, _))| (group, life));
        for (group, life) in view.joined.iter().chain(live) {
            let known = self.lives_seen.entry(*group).or_default();
            assert!(life >= known, "a life comes again");
            *known = *life;
        }
    }

    pub(super) fn events(&mut self) -> String {
        let new = self
            .coordinator
            .recent_events()
            .filter(|e| e.number > self.heard);
        let words: Vec<&str> = new.map(|event| event.kind.word()).collect();
        self.heard = self
            .coordinator
            .recent_events()
            .last()
            .map_or(0, |e| e.number);
        words.join(" ")
    }
}

/// The view of an order that was followed.
pub(super) fn all_of(order: &Order) -> &View {
    match &order.view {
        OrderedView::Whole(view) => view,
        OrderedView::Since(_) => unreachable!("what has followed it says all"),
    }
}
