//! The coordinator's core: what a rank costs that joins, is alive, asks for data, is lost and comes back.

use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, GroupId, Incarnation, Rank, RunId, ServerId, ShardId};
use tradewind_core::ReplyTo;
use tradewind_core::answer::Answer;
use tradewind_core::coordinator::Coordinator;
use tradewind_core::mark::Lacking;
use tradewind_core::order::{Order, Server, ShardReport};
use tradewind_core::output::Output;
use tradewind_core::run::{Beat, Caller, Join};
use tradewind_core::view::Acknowledge;

use super::Figure;
use crate::model::{Form, Model, OptimizerName};

/// Groups that join, are lost and come back while it is measured.
const SAMPLED: u32 = 50;

/// Servers of a large fleet.
const SERVERS: u32 = 32;

/// Far more than a measurement lasts.
const LEASE_MS: u64 = 60_000;

/// How long clock 0 waits for groups.
const GRACE_MS: u64 = 1;

/// The only process of each rank.
const LIFE: u64 = 1;

pub(super) fn measure(groups: u32) -> Vec<Figure> {
    let mut small = World::new(1, groups);
    let (fill, sampled) = small.split();
    small.join(fill);
    let joined = small.timed(|world| world.join(sampled.clone()));
    let mut large = World::new(SERVERS, groups);
    let (fill, sampled) = large.split();
    large.join(fill);
    let joined_large = large.timed(|world| world.join(sampled.clone()));
    let beats = small.timed(|world| sampled.clone().for_each(|group| world.beat(group)));
    let leases = small.timed(|world| sampled.clone().for_each(|group| world.lease(group)));
    let ticks = small.timed(|world| sampled.clone().for_each(|_| world.tick()));
    let lost = small.timed(|world| {
        for group in sampled.clone() {
            world.lose(group);
            world.join(group..group + 1);
        }
    });
    let each = f64::from(sampled.end - sampled.start);
    vec![
        Figure::microseconds("join", joined.microseconds / each),
        Figure::microseconds("join, 32 servers", joined_large.microseconds / each),
        Figure::microseconds("heartbeat", beats.microseconds / each),
        Figure::microseconds("lease of data", leases.microseconds / each),
        Figure::microseconds("look at leases", ticks.microseconds / each),
        Figure::microseconds("loss and rejoin", lost.microseconds / each),
        Figure::bytes("join: written", joined.counts.written / each),
        Figure::count("join: orders a server", joined.counts.orders / each),
        Figure::count("join: groups in an order", joined.counts.groups_in_orders()),
        Figure::count("join: groups looked at", joined.counts.looked_at / each),
        Figure::bytes("loss and rejoin: written", lost.counts.written / each),
        Figure::count(
            "loss and rejoin: groups looked at",
            lost.counts.looked_at / each,
        ),
        Figure::count("look at leases: groups", ticks.counts.looked_at / each),
    ]
}

/// What was counted while something was done.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Bytes of state.
    written: f64,
    /// To a server.
    orders: f64,
    /// Groups that were named in them.
    named: f64,
    /// Groups that the coordinator has looked at.
    looked_at: f64,
}

impl Counts {
    fn groups_in_orders(&self) -> f64 {
        self.named / self.orders.max(1.0)
    }
}

/// How long something took, and what was counted.
struct Timed {
    microseconds: f64,
    counts: Counts,
}

/// A coordinator, with servers that follow at once, and ranks that ask as soon as they may.
struct World {
    core: Coordinator,
    run: RunId,
    servers: u32,
    spec: RunSpec,
    now_ms: u64,
    replies: u64,
    /// By group.
    lives: Vec<Incarnation>,
    answered: Vec<(ReplyTo, Answer)>,
    /// The first clock is.
    released: bool,
    counts: Counts,
}

impl World {
    fn new(servers: u32, groups: u32) -> Self {
        let mut core = Coordinator::new(servers, false, LEASE_MS);
        for server in 0..servers {
            let about = Server {
                incarnation: Incarnation(1),
                address: format!("host{server}:4000"),
                host: format!("host{server}"),
            };
            let registered = core.register(ServerId(server), about, 0);
            registered.expect("the fleet expects it");
        }
        Self {
            core,
            run: RunId::new("scale").expect("a name"),
            servers,
            spec: spec(servers, groups),
            now_ms: 0,
            replies: 0,
            lives: vec![Incarnation(0); groups as usize],
            answered: Vec::new(),
            released: false,
            counts: Counts::default(),
        }
    }

    /// The groups that fill the run, and those that are measured.
    fn split(&self) -> (std::ops::Range<u32>, std::ops::Range<u32>) {
        let groups = self.lives.len() as u32;
        let sampled = SAMPLED.min(groups.div_ceil(2));
        (0..groups - sampled, groups - sampled..groups)
    }

    fn timed(&mut self, work: impl FnOnce(&mut Self)) -> Timed {
        self.counts = Counts::default();
        let looked_at = self.core.groups_looked_at();
        let watch = Stopwatch::start();
        work(self);
        let microseconds = watch.elapsed().as_secs_f64() * 1e6;
        self.counts.looked_at = (self.core.groups_looked_at() - looked_at) as f64;
        Timed {
            microseconds,
            counts: self.counts,
        }
    }

    fn to(&mut self) -> ReplyTo {
        self.replies += 1;
        ReplyTo(self.replies)
    }
}

