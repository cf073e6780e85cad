//! How a rank enters a life of its group: meets the others, creates initial values if it is told
//! to, and pulls.

use std::sync::Arc;

use anyhow::Context;
use tokio::runtime::Handle;
use tradewind_common::pieces::Cut;
use tradewind_common::schedule::Seen;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Layout};
use tradewind_config::Precision;
use tradewind_proto::refusal::{self, Reason};

use crate::c10d::Store;
use crate::data::Split;
use crate::data::prefetch::Prefetch;
use crate::during::During;
use crate::exchanges::{Behind, Between, Exchanges, over_ranks};
use crate::feed::{DEPTH, Feed, Place};
use crate::fence::Guard;
use crate::flat::Flat;
use crate::group::{C10d, Group, GroupError, Rendezvous, Solo};
use crate::host::buffers::Buffers;
use crate::host::{Fresh, Host, How};
use crate::local::Local;
use crate::member::Member;
use crate::norms::TensorNorms;
use crate::precision::LossScaler;
use crate::train::Worker;
use tradewind_client::core::session::{Identity, Purpose, Session, Summary};
use tradewind_client::directory::Directory;
use tradewind_client::exchange::{Exchange, Unplaced, placed};
use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::membership::{Coordinator, Joined, Seat, Start};
use tradewind_client::network::{Reach, wire};
use tradewind_client::parts::Plan;
use tradewind_client::pulse::Pulse;

/// A rank that has entered.
pub struct Entered<'a> {
    /// Ready to train.
    pub worker: Worker<'a>,
    /// What the shards have applied so far, and whether that is all: the same on all ranks.
    pub pulled: Summary,
}

/// Enters the life of the group that was joined. `directory` knows where its shards are; `pulse` is
/// what its heartbeats tell, which have begun; `guard` knows whether the lease is lost.
pub fn enter<'a>(
    member: &'a mut Member,
    joined: &Joined,
    directory: &Directory,
    pulse: Arc<Pulse>,
    guard: Guard,
) -> anyhow::Result<Entered<'a>> {
    let mut group: Box<dyn Group> = match joined.group_size {
        1 => Box::new(Solo::new(&member.layout, &member.tensors)?),
        _ => Box::new(meet(member, joined)?),
    };
    guard.formed(group.breaker()?);
    let config = &member.config;
    let links = Links {
        seat: &member.seat,
        joined,
        directory,
        layout: &member.layout,
        reach: &member.reach,
        spec: &member.spec,
        overlap: config.train.overlap,
    };
    let start = await_start(
        &links,
        &mut member.coordinator,
        &member.flat,
        &member.runtime,
    )?;
    pulse.set_clock(start);
    let mut exchange = links.exchange(start)?;
    let wire = wire()?;
    let (layout, slice, staged) = (&member.layout, links.slice(), member.staged);
    let (overlap, by_bucket) = (config.train.overlap, config.exchange.per_bucket);
    let beside = staged || overlap || by_bucket;
    let fresh = || Fresh::new(layout, &slice, &member.flat, staged);
    let mut fresh = beside.then(fresh).transpose()?;
    let pulled = match &mut fresh {
        Some(fresh) => wire.block_on(exchange.pull(fresh))?,
        None => wire.block_on(exchange.pull(member.flat.values_mut()))?,
    };
    if let Some(fresh) = &mut fresh {
        fresh.load(&mut member.flat)?;
    }
    group.gather(&mut member.flat)?;
    // One rate holds for all blocks of the first exchange, too.
    let pulled = over_ranks(&*group, pulled)?;
    let local = |local| {
        let outer = (
            config.optimizer.schedule.learning_rate,
            config.train.samples,
        );
        Local::new(local, outer, layout, &member.flat, &member.tensors)
    };
    let local = config.local.as_ref().map(local).transpose()?;
    let buffers = Buffers::new(layout, &member.flat, staged)?;
    let plan = Arc::new(Plan::new(layout, &slice));
    let norms = TensorNorms::new(Cut::of(&member.spec), layout, &slice);
    let how = How {
        staged,
        overlap,
        by_bucket,
        later: config.local.is_some(),
        up: member.spec.up,
    };
    let host = Host::new(layout, &plan, &mut *group, how)?;
    let exchanges = match fresh {
        Some(fresh) if overlap => {
            Exchanges::Behind(Behind::new(exchange, layout, slice, fresh, wire))
        }
        Some(fresh) if by_bucket => {
            Exchanges::During(During::new(exchange, layout, &plan, fresh, wire))
        }
        fresh => Exchanges::Between(Box::new(Between {
            exchange,
            wire,
            fresh,
        })),
    };
    tracing::info!(%start, "ready");

    let prefetch = Prefetch::new(member.task.dataset(), Split::Train, DEPTH, member.device);
    let place = Place {
        group: member.seat.group,
        rank: member.seat.rank,
        start,
        origin: joined.origin,
    };
    let feed = Feed::new(&member.spec, place, prefetch)?;
    let scaler = match member.config.compute.precision {
        Precision::Fp16(scaling) => Some(LossScaler::new(scaling)),
        Precision::F32 | Precision::Bf16 => None,
    };
    let worker = Worker {
        member,
        group,
        host,
        exchanges,
        feed,
        buffers,
        norms,
        local,
        scaler,
        incarnation: joined.incarnation,
        pulse,
        guard,
        exchanged: false,
    };
    Ok(Entered { worker, pulled })
}

