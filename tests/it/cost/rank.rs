//! A rank that exchanges through proxies, as a worker does.

use std::sync::Arc;
use std::time::Duration;

use tradewind_client::coordinator::{Coordinator, Joined, RankId, Start};
use tradewind_client::core::session::{Identity, Purpose, Session};
use tradewind_client::directory::Directory;
use tradewind_client::exchange::{Exchange, placed};
use tradewind_client::network::Reach;
use tradewind_common::cost::{Flow, Traffic};
use tradewind_common::placement::Placement;
use tradewind_common::schedule;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, GroupId, Incarnation, Layout, Rank, RunId};
use tradewind_proto::auth::Credentials;
use tradewind_tests::cluster::fleet::Fleet;

use super::wire::Proxy;

/// For a slow and noisy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The run of a fleet.
pub(super) const RUN: &str = "counted";

/// A rank of a run.
pub(super) struct Counting<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) spec: &'a RunSpec,
    pub(super) connections: u32,
    pub(super) group: GroupId,
    pub(super) rank: Rank,
}

/// What a rank has seen.
pub(super) struct Seen {
    pub(super) group: GroupId,
    pub(super) rank: Rank,
    pub(super) placement: Placement,
    /// What went to each server and came back.
    pub(super) servers: Vec<Traffic>,
}

impl Counting<'_> {
    /// Joins, creates if it is told to, and pulls; then makes so many exchanges, and counts those.
    pub(super) async fn exchange(self, exchanges: u32) -> Seen {
        let reach = Reach {
            credentials: Credentials::default(),
            retry: PATIENCE,
            connections: self.connections,
        };
        let id = RankId {
            run: RunId::new(RUN).unwrap(),
            group: self.group,
            rank: self.rank,
        };
        let layout = Arc::new(self.spec.check().unwrap());
        let mut coordinator = Coordinator::new(self.fleet.coordinator(), reach.clone());
        let joined = coordinator.join(&id, 1, self.spec, "", Incarnation(0));
        let joined = joined.await.unwrap();
        let mut proxies = Vec::new();
        for address in self.fleet.addresses() {
            proxies.push(Proxy::start(address.clone()).await);
        }
        let open = |start| self.open(&layout, &joined, start, &proxies, (&id, &reach));

        let vector = vec![0.5; layout.elements()];
        let source = |id| vector[layout.block(id).unwrap().elements.clone()].into();
        let mut created = false;
        let start = loop {
            let ready = coordinator.await_ready(&id, joined.incarnation, created);
            match ready.await.unwrap() {
                Start::At(clock) => break clock,
                Start::Create => {
                    let mut creating = open(Clock(0));
                    creating
                        .push(Purpose::Create, schedule::Seen::default(), &source)
                        .await
                        .unwrap();
                    created = true;
                }
            }
        };
        let mut exchange = open(start);
        let mut values = vec![0.0; layout.elements()];
        exchange.pull(&mut values).await.unwrap();

        let before: Vec<_> = proxies.iter().map(Proxy::counted).collect();
        let mut seen = schedule::Seen::default();
        for _ in 0..exchanges {
            let gradient = Purpose::Gradient { samples: 8 };
            let run = exchange.run(gradient, seen, &source, &mut values);
            seen = run.await.unwrap().seen();
        }
        let counted = proxies.iter().zip(before).map(|(proxy, before)| {
            let [sent, received] = proxy.counted();
            Traffic {
                values: 0,
                sent: since(sent, before[0]),
                received: since(received, before[1]),
            }
        });
        Seen {
            group: self.group,
            rank: self.rank,
            servers: counted.collect(),
            placement: joined.placement.clone(),
        }
    }

    fn open(
        &self,
        layout: &Arc<Layout>,
        joined: &Joined,
        start: Clock,
        proxies: &[Proxy],
        (id, reach): (&RankId, &Reach),
    ) -> Exchange {
        let identity = Identity {
            run: id.run.clone(),
            group: id.group,
            incarnation: joined.incarnation,
        };
        let size = self.spec.group_sizes[id.group.0 as usize];
        let slice = layout.slice(id.rank, size);
        let blocks = placed(&slice, &joined.placement).unwrap();
        let session = Session::new(identity, start, blocks);
        let mut holding = joined.holding.clone();
        for endpoint in &mut holding.servers {
            endpoint.address = proxies[endpoint.server.0 as usize].address.clone();
        }
        let directory = Directory::fixed(holding);
        let exchange = Exchange::new(layout.clone(), session, &directory, reach);
        exchange.compressing(self.spec.up, self.spec.down)
    }
}

fn since(now: Flow, before: Flow) -> Flow {
    Flow {
        messages: now.messages - before.messages,
        payload: now.payload - before.payload,
        wire: now.wire - before.wire,
    }
}
