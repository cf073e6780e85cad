//! What a server makes of orders, and says to them: against the coordinator's core.

use tokio::sync::mpsc;
use tradewind_common::spec::RunSpec;
use tradewind_common::{GroupId, Incarnation, Rank, ServerId, TensorKind, TensorSpec};
use tradewind_core::ReplyTo;
use tradewind_core::coordinator::Coordinator;
use tradewind_core::order::Server;
use tradewind_core::output::Output;
use tradewind_core::run::Join;

use super::*;
use crate::budget::Budget;
use crate::clock::Origin;
use crate::limits::Notices;
use crate::rpc::order::{encode_order, followed_from_wire, report_from_wire};
use crate::surroundings::Surroundings;

/// More orders than anything here takes.
const ORDERS_MAX: usize = 40;

/// How many orders were given: those that said all of a view, and those that said what had changed.
type Given = (usize, usize);

/// A coordinator, and servers by number, which hear and are heard at once.
struct World {
    core: Coordinator,
    servers: Vec<Registry>,
    run: RunId,
    sizes: Vec<u32>,
    now_ms: u64,
    asked: u64,
    given: Vec<v1::ServerOrder>,
    /// What shards say that nobody asked for goes unheard.
    _reports: Vec<Reports>,
}

impl World {
    /// Servers that have registered for a run of groups of these sizes, with a shard for each.
    fn new(servers: u32, sizes: &[u32]) -> Self {
        let (registries, reports) = (0..servers).map(|id| registry(ServerId(id))).unzip();
        let mut world = Self {
            core: Coordinator::new(servers, false, 1_000),
            servers: registries,
            run: RunId::new("r").unwrap(),
            sizes: sizes.to_vec(),
            now_ms: 0,
            asked: 0,
            given: Vec::new(),
            _reports: reports,
        };
        (0..servers).for_each(|id| world.register(id));
        world
    }

    fn register(&mut self, server: u32) {
        let here = Server {
            incarnation: Incarnation(1),
            address: format!("here:{server}"),
            host: "here".into(),
        };
        self.core
            .register(ServerId(server), here, self.now_ms)
            .unwrap();
    }

    fn spec(&self) -> RunSpec {
        let weight = TensorSpec {
            name: "weight".into(),
            shape: vec![8],
            kind: TensorKind::Parameter,
        };
        RunSpec::plain(self.sizes.clone(), vec![weight], 16)
    }

    fn ask(&mut self) -> ReplyTo {
        self.asked += 1;
        ReplyTo(self.asked)
    }

    /// The first rank of a group joins.
    fn join(&mut self, group: u32) {
        let join = Join {
            group: GroupId(group),
            rank: Rank(0),
            life: 1,
            store_address: String::new(),
        };
        let (run, spec, to) = (self.run.clone(), self.spec(), self.ask());
        self.core.join(run, spec, join, to, self.now_ms);
    }

    /// A generation in which no group changes: another one may join.
    fn attach(&mut self) {
        let (run, to) = (self.run.clone(), self.ask());
        self.core.attach(&run, &[1], to, self.now_ms);
    }

    fn generation(&self) -> Generation {
        self.core.run(&self.run).unwrap().generation()
    }

    /// Orders are given and obeyed until there are none.
    async fn settle(&mut self) -> Given {
        let (mut whole, mut changed) = (0, 0);
        while let Some(output) = self.core.poll_output() {
            let Output::Order(order) = output else {
                continue;
            };
            match order.view {
                OrderedView::Whole(_) => whole += 1,
                OrderedView::Since(_) => changed += 1,
            }
            assert!(whole + changed <= ORDERS_MAX, "it has no end: {order:?}");
            let wire = encode_order(&order, 1);
            self.given.push(wire.clone());
            self.obey(order.server, wire).await;
        }
        (whole, changed)
    }

