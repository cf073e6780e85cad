//! How a rank enters an incarnation of its group: meets the others, creates initial values if it is told
//! to, and pulls.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Context;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock};
use tradewind_proto::refusal::{self, Reason};

use crate::c10d::Store;
use crate::data::Split;
use crate::data::prefetch::Prefetch;
use crate::exchanging::{self, Exchanging, Replica, Setup, Streams};
use crate::feed::{DEPTH, Feed, FeedError, Place};
use crate::fence::Guard;
use crate::group::{C10d, Group, GroupError, Rendezvous, Solo};
use crate::host::HostSide;
use crate::member::Member;
use crate::train::Worker;
use tradewind_client::core::session::{Identity, Purpose, Session, Summary};
use tradewind_client::directory::Directory;
use tradewind_client::exchange::{Exchange, Unplaced, placed};
use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::membership::{Joined, Start};
use tradewind_client::network::wire;
use tradewind_client::pulse::Pulse;

/// A rank that has entered.
pub struct Entered<'a> {
    /// Ready to train.
    pub worker: Worker<'a>,
    /// What the shards have applied so far, and whether that is all: the same on all ranks.
    pub pulled: Summary,
}

/// Enters the incarnation of the group that was joined. `directory` knows where its shards are; `pulse` is
/// what its heartbeats tell, which have begun; `guard` knows whether the lease is lost.
pub fn enter<'a>(
    member: &'a mut Member,
    joined: &Joined,
    directory: &Directory,
    pulse: Arc<Pulse>,
    guard: Guard,
) -> anyhow::Result<Entered<'a>> {
    let mut group = form(member, joined)?;
    guard.formed(group.breaker()?);
    let start = await_start(member, joined, directory)?;
    pulse.set_clock(start);
    let streams = Streams {
        exchange: streams(member, joined, directory, start)?,
        wire: wire()?,
    };
    let mut exchanging = exchanging(member, joined, &mut *group, &pulse, streams)?;
    let mut replica = Replica {
        group: &mut *group,
        flat: &mut member.flat,
        leave: &|| false,
    };
    // One rate holds for all blocks of the first exchange, too.
    let pulled = exchanging.pull(&mut replica)?;
    tracing::info!(%start, "ready");

    let feed = feed(member, joined, start)?;
    let worker = Worker {
        member,
        group,
        exchanging,
        feed,
        incarnation: joined.incarnation,
        pulse,
        guard,
        exchanged: false,
    };
    Ok(Entered { worker, pulled })
}

/// The ranks of this incarnation.
fn form(member: &Member, joined: &Joined) -> anyhow::Result<Box<dyn Group>> {
    Ok(match joined.group_size {
        1 => Box::new(Solo::new(&member.layout, &member.buckets, &member.tensors)?),
        _ => Box::new(meet(member, joined)?),
    })
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
        &member.buckets,
        &member.tensors,
    )?)
}

/// Creates the rank's slice if it is told to, and waits for the group's first clock.
fn await_start(
    member: &mut Member,
    joined: &Joined,
    directory: &Directory,
) -> anyhow::Result<Clock> {
    let mut created = false;
    loop {
        match member.await_ready(joined.incarnation, created)? {
            Start::At(clock) => return Ok(clock),
            Start::Create => created = create(member, joined, directory)?,
        }
    }
}

/// Creates the rank's slice, from the model's initial values. `false` if somebody has created before: an
/// answer was lost, and the run is ready now.
fn create(member: &Member, joined: &Joined, directory: &Directory) -> anyhow::Result<bool> {
    tracing::info!("creating initial values");
    // Nothing has been pulled before: nobody is told to create once there are values.
    let values = member.flat.read();
    let initial = |id: BlockId| {
        let block = member.layout.block(id).expect("a block of the slice");
        Cow::Borrowed(&values[block.elements.clone()])
    };
    let mut exchange = streams(member, joined, directory, Clock(0))?;
    let create = exchange.push(Purpose::Create, Seen::default(), &initial);
    match member.runtime.block_on(create) {
        Ok(_) => Ok(true),
        Err(ExchangeError::Refused { status, .. })
            if refusal::reason(&status) == Some(Reason::NotCreator.word()) =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// The rank's streams to the shards of its slice, for contributions from `start` on.
fn streams(
    member: &Member,
    joined: &Joined,
    directory: &Directory,
    start: Clock,
) -> Result<Exchange, Unplaced> {
    let identity = Identity {
        run: member.seat.run.clone(),
        group: member.seat.group,
        incarnation: joined.incarnation,
    };
    let blocks = placed(&slice(member, joined), &joined.placement)?;
    let session = Session::new(identity, start, blocks);
    let session = session.with_overlap(member.config.train.overlap);
    let exchange = Exchange::new(member.layout.clone(), session, directory, &member.reach);
    Ok(exchange.compressing(member.spec.up, member.spec.down))
}

/// The blocks that this rank of the group exchanges.
fn slice(member: &Member, joined: &Joined) -> Vec<BlockId> {
    member.layout.slice(joined.group_rank, joined.group_size)
}

/// The way of exchanging that is configured, for the rank's slice.
fn exchanging(
    member: &Member,
    joined: &Joined,
    group: &mut dyn Group,
    pulse: &Arc<Pulse>,
    streams: Streams,
) -> anyhow::Result<Box<dyn Exchanging>> {
    let Member {
        config,
        spec,
        layout,
        buckets,
        tensors,
        flat,
        staged,
        ..
    } = member;
    let host = HostSide::new(layout, buckets, slice(member, joined), *staged, spec.up);
    let setup = Setup {
        config,
        spec,
        host: &host,
        tensors,
        flat,
        group,
        pulse,
    };
    Ok(exchanging::build(setup, streams)?)
}

/// The rank's batches from a clock on.
fn feed(member: &Member, joined: &Joined, start: Clock) -> Result<Feed, FeedError> {
    let prefetch = Prefetch::new(member.task.dataset(), Split::Train, DEPTH, member.device);
    let place = Place {
        group: member.seat.group,
        rank: member.seat.rank,
        start,
        origin: joined.origin,
    };
    Feed::new(&member.spec, place, prefetch)
}
