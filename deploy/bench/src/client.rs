//! A client process of `bench exchange`: one rank that moves blocks as a worker does, without a
//! model. Everything of the bench that knows the exchange's interface is here.

use std::sync::Arc;
use std::time::Duration;

use tradewind_client::coordinator::{Coordinator, CoordinatorAt, RankId};
use tradewind_client::core::session::{Purpose, Summary};
use tradewind_client::heartbeat::HeartbeatState;
use tradewind_client::network::Reach;
use tradewind_client::rank_process::RankProcess;
use tradewind_client::rank_settings::RankSettings;
use tradewind_client::streams::Streams;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, GroupId, Layout, Rank, RunId};
use tradewind_proto::auth::Credentials;

use super::model::{LEASE_MS, Model, gradient, values};
use super::orders::{Ready, Work, obey};
use super::steps::Steps;

/// How long an unreachable server is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// The only process of its rank in its run.
const LIFE: u64 = 1;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    model: Model,
    /// Number of this client, from 0.
    #[arg(long)]
    index: u32,
    /// Address (host:port) of the coordinator.
    #[arg(long)]
    coordinator: String,
    /// Name of the run.
    #[arg(long)]
    run: String,
}

/// What a rank exchanges with, and what it exchanges.
struct Client {
    streams: Streams,
    layout: Arc<Layout>,
    values: Vec<f32>,
    gradient: Vec<f32>,
    seen: Seen,
    /// The group's clock, for the heartbeats.
    heartbeat: Arc<HeartbeatState>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // As `tradewind-worker` has it.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let spec = arguments.model.spec();
    let layout = Arc::new(spec.check()?);
    let (group, rank) = match arguments.model.group {
        true => (0, arguments.index),
        false => (arguments.index, 0),
    };
    let reach = Reach {
        credentials: Credentials::from_env()?,
        retry: RETRY,
        connections: arguments.model.connections,
    };
    let at = CoordinatorAt::Address(arguments.coordinator.clone());
    let lease = Duration::from_millis(LEASE_MS);
    let mut process = RankProcess::new(RankSettings {
        id: RankId {
            run: RunId::new(&arguments.run)?,
            group: GroupId(group),
            rank: Rank(rank),
        },
        life: LIFE,
        spec: Arc::new(spec),
        layout: layout.clone(),
        coordinator: Coordinator::new(at, reach.clone()),
        reach,
        heartbeat: lease / 6,
        patience: lease,
        overlap: arguments.model.step_seconds.is_some(),
        runtime: runtime.handle().clone(),
    });
    let mut membership = process.join("")?;
    let start = membership.await_start(|| values(layout.elements()))?;
    let mut client = Client {
        streams: membership.streams(start)?,
        layout: layout.clone(),
        values: values(layout.elements()),
        gradient: gradient(layout.elements()),
        seen: Seen::default(),
        heartbeat: membership.heartbeat().clone(),
    };
    client.work(Work::Pull)?;
    let bytes = |id: &BlockId| layout.block(*id).map_or(0, |block| block.bytes());
    let ready = Ready {
        servers: membership.joined().holding.servers.len(),
        bytes: membership.slice().iter().map(bytes).sum(),
    };
    match arguments.model.step_seconds {
        None => obey(&ready, |work| client.work(work))?,
        Some(seconds) => {
            let (heartbeat, computation) = (client.heartbeat, Duration::from_secs_f64(seconds));
            let vectors = (client.gradient, client.values);
            let mut steps = Steps::new(client.streams, layout, vectors, computation);
            obey(&ready, |work| {
                heartbeat.set_clock(Clock(steps.step(work)?));
                Ok(())
            })?;
        }
    }
    membership.leave(Vec::new())?;
    Ok(())
}

impl Client {
    /// Moves the slice once.
    fn work(&mut self, work: Work) -> anyhow::Result<()> {
        let gradient = Purpose::Gradient { samples: 1 };
        let source = |id| of(&self.layout, &self.gradient, id).into();
        let seen = self.seen;
        let Streams { exchange, wire } = &mut self.streams;
        let values = &mut self.values;
        let summary: Summary = wire.block_on(async {
            match work {
                Work::Exchange | Work::Return => {
                    exchange.run(gradient, seen, &source, values).await
                }
                Work::Push => exchange.push(gradient, seen, &source).await,
                Work::Pull => exchange.pull(values).await,
            }
        })?;
        self.seen = summary.seen();
        self.heartbeat.set_clock(self.streams.exchange.clock());
        Ok(())
    }
}

fn of<'a>(layout: &Layout, vector: &'a [f32], id: BlockId) -> &'a [f32] {
    let block = layout.block(id).expect("a block of the slice");
    &vector[block.elements.clone()]
}
