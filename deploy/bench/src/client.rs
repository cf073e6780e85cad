//! A client process of `bench exchange`: one rank that moves blocks as a worker does, without a
//! model. Everything of the bench that knows the exchange's interface is here.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tradewind_client::core::session::{Identity, Purpose, Session, Summary};
use tradewind_client::directory::Directory;
use tradewind_client::exchange::{Exchange, placed};
use tradewind_client::lease::{Lease, keep_lease};
use tradewind_client::membership::{Coordinator, CoordinatorAt, Joined, Seat, Start};
use tradewind_client::network::{Reach, wire};
use tradewind_client::pulse::Pulse;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Layout, Rank, RunId};
use tradewind_proto::auth::Token;

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
    exchange: Exchange,
    layout: Arc<Layout>,
    values: Vec<f32>,
    gradient: Vec<f32>,
    seen: Seen,
    /// The group's clock, for the heartbeats.
    pulse: Arc<Pulse>,
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
    let seat = Seat {
        run: RunId::new(&arguments.run)?,
        group: GroupId(group),
        rank: Rank(rank),
    };
    let reach = Reach {
        token: Token::from_env()?,
        retry: RETRY,
        connections: arguments.model.connections,
    };
    let at = CoordinatorAt::Address(arguments.coordinator.clone());
    let mut coordinator = Coordinator::new(at, reach.clone());
    let join = coordinator.join(&seat, LIFE, &spec, "", Incarnation(0));
    let joined = runtime.block_on(join)?;
    let (directory, news) = Directory::new(joined.holding.clone());
    let pulse = Arc::new(Pulse::default());
    let heartbeat = {
        let _context = runtime.enter();
        let lease = Lease {
            seat: seat.clone(),
            incarnation: joined.incarnation,
            pause: Duration::from_millis(LEASE_MS / 6),
            length: Duration::from_millis(LEASE_MS),
            pulse: pulse.clone(),
            news,
        };
        keep_lease(&coordinator, lease, |error| {
            tradewind_process::complain!("the lease is lost: {error}");
            tradewind_process::exit(1);
        })
    };
    let slice = layout.slice(seat.rank, spec.group_sizes[group as usize]);
    let blocks = placed(&slice, &joined.placement)?;
    let open = |start: Clock| {
        let identity = Identity {
            run: seat.run.clone(),
            group: seat.group,
            incarnation: joined.incarnation,
        };
        let session = Session::new(identity, start, blocks.clone())
            .with_overlap(arguments.model.step_seconds.is_some());
        let exchange = Exchange::new(layout.clone(), session, &directory, &reach);
        exchange.compressing(spec.up, spec.down)
    };
    let mut client = Client {
        exchange: open(Clock(0)),
        layout: layout.clone(),
        values: values(layout.elements()),
        gradient: gradient(layout.elements()),
        seen: Seen::default(),
        pulse,
    };
    let wire = wire()?;
    let start = client.create(&mut coordinator, &seat, &joined, runtime.handle())?;
    client.exchange = open(start);
    client.work(Work::Pull, &wire)?;
    let bytes = |id: &BlockId| layout.block(*id).map_or(0, |block| block.bytes());
    let ready = Ready {
        servers: joined.holding.servers.len(),
        bytes: slice.iter().map(bytes).sum(),
    };
    match arguments.model.step_seconds {
        None => obey(&ready, |work| client.work(work, &wire))?,
        Some(seconds) => {
            let (pulse, computation) = (client.pulse, Duration::from_secs_f64(seconds));
            let vectors = (client.gradient, client.values);
            let mut steps = Steps::new((client.exchange, wire), layout, vectors, computation);
            obey(&ready, |work| {
                pulse.set_clock(Clock(steps.step(work)?));
                Ok(())
            })?;
        }
    }
    // The first rank to leave takes its group out; what the others' beats hear then is no news.
    runtime.block_on(coordinator.leave(&seat, joined.incarnation, Vec::new()))?;
    drop(heartbeat);
    Ok(())
}

impl Client {
    /// Creates the slice's values if this group is told to; returns the group's first clock.
    fn create(
        &mut self,
        coordinator: &mut Coordinator,
        seat: &Seat,
        joined: &Joined,
        runtime: &Handle,
    ) -> anyhow::Result<Clock> {
        let mut created = false;
        loop {
            let ready = coordinator.await_ready(seat, joined.incarnation, created);
            match runtime.block_on(ready)? {
                Start::At(clock) => return Ok(clock),
                Start::Create => {
                    let initial = values(self.layout.elements());
                    let source = |id| of(&self.layout, &initial, id).into();
                    let create = self
                        .exchange
                        .push(Purpose::Create, Seen::default(), &source);
                    runtime.block_on(create)?;
                    created = true;
                }
            }
        }
    }

    /// Moves the slice once.
    fn work(&mut self, work: Work, wire: &Runtime) -> anyhow::Result<()> {
        let gradient = Purpose::Gradient { samples: 1 };
        let source = |id| of(&self.layout, &self.gradient, id).into();
        let seen = self.seen;
        let (exchange, values) = (&mut self.exchange, &mut self.values);
        let summary: Summary = wire.block_on(async {
            match work {
                Work::Exchange => exchange.run(gradient, seen, &source, values).await,
                Work::Push => exchange.push(gradient, seen, &source).await,
                Work::Pull => exchange.pull(values).await,
            }
        })?;
        self.seen = summary.seen();
        self.pulse.set_clock(self.exchange.clock());
        Ok(())
    }
}

fn of<'a>(layout: &Layout, vector: &'a [f32], id: BlockId) -> &'a [f32] {
    let block = layout.block(id).expect("a block of the slice");
    &vector[block.elements.clone()]
}