impl World {
    /// Groups of one rank join one after the other, and ask to push.
    fn join(&mut self, groups: std::ops::Range<u32>) {
        for group in groups {
            let to = self.to();
            let join = Join {
                group: GroupId(group),
                rank: Rank(0),
                life: LIFE,
                store_address: format!("node{group}:29500"),
            };
            let (run, spec) = (self.run.clone(), self.spec.clone());
            self.core.join(run, spec, join, to, self.now_ms);
            self.settle();
            let Some(Answer::Joined { incarnation, .. }) = self.answer(to) else {
                panic!("group {group} has not joined");
            };
            self.lives[group as usize] = incarnation;
            self.asks_to_push(group);
        }
    }

    /// It asks until it may push; who is told to create says that it has.
    fn asks_to_push(&mut self, group: u32) {
        let (run, caller) = (self.run.clone(), self.caller(group));
        let mut creates = false;
        loop {
            let to = self.to();
            self.core
                .await_ready(&run, caller, creates, to, self.now_ms);
            self.settle();
            if !self.released {
                // Clock 0 is waited for no longer.
                self.released = creates;
                self.now_ms += 2 * GRACE_MS;
                self.tick();
            }
            match self.answer(to) {
                Some(Answer::Create) => creates = true,
                Some(Answer::Ready { .. }) => return,
                other => panic!("group {group} may not push: {other:?}"),
            }
        }
    }

    fn beat(&mut self, group: u32) {
        let (run, caller) = (self.run.clone(), self.caller(group));
        let beat = Beat {
            clock: Clock(1),
            steps_per_second: 1.0,
        };
        let beaten = self.core.heartbeat(&run, caller, beat, self.now_ms);
        beaten.expect("it is there");
    }

    fn lease(&mut self, group: u32) {
        let (run, owner) = (
            self.run.clone(),
            (GroupId(group), self.lives[group as usize]),
        );
        let leased = self.core.lease_chunk(&run, owner, &[], &[]);
        leased.expect("there are data");
        self.settle();
    }

    fn tick(&mut self) {
        self.core.tick(self.now_ms);
        self.settle();
    }

    fn lose(&mut self, group: u32) {
        let (run, caller) = (self.run.clone(), self.caller(group));
        self.core.rank_lost(&run, caller, self.now_ms);
        self.settle();
    }

    fn caller(&self, group: u32) -> Caller {
        Caller {
            group: GroupId(group),
            incarnation: self.lives[group as usize],
            rank: Rank(0),
        }
    }

    fn answer(&mut self, to: ReplyTo) -> Option<Answer> {
        let at = self.answered.iter().position(|(of, _)| *of == to)?;
        Some(self.answered.swap_remove(at).1)
    }

    /// Writes down what was decided, and does what follows from it, until nothing does.
    fn settle(&mut self) {
        loop {
            if self.core.take_dirty() {
                let change = serde_json::to_vec(&self.core.take_change());
                self.counts.written += change.expect("it is plain data").len() as f64;
            }
            let mut outputs = Vec::new();
            while let Some(output) = self.core.poll_output() {
                outputs.push(output);
            }
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Reply(to, answer) => {
                        let answer = answer.expect("nothing that is asked is refused");
                        self.answered.push((to, answer));
                    }
                    Output::Order(order) => self.obey(&order),
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
    }

    /// A server follows an order at once.
    fn obey(&mut self, order: &Order) {
        self.counts.orders += 1.0 / f64::from(self.servers);
        self.counts.named += order.view.named() as f64;
        let (server, followed) = (order.server, Some(order.view.generation()));
        let followed = self.core.followed(server, &self.run, followed);
        followed.expect("the server is there");
        for (number, holders) in order.holders.iter().enumerate() {
            if holders.role(order.server).is_none() {
                continue;
            }
            let report = ShardReport {
                shard: ShardId(number as u32),
                seen: Acknowledge {
                    generation: order.view.generation(),
                    complete: true,
                    ..Acknowledge::default()
                },
                restored: None,
                damaged: Vec::new(),
                lost: Lacking::default(),
                failure: None,
            };
            let (server, run) = (order.server, &self.run);
            let reported = self.core.report(server, run, report, self.now_ms);
            reported.expect("the server is there");
        }
    }
}

/// One block a server, and groups of one rank.
pub(super) fn spec(servers: u32, groups: u32) -> RunSpec {
    let model = Model {
        clients: groups,
        bytes: 64 * servers as usize,
        block_bytes: 64,
        connections: 1,
        optimizer: OptimizerName::Sgd,
        up: Form::None,
        down: Form::None,
        topk_fraction: None,
        group: false,
        step_seconds: None,
    };
    RunSpec {
        start_grace_ms: GRACE_MS,
        ..model.spec()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Unit;
    use super::*;

    fn counted(groups: u32) -> BTreeMap<&'static str, f64> {
        let figures = measure(groups).into_iter();
        let counted = figures.filter(|figure| figure.unit != Unit::Microseconds);
        counted.map(|figure| (figure.what, figure.value)).collect()
    }

    #[test]
    fn what_is_counted_does_not_grow_with_the_run() {
        let (few, many) = (counted(20), counted(1_000));
        for (what, many) in &many {
            let few = few[what];
            assert!(
                *many <= 1.5 * few + 1.0,
                "{what}: {few} of 20 groups, {many} of 1,000"
            );
        }
        assert!(many["join: written"] <= 1_000.0, "{many:?}");
        assert!(many["join: orders a server"] <= 2.0, "{many:?}");
        // The group that joins, and no other.
        assert!(many["join: groups in an order"] <= 2.0, "{many:?}");
        assert!(many["join: groups looked at"] <= 40.0, "{many:?}");
    }
}