/// Forms the group of an incarnation, at the store of its first rank.
fn meet(member: &Member, joined: &Joined) -> anyhow::Result<C10d> {
    let own = member.store.as_ref();
    let own = own.filter(|_| joined.store_address == member.store_address());
    let connected;
    let store = match own {
        Some(store) => store,
        None => {
            let (host, port) = joined.store_address.rsplit_once(':').with_context(|| {
                format!(
                    "the group's first rank told no store address: {:?}",
                    joined.store_address
                )
            })?;
            let store = Store::connect(host, port.parse()?, member.lease());
            connected = store.map_err(GroupError::Form)?;
            &connected
        }
    };
    let seat = &member.seat;
    let prefix = format!("{}/{}/{}", seat.run, seat.group, joined.incarnation);
    let rendezvous = Rendezvous {
        store,
        prefix: &prefix,
        host: &member.config.cluster.host,
        timeout: member.lease(),
    };
    let (rank, size) = (joined.group_rank, joined.group_size);
    Ok(C10d::new(
        rank,
        size,
        &rendezvous,
        &member.layout,
        &member.tensors,
    )?)
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
                // Nothing has been pulled before: nobody is told to create once there are values.
                let values = flat.read();
                let initial = |id: BlockId| {
                    let block = links.layout.block(id).expect("a block of the slice");
                    &values[block.elements.clone()]
                };
                let mut exchange = links.exchange(Clock(0))?;
                let create = async {
                    exchange
                        .push(Purpose::Create, Seen::default(), &initial)
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
    directory: &'a Directory,
    layout: &'a Arc<Layout>,
    reach: &'a Reach,
    spec: &'a RunSpec,
    overlap: bool,
}

impl Links<'_> {
    fn slice(&self) -> Vec<BlockId> {
        let Joined {
            group_rank,
            group_size,
            ..
        } = self.joined;
        self.layout.slice(*group_rank, *group_size)
    }

    fn exchange(&self, start: Clock) -> Result<Exchange, Unplaced> {
        let identity = Identity {
            run: self.seat.run.clone(),
            group: self.seat.group,
            incarnation: self.joined.incarnation,
        };
        let blocks = placed(&self.slice(), &self.joined.placement)?;
        let session = Session::new(identity, start, blocks).with_overlap(self.overlap);
        let exchange = Exchange::new(self.layout.clone(), session, self.directory, self.reach);
        Ok(exchange.compressing(self.spec.up, self.spec.down))
    }
}