    /// A server obeys, and is heard; what it says that it follows.
    async fn obey(&mut self, server: ServerId, order: v1::ServerOrder) -> Option<Generation> {
        let reports = obey_wire(&self.servers[server.0 as usize], order).await;
        let mut follows = None;
        for report in reports.unwrap() {
            match report.report.unwrap() {
                Body::Followed(followed) => {
                    let (run, generation) = followed_from_wire(&followed).unwrap();
                    follows = generation;
                    self.core.followed(server, &run, generation).unwrap();
                }
                Body::Acknowledge(seen) => {
                    let (run, report) = report_from_wire(seen).unwrap();
                    self.core.report(server, &run, report, self.now_ms).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        follows
    }

    /// A server and its shards follow what the coordinator has decided, whatever they were told of it.
    async fn check(&self, server: u32) {
        let server = &self.servers[server as usize];
        let view = self.core.run(&self.run).unwrap().view();
        assert_eq!(server.view(&self.run), view);
        for (shard, handle) in server.shards(&self.run) {
            let status = handle.status(false).await.unwrap();
            assert_eq!(status.generation, view.generation.0, "shard {shard}");
        }
    }
}

fn registry(server: ServerId) -> (Registry, Reports) {
    let (reports, heard) = mpsc::channel(64);
    let origin = Origin::start();
    let registry = Registry::new(Surroundings {
        server,
        origin,
        credentials: Credentials::default(),
        folder: None,
        reports,
        arriving: Budget::new(Arc::new(Notices::new(server, origin, None))),
    });
    (registry, heard)
}

/// In generation 0 no group is together, and a server that registers is told of the run all the same.
#[tokio::test]
async fn an_order_of_a_run_in_which_nobody_is_together_is_obeyed_once() {
    let mut world = World::new(1, &[2]);
    world.join(0);
    world.register(0);
    assert_eq!(world.generation(), Generation(0));
    assert_eq!(world.settle().await, (1, 0));
}

#[tokio::test]
async fn what_has_changed_is_followed_and_all_is_asked_for_where_it_cannot_be() {
    let mut world = World::new(1, &[1; 5]);
    world.join(0);
    assert!(world.settle().await.0 > 0);
    let first = world.given[0].clone();
    world.join(1);
    let (whole, changed) = world.settle().await;
    assert!(whole == 0 && changed > 0);
    world.check(0).await;

    // An order that comes again changes nothing, and one that is late is not obeyed.
    let last = world.given.last().unwrap().clone();
    let follows = Some(world.generation());
    assert_eq!(world.obey(ServerId(0), last).await, follows);
    assert_eq!(world.obey(ServerId(0), first).await, None);
    assert_eq!(world.settle().await, (0, 0));
    world.check(0).await;

    // A connection breaks: all is told once.
    world.register(0);
    assert_eq!(world.settle().await, (1, 0));
    world.join(2);
    assert_eq!(world.settle().await.0, 0);

    // A server that knows nothing of the run, of which the coordinator does not hear.
    world.servers[0].keep_only(&[].into()).await;
    world.join(3);
    assert!(world.settle().await.0 > 0);
    world.check(0).await;
    world.join(4);
    assert_eq!(world.settle().await.0, 0);
    world.check(0).await;
}

#[tokio::test]
async fn a_shard_that_is_new_at_a_server_is_told_all_there() {
    let mut world = World::new(2, &[1; 4]);
    (0..3).for_each(|group| world.join(group));
    world.settle().await;
    assert_eq!(world.servers[1].shards(&world.run).len(), 1);
    // The other one takes its place when it is given up.
    world.core.server_lost(ServerId(0), Incarnation(1), 0);
    let mut whole = 0;
    while world.servers[1].shards(&world.run).len() == 1 {
        world.now_ms += 500;
        assert!(world.now_ms < 600_000, "nobody takes its place");
        let beat = (ServerId(1), Incarnation(1), world.now_ms);
        world.core.server_beat(beat.0, beat.1, beat.2).unwrap();
        world.core.tick(world.now_ms);
        whole += world.settle().await.0;
    }
    assert_eq!(whole, 0, "the coordinator knows what it follows");
    world.check(1).await;
    world.join(3);
    assert_eq!(world.settle().await.0, 0);
    world.check(1).await;
}

/// Without a folder a coordinator that is started again knows nothing of the run before, and servers that were not go on
/// from it: there are two views of one generation.
#[tokio::test]
async fn another_view_of_the_generation_that_is_followed_is_not_taken_for_it() {
    let mut world = World::new(1, &[1; 4]);
    for group in 0..3 {
        world.join(group);
        world.settle().await;
    }
    let followed = world.servers[0].view(&world.run);
    world.core = Coordinator::new(1, false, 1_000);
    world.register(0);
    world.join(3);
    world.settle().await;
    assert!(world.generation() < followed.generation);
    while world.generation() < followed.generation {
        world.attach();
        world.settle().await;
        assert_eq!(world.servers[0].view(&world.run), followed);
    }
    world.attach();
    assert!(world.settle().await.0 > 0);
    world.check(0).await;
    world.attach();
    assert_eq!(world.settle().await.0, 0);
    world.check(0).await;
}
