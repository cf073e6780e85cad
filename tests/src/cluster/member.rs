//! A group of one rank that takes part in a run through the real client, without a model: it
//! pushes the gradients that a test makes up.

use std::sync::Arc;
use std::time::Duration;

use tradewind_client::core::session::{Identity, Purpose, Session, Summary};
use tradewind_client::exchange::{Exchange, ExchangeError, owners};
use tradewind_client::membership::{Coordinator, Joined, Seat, Start};
use tradewind_client::network::Reach;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, GroupId, Layout, Rank, RunId};
use tradewind_proto::auth::Token;

use super::fleet::{ANSWER, Fleet};

/// A process of a group; there is one life of each.
const LIFE: u64 = 1;

/// A group of one rank.
pub struct Member {
    /// The run's blocks.
    pub layout: Arc<Layout>,
    /// The flat vector, as the last exchange has left it.
    pub values: Vec<f32>,
    exchange: Exchange,
    samples_seen: u64,
}

/// One that has joined and does not yet push.
pub struct Joining {
    layout: Arc<Layout>,
    spec: RunSpec,
    seat: Seat,
    reach: Reach,
    coordinator: Coordinator,
    joined: Joined,
}

impl Joining {
    /// Joins as `group` of `run`.
    ///
    /// # Panics
    /// If that is refused.
    pub async fn join(fleet: &Fleet, (run, group): (&str, u32), spec: &RunSpec) -> Self {
        let reach = Reach {
            token: Token::new(fleet.token()).expect("a token of visible ASCII"),
            retry: ANSWER,
            connections: 1,
        };
        let seat = Seat {
            run: RunId::new(run).expect("a name"),
            group: GroupId(group),
            rank: Rank(0),
        };
        let mut coordinator = Coordinator::new(&fleet.addresses()[0], reach.clone());
        let joined = coordinator.join(&seat, LIFE, spec, "").await;
        Self {
            layout: Arc::new(spec.check().expect("a specification that can be followed")),
            spec: spec.clone(),
            seat,
            reach,
            coordinator,
            joined: joined.expect("the group joins"),
        }
    }

    /// Reaches servers at other addresses than they told, in their order.
    #[must_use]
    pub fn through(mut self, addresses: &[String]) -> Self {
        for (server, address) in self.joined.servers.iter_mut().zip(addresses) {
            server.address.clone_from(address);
        }
        self
    }

    /// Creates `initial` if it is told to, waits until it may push, and pulls.
    ///
    /// # Panics
    /// If any of it is refused.
    pub async fn begin(mut self, initial: &[f32]) -> Member {
        let mut created = false;
        let start = loop {
            let incarnation = self.joined.incarnation;
            let ready = self
                .coordinator
                .await_ready(&self.seat, incarnation, created);
            match ready.await.expect("it may wait") {
                Start::At(clock) => break clock,
                Start::Create => {
                    let source =
                        |id: BlockId| &initial[self.layout.blocks[id.0 as usize].elements.clone()];
                    let mut exchange = self.exchange(Clock(0));
                    let made = exchange.push(Purpose::Create, 0, &source).await;
                    made.expect("it may create");
                    created = true;
                }
            }
        };
        let mut exchange = self.exchange(start);
        let mut values = vec![f32::NAN; self.layout.elements()];
        let pulled = exchange.pull(&mut values).await.expect("it may pull");
        Member {
            samples_seen: pulled.samples_applied,
            layout: self.layout,
            values,
            exchange,
        }
    }

    fn exchange(&self, start: Clock) -> Exchange {
        let identity = Identity {
            run: self.seat.run.clone(),
            group: self.seat.group,
            incarnation: self.joined.incarnation,
        };
        let slice = self.layout.slice(Rank(0), 1);
        let session = Session::new(identity, start, owners(&slice, &self.joined.placement));
        Exchange::new(
            self.layout.clone(),
            session,
            &self.joined.servers,
            &self.reach,
        )
        .compressing(self.spec.up, self.spec.down)
    }
}

impl Member {
    /// The clock of the next exchange.
    pub fn clock(&self) -> u64 {
        self.exchange.clock().0
    }

    /// One exchange of a flat gradient, the mean over so many samples.
    ///
    /// # Errors
    /// If a server refuses or cannot be reached.
    ///
    /// # Panics
    /// If it has not ended after a minute.
    pub async fn push(&mut self, gradient: &[f32], samples: u32) -> Result<Summary, ExchangeError> {
        let layout = self.layout.clone();
        let source = |id: BlockId| &gradient[layout.blocks[id.0 as usize].elements.clone()];
        let purpose = Purpose::Gradient { samples };
        let run = self
            .exchange
            .run(purpose, self.samples_seen, &source, &mut self.values);
        let done = tokio::time::timeout(ANSWER, run)
            .await
            .expect("an exchange ends");
        if let Ok(summary) = &done {
            self.samples_seen = summary.samples_applied;
        }
        done
    }
}

/// All values of a run, as nobody in particular reads them.
///
/// # Panics
/// If they cannot be read.
pub async fn read(fleet: &Fleet, run: &str, layout: &Arc<Layout>) -> Vec<f32> {
    let reach = Reach {
        token: Token::new(fleet.token()).expect("a token of visible ASCII"),
        retry: Duration::ZERO,
        connections: 1,
    };
    let run = RunId::new(run).expect("a name");
    let mut coordinator = Coordinator::new(&fleet.addresses()[0], reach.clone());
    let (placement, servers) = coordinator.placement(&run).await.expect("a run");
    let nobody = Identity {
        run,
        group: GroupId(0),
        incarnation: tradewind_common::Incarnation(0),
    };
    let all: Vec<BlockId> = layout.blocks.iter().map(|block| block.id).collect();
    let session = Session::new(nobody, Clock(0), owners(&all, &placement));
    let mut exchange = Exchange::new(layout.clone(), session, &servers, &reach);
    let mut values = vec![f32::NAN; layout.elements()];
    exchange
        .pull(&mut values)
        .await
        .expect("everybody may read");
    values
}
