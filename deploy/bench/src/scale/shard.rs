//! The shard's core: what a push costs under each consistency policy, what is kept of a group, and what a
//! lease of data costs in the ledger.

use std::sync::Arc;

use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::data::{Chunking, Ledger};
use tradewind_common::holders::Holders;
use tradewind_common::policy::{MergeSpec, Policies};
use tradewind_common::schedule::Seen;
use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, ServerId, ShardId};
use tradewind_core::ReplyTo;
use tradewind_core::askers::Wants;
use tradewind_core::block::Gradient;
use tradewind_core::shard::{Action, Output, Push, Shard};
use tradewind_core::view::{OrderedView, Rights, View, ViewChange};

use super::Figure;
use crate::model::{Form, Model, OptimizerName};

/// Values of a block: so few that what is done about groups is what takes time.
const VALUES: usize = 16;

/// Pushes that are measured at least.
const PUSHES_MIN: u32 = 10_000;

/// Blocks of the shard that follows a view.
const BLOCKS: usize = 100;

const LIFE: Incarnation = Incarnation(1);

const CREATOR: GroupId = GroupId(0);

pub(super) fn measure(groups: u32) -> Vec<Figure> {
    let merged = Policies {
        merge: Some(MergeSpec {
            min_groups: groups.div_ceil(2),
            grace_ms_max: 1,
            wait_ms_max: 600_000,
        }),
        ..Policies::default()
    };
    let backups = Policies {
        backup_groups: groups / 10,
        ..Policies::default()
    };
    let plain = Policies::default();
    let bounded = ConsistencySpec::Bounded { staleness_bound: 3 };
    let push =
        |consistency, policies: &Policies| World::new(groups, 1, consistency, policies).pushes();
    vec![
        Figure::microseconds("push, async", push(ConsistencySpec::Async, &plain)),
        Figure::microseconds("push, bounded", push(bounded, &plain)),
        Figure::microseconds("push, sync", push(ConsistencySpec::Sync, &plain)),
        Figure::microseconds("push, backup groups", push(ConsistencySpec::Sync, &backups)),
        Figure::microseconds("push, merge window", push(ConsistencySpec::Async, &merged)),
        Figure::bytes("table: a group and block", table(groups)),
        Figure::microseconds("new view, 100 blocks", follow(groups, true)),
        Figure::microseconds("the same, told whole", follow(groups, false)),
        Figure::microseconds("lease of data", lease(groups)),
    ]
}

/// A run of groups of one rank, on one server.
fn run(groups: u32, blocks: usize, consistency: ConsistencySpec, policies: &Policies) -> RunSpec {
    let model = Model {
        clients: groups,
        bytes: blocks * VALUES * 4,
        block_bytes: VALUES * 4,
        connections: 1,
        optimizer: OptimizerName::Sgd,
        up: Form::None,
        down: Form::None,
        topk_fraction: None,
        group: false,
        step_seconds: None,
    };
    RunSpec {
        consistency,
        policies: *policies,
        ..model.spec()
    }
}

/// A shard, and groups that push to it as soon as they may.
struct World {
    shard: Shard,
    /// The clock at which each group pushes next.
    clocks: Vec<Clock>,
    /// Whose contribution waits.
    waits: Vec<bool>,
    generation: Generation,
    random: u64,
    now_us: u64,
}

impl World {
    fn new(groups: u32, blocks: usize, consistency: ConsistencySpec, policies: &Policies) -> Self {
        let spec = run(groups, blocks, consistency, policies);
        let layout = spec.layout().expect("it has parameters");
        let all: Vec<BlockId> = layout.blocks.iter().map(|block| block.id).collect();
        let shard = Shard::new(
            ServerId(0),
            ShardId(0),
            Arc::new(spec),
            &layout,
            all.clone(),
        );
        let mut world = Self {
            shard,
            clocks: vec![Clock(0); groups as usize],
            waits: vec![false; groups as usize],
            generation: Generation(0),
            random: 1,
            now_us: 0,
        };
        world.follow(0, Some(CREATOR));
        for block in all {
            let push = world.frame(CREATOR, block, Action::Create(vec![1.0; VALUES]));
            world.shard.handle_push(push, ReplyTo(0), 0);
        }
        world.follow(groups, None);
        world.drain();
        world
    }

    /// The only holder follows a view with so many groups.
    fn follow(&mut self, live: u32, creator: Option<GroupId>) {
        self.generation = self.generation.next();
        let start = |group| (GroupId(group), (LIFE, Clock(0)));
        let joined = creator.map(|group| (group, LIFE));
        let view = View {
            generation: self.generation,
            live: (0..live).map(start).collect(),
            joined: joined.into_iter().collect(),
            creator: joined,
            groups: self.clocks.len() as u32,
        };
        let alone = Holders::alone(ServerId(0));
        self.shard.handle_order(view, &alone, self.now_us);
    }

