//! How a rank enters an incarnation of its group: meets the others, creates initial values if it is told
//! to, and pulls.

use anyhow::Context;
use tradewind_client::core::session::Summary;
use tradewind_client::membership::Membership;
use tradewind_client::rank_settings::RankSettings;
use tradewind_client::streams::Streams;

use crate::c10d::{Breaker, Store};
use crate::exchanging::{self, Exchanging, Replica, Setup};
use crate::feed::{Feed, ahead};
use crate::group::{C10d, Group, GroupError, Rendezvous, Solo};
use crate::host::HostSide;
use crate::member::Member;
use crate::train::Worker;

/// A rank that has entered.
pub struct Entered<'a> {
    /// Ready to train.
    pub worker: Worker<'a>,
    /// What the shards have applied so far, and whether that is all: the same on all ranks.
    pub pulled: Summary,
}

/// Enters the incarnation of the group that was joined.
pub fn enter(member: &mut Member, mut membership: Membership) -> anyhow::Result<Entered<'_>> {
    let mut group = form(member, &membership)?;
    let start = membership.await_start(|| member.flat.read())?;
    let streams = membership.streams(start)?;
    let mut exchanging = exchanging(member, &membership, &mut *group, streams)?;
    let mut replica = Replica {
        group: &mut *group,
        flat: &mut member.flat,
        leave: &|| false,
    };
    // One rate holds for all blocks of the first exchange, too.
    let pulled = exchanging.pull(&mut replica)?;
    tracing::info!(%start, "ready");

    let feed = Feed::new(
        membership.feed(start)?,
        &*member.task,
        ahead(&member.config.loader),
        (member.device, &member.config.compute),
    )?;
    let worker = Worker {
        member,
        group,
        exchanging,
        feed,
        membership,
    };
    Ok(Entered { worker, pulled })
}

/// The ranks of this incarnation.
fn form(member: &Member, membership: &Membership) -> anyhow::Result<Box<dyn Group>> {
    let layout = &member.process.settings.layout;
    Ok(match membership.joined().group_size {
        1 => Box::new(Solo::new(layout, &member.buckets, &member.tensors)?),
        _ => Box::new(meet(member, membership)?),
    })
}

/// Forms the group of an incarnation, at the store of its first rank. From when its ranks are connected, the
/// loss of the lease breaks it.
fn meet(member: &Member, membership: &Membership) -> anyhow::Result<C10d> {
    let joined = membership.joined();
    let breaks = |breaker: Breaker| {
        membership.formed(Some(Box::new(move || breaker.break_group())));
    };
    let settings = &member.process.settings;
    let layout = &settings.layout;
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
            let store = Store::connect(host, port.parse()?, settings.lease());
            connected = store.map_err(GroupError::Form)?;
            &connected
        }
    };
    // The store asks nobody for anything: what was written in it by who does not know the token is refused.
    let (key, prefix) = settings.meeting(joined.incarnation);
    let store = store.sealed(&key).map_err(GroupError::Form)?;
    let rendezvous = Rendezvous {
        store: &store,
        prefix: &prefix,
        host: &member.config.cluster.host,
        timeout: settings.lease(),
        breaks: &breaks,
    };
    let (rank, size) = (joined.group_rank, joined.group_size);
    let (buckets, tensors) = (&member.buckets, &member.tensors);
    Ok(C10d::new(
        rank,
        size,
        &rendezvous,
        layout,
        buckets,
        tensors,
    )?)
}

/// The way of exchanging that is configured, for the rank's slice.
fn exchanging(
    member: &Member,
    membership: &Membership,
    group: &mut dyn Group,
    streams: Streams,
) -> anyhow::Result<Box<dyn Exchanging>> {
    let Member {
        config,
        buckets,
        tensors,
        flat,
        staged,
        process,
        ..
    } = member;
    let RankSettings { spec, layout, .. } = &process.settings;
    let host = HostSide::new(layout, buckets, membership.slice(), *staged, spec.up);
    let setup = Setup {
        config,
        spec,
        host: &host,
        tensors,
        flat,
        group,
        heartbeat: membership.heartbeat(),
    };
    Ok(exchanging::build(setup, streams)?)
}
