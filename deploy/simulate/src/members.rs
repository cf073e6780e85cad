//! Who takes part: the coordinator's own core decides, as in a real run. Each group is one rank to it, and all
//! shards are one; nobody beats, for whoever dies is reported when that would be noticed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Rank, RunId, ServerId, ShardId};
use tradewind_core::ReplyTo;
use tradewind_core::answer::Answer;
use tradewind_core::askers::Wants;
use tradewind_core::coordinator::{Coordinator, Output};
use tradewind_core::mark::Lacking;
use tradewind_core::order::{Order, Server, ShardReport};
use tradewind_core::run::{Caller, Join};
use tradewind_core::shard::{self, Action, Push, Shard};
use tradewind_core::view::Acknowledge;

use crate::time::Nanos;

/// The only server that the cores know of: what happens there happens at all servers.
const SERVER: ServerId = ServerId(0);

/// Nobody's lease runs out by itself.
const LEASE_MS: u64 = u64::MAX / 4;

/// The coordinator, and the lives of groups.
pub(crate) struct Members {
    coordinator: Coordinator,
    run: RunId,
    spec: RunSpec,
    /// Processes that have joined so far.
    joined: u64,
    calls: u64,
    answers: BTreeMap<ReplyTo, Answer>,
    lives: Vec<Incarnation>,
    /// The newest order, which makes those before it void.
    order: Option<Box<Order>>,
}

impl Members {
    /// The run of `spec`, whose groups have all joined, with its shard.
    pub(crate) fn begin(run: RunId, spec: RunSpec) -> (Self, Shard) {
        let layout = spec.layout().expect("a symbolic model has a layout");
        let blocks = layout.blocks.iter().map(|block| block.id);
        let mut shard = Shard::new(SERVER, ShardId(0), Arc::new(spec.clone()), &layout, blocks);
        let mut coordinator = Coordinator::new(1, false, LEASE_MS);
        let server = Server {
            incarnation: Incarnation(1),
            address: "server".into(),
            host: "host".into(),
        };
        let registered = coordinator.register(SERVER, server, 0);
        registered.expect("the coordinator expects the server");
        let groups = spec.group_sizes.len();
        let mut members = Self {
            coordinator,
            run,
            spec,
            joined: 0,
            calls: 0,
            answers: BTreeMap::new(),
            lives: vec![Incarnation(0); groups],
            order: None,
        };
        let all: Vec<GroupId> = (0..groups as u32).map(GroupId).collect();
        members.enter(&all, &mut shard, 0);
        (members, shard)
    }

    /// The life of a group.
    pub(crate) fn life(&self, group: GroupId) -> Incarnation {
        self.lives[group.0 as usize]
    }

    /// It is noticed that groups are gone.
    pub(crate) fn lose(&mut self, groups: &[GroupId], shard: &mut Shard, now: Nanos) {
        for group in groups {
            let caller = self.caller(*group);
            let run = &self.run;
            self.coordinator.rank_lost(run, caller, now / 1_000_000);
            self.collect();
        }
        self.settle(shard, now);
    }

    /// A group that was lost joins again. Answers its first clock.
    pub(crate) fn come_back(&mut self, group: GroupId, shard: &mut Shard, now: Nanos) -> Clock {
        let starts = self.enter(&[group], shard, now);
        starts[0]
    }

