//! How a rank enters a run: joins, forms its group, creates initial values if it is told to, and
//! pulls.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Handle;
use tradewind_common::config::Config;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, GroupId, Layout, Rank, TensorSpec};
use tradewind_proto::auth::Token;
use tradewind_proto::convert::Endpoint;
use tradewind_proto::refusal::{self, Reason};

use crate::buffers::Buffers;
use crate::c10d::Store;
use crate::data::Split;
use crate::data::prefetch::Prefetch;
use crate::during::During;
use crate::exchanges::{Behind, Exchanges};
use crate::feed::{DEPTH, Feed};
use crate::flat::Flat;
use crate::group::{C10d, Group, Rendezvous, Solo};
use crate::model::{self, Task};
use crate::telemetry::Recorder;
use crate::train::Worker;
use tradewind_client::core::session::{Identity, Purpose, Session};
use tradewind_client::exchange::{Exchange, ExchangeError, owners};
use tradewind_client::membership::{
    Coordinator, Heartbeat, Joined, MembershipError, Seat, Start, keep_lease,
};
use tradewind_client::network::{Reach, wire};

/// What a rank is told at its start.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The run's configuration.
    pub config: Config,
    /// Its group.
    pub group: GroupId,
    /// Its number there.
    pub rank: Rank,
    /// Names this process among the lives of the rank; not 0.
    pub life: u64,
    /// host:port of the coordinator.
    pub coordinator: String,
    /// The fleet's token.
    pub token: Token,
}

/// A rank that has entered.
pub struct Entered {
    /// Ready to train.
    pub worker: Worker,
    /// Samples that the shards have applied so far.
    pub samples_seen: u64,
    /// Renews the lease until it is dropped.
    pub heartbeat: Heartbeat,
    /// Rank 0 serves the group's store until it is dropped.
    pub store: Option<Store>,
}

/// The model's tensors as its servers need to know them, in order of creation.
pub fn tensor_specs(task: &dyn Task) -> Vec<TensorSpec> {
    let spec = |(name, tensor, kind): (String, tch::Tensor, _)| TensorSpec {
        name,
        shape: tensor.size().iter().map(|extent| *extent as u64).collect(),
        kind,
    };
    task.tensors().into_iter().map(spec).collect()
}

/// The model's tensors, named, in order of creation.
pub fn named(task: &dyn Task) -> Vec<(String, tch::Tensor)> {
    let all = task.tensors().into_iter();
    all.map(|(name, tensor, _)| (name, tensor)).collect()
}

/// What the servers need to know of a configuration with its task.
pub fn run_spec(config: &Config, task: &dyn Task) -> RunSpec {
    config.spec(tensor_specs(task), task.samples() as u64)
}

/// The task of a configuration, with initial values from its seed.
pub fn build_task(config: &Config) -> anyhow::Result<Box<dyn Task>> {
    Ok(model::build(&model::TaskSpec::from(config), config.seed)?)
}

/// Enters the run. `lost` is called when this life of the group is over while it trains.
pub fn enter(
    entry: &Entry,
    task: Box<dyn Task>,
    recorder: Recorder,
    runtime: &Handle,
    lost: impl FnOnce(MembershipError) + Send + 'static,
) -> anyhow::Result<Entered> {
    let Entry {
        config,
        group,
        rank,
        ..
    } = entry;
    let size = *config
        .cluster
        .groups
        .get(group.0 as usize)
        .with_context(|| {
            format!(
                "the configuration has {} groups, not a group {group}",
                config.cluster.groups.len()
            )
        })?;
    let spec = run_spec(config, &*task);
    let layout = Arc::new(spec.check()?);
    let tensors = named(&*task);
    let mut flat = Flat::new(&layout, &tensors)?;

    let seat = Seat {
        run: config.name.clone(),
        group: *group,
        rank: *rank,
    };
    let reach = Reach {
        token: entry.token.clone(),
        retry: Duration::from_millis(config.exchange.retry_ms),
        connections: config.exchange.connections,
    };
    let mut coordinator = Coordinator::new(&entry.coordinator, reach.clone());
    let (store, joined) = join(entry, &seat, size, &spec, &mut coordinator, runtime)?;
    tracing::info!(incarnation = %joined.incarnation, "joined");
    let clock = Arc::new(AtomicU64::new(0));
    let heartbeat = {
        let _context = runtime.enter();
        let pause = Duration::from_millis(config.liveness.heartbeat_ms);
        let who = (seat.clone(), joined.incarnation);
        keep_lease(coordinator.clone(), who, pause, clock.clone(), lost)
    };
    let mut group: Box<dyn Group> = if size == 1 {
        Box::new(Solo::new(&layout, &tensors)?)
    } else {
        Box::new(meet(
            config,
            &seat,
            size,
            &joined,
            store.as_ref(),
            (&layout, &tensors),
        )?)
    };

    let links = Links {
        seat: &seat,
        joined: &joined,
        layout: &layout,
        size,
        reach: &reach,
        spec: &spec,
        overlap: config.train.overlap,
    };
    let start = await_start(&links, &mut coordinator, &flat, runtime)?;
    let mut exchange = links.exchange(start);
    let wire = wire()?;
    let pulled = wire.block_on(exchange.pull(flat.values_mut()))?;
    group.gather(flat.values_mut())?;
    let mut buffers = Buffers::new(&layout);
    buffers.pulled(flat.values());
    let exchanges = if config.train.overlap {
        let slice = layout.slice(seat.rank, size);
        let behind = Behind::new(exchange, &layout, slice, flat.values(), wire);
        Exchanges::Behind(behind)
    } else if config.exchange.per_bucket {
        let slice = layout.slice(seat.rank, size);
        let pulled = flat.values();
        let during = During::new(exchange, &layout, slice, pulled, wire, &mut *group)?;
        Exchanges::During(during)
    } else {
        Exchanges::Between(exchange, wire)
    };
    tracing::info!(%start, "ready");

    let prefetch = Prefetch::new(task.dataset(), Split::Train, DEPTH);
    let feed = Feed::new(&spec, seat.group, start, prefetch)?;
    let worker = Worker {
        task,
        flat,
        layout,
        group,
        exchanges,
        feed,
        buffers,
        coordinator,
        incarnation: joined.incarnation,
        seat,
        runtime: runtime.clone(),
        clock,
        recorder,
    };
    Ok(Entered {
        worker,
        samples_seen: pulled.samples_applied,
        heartbeat,
        store,
    })
}