    /// The only holder is told that a group is gone.
    fn lose(&mut self, group: GroupId) {
        let base = self.generation;
        self.generation = base.next();
        let change = ViewChange {
            base,
            generation: self.generation,
            changed: [(group, Rights::Out)].into(),
            creator: None,
            groups: self.clocks.len() as u32,
        };
        let (told, alone) = (OrderedView::Since(change), Holders::alone(ServerId(0)));
        let followed = self.shard.handle_ordered(told, &alone, self.now_us);
        followed.expect("it has followed the view before");
    }

    fn frame(&self, group: GroupId, block: BlockId, action: Action) -> Push {
        Push {
            group,
            incarnation: LIFE,
            clock: self.clocks[group.0 as usize],
            block,
            wants: Wants::Values,
            action,
        }
    }

    /// Microseconds a push, in rounds in which all groups push in another order; who waits is left out.
    fn pushes(&mut self) -> f64 {
        let mut order: Vec<u32> = (0..self.clocks.len() as u32).collect();
        self.round(&mut order);
        let (mut pushed, mut microseconds) = (0, 0.0);
        while pushed < PUSHES_MIN {
            self.shuffle(&mut order);
            let watch = Stopwatch::start();
            pushed += self.round(&mut order);
            microseconds += watch.elapsed().as_secs_f64() * 1e6;
        }
        microseconds / f64::from(pushed)
    }

    fn round(&mut self, order: &mut [u32]) -> u32 {
        let mut pushed = 0;
        for group in order {
            if self.waits[*group as usize] {
                continue;
            }
            let gradient = Gradient {
                values: vec![1.0; VALUES],
                samples: 1,
                pulled_version: 0,
                lineage: Generation(0),
                seen: Seen::default(),
                norms: Vec::new(),
            };
            let push = self.frame(
                GroupId(*group),
                BlockId(0),
                Action::Contribute(Some(gradient)),
            );
            self.waits[*group as usize] = true;
            self.now_us += 1;
            self.shard
                .handle_push(push, ReplyTo(u64::from(*group)), self.now_us);
            if self
                .shard
                .poll_timeout()
                .is_some_and(|at_us| at_us <= self.now_us)
            {
                self.shard.handle_timeout(self.now_us);
            }
            self.drain();
            pushed += 1;
        }
        pushed
    }

    /// Groups go on where they are told to.
    fn drain(&mut self) {
        while let Some(output) = self.shard.poll_output() {
            let Output::Reply { to, result } = output else {
                continue;
            };
            let reply = result.expect("nothing is wrong with it");
            let group = to.0 as usize;
            if std::mem::take(&mut self.waits[group]) {
                self.clocks[group] = reply.clock.tick().max(reply.next);
            }
        }
    }

    /// Fisher and Yates, by a linear congruential generator (Knuth, "The Art of Computer Programming",
    /// volume 2, section 3.3.4, line 26 of table 1).
    fn shuffle(&mut self, order: &mut [u32]) {
        for last in (1..order.len()).rev() {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            order.swap(last, (self.random >> 33) as usize % (last + 1));
        }
    }
}

/// Bytes that a block keeps of a group, when each has pushed at clocks of its own.
fn table(groups: u32) -> f64 {
    let plain = Policies::default();
    let mut world = World::new(groups, 1, ConsistencySpec::Async, &plain);
    world.pushes();
    let bytes = world.shard.blocks().map(|(_, block)| block.table_bytes());
    bytes.sum::<usize>() as f64 / f64::from(groups)
}

/// Microseconds in which a shard of many blocks follows a view of which one group is gone: told what has changed, as
/// by the orders of a coordinator that knows what the server follows, or all of it.
fn follow(groups: u32, changed: bool) -> f64 {
    let plain = Policies::default();
    let mut world = World::new(groups, BLOCKS, ConsistencySpec::Async, &plain);
    let watch = Stopwatch::start();
    match changed {
        true => world.lose(GroupId(groups - 1)),
        false => world.follow(groups - 1, None),
    }
    watch.elapsed().as_secs_f64() * 1e6
}

/// Microseconds a lease, while each group has one chunk and asks for the next.
fn lease(groups: u32) -> f64 {
    let mut ledger = Ledger::new(Chunking {
        epoch_samples: 1 << 40,
        chunk_samples: 16,
        sets: 1,
    });
    let mut held: Vec<Option<u64>> = vec![None; groups as usize];
    let mut ask = |ledger: &mut Ledger, group: u32| {
        let owner = (GroupId(group), LIFE);
        let had = &mut held[group as usize];
        let holds: Vec<u64> = had.iter().copied().collect();
        let chunk = ledger
            .lease(owner, &holds, |_| vec![0])
            .expect("it has one");
        ledger.finish(owner, &holds, |_| 16);
        *had = Some(chunk.number);
    };
    (0..groups).for_each(|group| ask(&mut ledger, group));
    let asked = PUSHES_MIN.min(20 * groups).max(1000);
    let watch = Stopwatch::start();
    for number in 0..asked {
        ask(&mut ledger, number % groups);
    }
    watch.elapsed().as_secs_f64() * 1e6 / f64::from(asked)
}