    /// Groups join, create the values if there are none, and are told their first clocks.
    fn enter(&mut self, groups: &[GroupId], shard: &mut Shard, now: Nanos) -> Vec<Clock> {
        let now_ms = now / 1_000_000;
        let mut calls = Vec::with_capacity(groups.len());
        for group in groups {
            let to = self.call();
            self.joined += 1;
            let join = Join {
                group: *group,
                rank: Rank(0),
                life: self.joined,
                store_address: String::new(),
            };
            let (run, spec) = (self.run.clone(), self.spec.clone());
            self.coordinator.join(run, spec, join, to, now_ms);
            calls.push(to);
            self.collect();
        }
        self.settle(shard, now);
        for (group, to) in groups.iter().zip(&calls) {
            match self.answers.remove(to) {
                Some(Answer::Joined { incarnation, .. }) => {
                    self.lives[group.0 as usize] = incarnation;
                }
                other => unreachable!("group {group} does not join: {other:?}"),
            }
        }
        let mut starts: Vec<Option<Clock>> = vec![None; groups.len()];
        let mut created = vec![false; groups.len()];
        while starts.contains(&None) {
            let waiting = (0..groups.len()).filter(|at| starts[*at].is_none());
            let waiting: Vec<usize> = waiting.collect();
            let mut calls = Vec::with_capacity(waiting.len());
            for at in &waiting {
                let (to, caller) = (self.call(), self.caller(groups[*at]));
                let created = created[*at];
                let run = &self.run;
                self.coordinator
                    .await_ready(run, caller, created, to, now_ms);
                calls.push(to);
                self.collect();
            }
            self.settle(shard, now);
            for (at, to) in waiting.iter().zip(&calls) {
                if let Some(Answer::Create) = self.answers.get(to) {
                    self.create(groups[*at], shard, now);
                    created[*at] = true;
                    let (again, caller) = (self.call(), self.caller(groups[*at]));
                    self.coordinator
                        .await_ready(&self.run, caller, true, again, now_ms);
                    self.settle(shard, now);
                    if let Some(Answer::Ready { start, .. }) = self.answers.remove(&again) {
                        starts[*at] = Some(start);
                    }
                }
            }
            for (at, to) in waiting.iter().zip(&calls) {
                if let Some(Answer::Ready { start, .. }) = self.answers.remove(to) {
                    starts[*at] = Some(start);
                }
            }
        }
        starts.into_iter().flatten().collect()
    }

    /// The symbolic values.
    fn create(&mut self, group: GroupId, shard: &mut Shard, now: Nanos) {
        let push = Push {
            group,
            incarnation: self.life(group),
            clock: Clock(0),
            block: BlockId(0),
            wants: Wants::Nothing,
            action: Action::Create(vec![0.0]),
        };
        shard.handle_push(push, ReplyTo(0), now / 1_000);
        while let Some(output) = shard.poll_output() {
            if let shard::Output::Report(seen) = output {
                self.report(seen, now);
            }
        }
    }

    /// Passes orders to the shard and its acknowledgements back, until both have nothing more to say.
    fn settle(&mut self, shard: &mut Shard, now: Nanos) {
        self.collect();
        while let Some(order) = self.order.take() {
            let followed = shard.handle_ordered(order.view, &order.holders[0], now / 1_000);
            let seen = followed.expect("it goes on from what was followed");
            let generation = Some(seen.generation);
            let told = self.coordinator.followed(SERVER, &self.run, generation);
            told.expect("the server is registered");
            self.report(seen, now);
            self.collect();
        }
    }

    fn report(&mut self, seen: Acknowledge, now: Nanos) {
        let report = ShardReport {
            shard: ShardId(0),
            seen,
            restored: None,
            damaged: Vec::new(),
            lost: Lacking::default(),
            failure: None,
        };
        let run = &self.run;
        let reported = self
            .coordinator
            .report(SERVER, run, report, now / 1_000_000);
        reported.expect("the server is registered");
    }

    /// Takes in what the coordinator says.
    fn collect(&mut self) {
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                Output::Order(order) => self.order = Some(order),
                Output::Reply(to, Ok(answer)) => drop(self.answers.insert(to, answer)),
                Output::Reply(to, Err(refused)) => unreachable!("call {to:?}: {refused}"),
                Output::Runs(..)
                | Output::Revoked(..)
                | Output::Over(..)
                | Output::Event(_)
                | Output::Manifest(_)
                | Output::DropMarks(_)
                | Output::Delete { .. } => {}
            }
        }
    }

    fn call(&mut self) -> ReplyTo {
        self.calls += 1;
        ReplyTo(self.calls)
    }

    fn caller(&self, group: GroupId) -> Caller {
        Caller {
            group,
            incarnation: self.life(group),
            rank: Rank(0),
        }
    }
}