/// Rank 0 serves the group's store before it joins, so that its address can be told to the others.
fn join(
    entry: &Entry,
    seat: &Seat,
    size: u32,
    spec: &RunSpec,
    coordinator: &mut Coordinator,
    runtime: &Handle,
) -> anyhow::Result<(Option<Store>, Joined)> {
    let host = &entry.config.cluster.host;
    let timeout = Duration::from_millis(entry.config.liveness.collective_ms);
    let store = match (size, seat.rank) {
        (2.., Rank(0)) => Some(Store::serve(host, timeout).context("serving the group's store")?),
        _ => None,
    };
    let address = store
        .as_ref()
        .map_or(String::new(), |store| format!("{host}:{}", store.port()));
    let joined = runtime.block_on(coordinator.join(seat, entry.life, spec, &address))?;
    Ok((store, joined))
}

/// Forms the group of an incarnation.
fn meet(
    config: &Config,
    seat: &Seat,
    size: u32,
    joined: &Joined,
    own: Option<&Store>,
    (layout, tensors): (&Layout, &[(String, tch::Tensor)]),
) -> anyhow::Result<C10d> {
    let timeout = Duration::from_millis(config.liveness.collective_ms);
    let connected;
    let store = match own {
        Some(store) => store,
        None => {
            let (host, port) = joined.store_address.rsplit_once(':').with_context(|| {
                format!("rank 0 told no store address: {:?}", joined.store_address)
            })?;
            connected = Store::connect(host, port.parse()?, timeout)?;
            &connected
        }
    };
    let prefix = format!("{}/{}/{}", seat.run, seat.group, joined.incarnation);
    let host = &config.cluster.host;
    let rendezvous = Rendezvous {
        store,
        prefix: &prefix,
        host,
        timeout,
    };
    Ok(C10d::new(seat.rank, size, &rendezvous, layout, tensors)?)
}

/// Creates the rank's slice if it is told to, and waits for the group's first clock.
fn await_start(
    links: &Links<'_>,
    coordinator: &mut Coordinator,
    flat: &Flat,
    runtime: &Handle,
) -> anyhow::Result<Clock> {
    let mut created = false;
    loop {
        let ready = coordinator.await_ready(links.seat, links.joined.incarnation, created);
        match runtime.block_on(ready)? {
            Start::At(clock) => return Ok(clock),
            Start::Create => {
                tracing::info!("creating initial values");
                let initial = |id: BlockId| {
                    let block = links.layout.block(id).expect("a block of the slice");
                    flat.block(&block.elements)
                };
                let create = async {
                    links
                        .exchange(Clock(0))
                        .push(Purpose::Create, 0, &initial)
                        .await
                };
                created = match runtime.block_on(create) {
                    Ok(_) => true,
                    // Somebody has created before: an answer was lost, and the run is ready now.
                    Err(ExchangeError::Refused { status, .. })
                        if refusal::reason(&status) == Some(Reason::NotCreator.word()) =>
                    {
                        false
                    }
                    Err(error) => return Err(error.into()),
                };
            }
        }
    }
}

/// What the streams to the shards are made from.
struct Links<'a> {
    seat: &'a Seat,
    joined: &'a Joined,
    layout: &'a Arc<Layout>,
    size: u32,
    reach: &'a Reach,
    spec: &'a RunSpec,
    overlap: bool,
}

impl Links<'_> {
    fn exchange(&self, start: Clock) -> Exchange {
        let slice = self.layout.slice(self.seat.rank, self.size);
        let identity = Identity {
            run: self.seat.run.clone(),
            group: self.seat.group,
            incarnation: self.joined.incarnation,
        };
        let session = Session::new(identity, start, owners(&slice, &self.joined.placement))
            .with_overlap(self.overlap);
        let servers: &[Endpoint] = &self.joined.servers;
        Exchange::new(self.layout.clone(), session, servers, self.reach)
            .compressing(self.spec.up, self.spec.down)
    }
}
