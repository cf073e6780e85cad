//! Orders and reports: core ↔ wire.

use std::sync::Arc;

use tradewind_common::loss::Loss;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ServerId, ShardId};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::holding::{Endpoint, Holding, placement_from_wire, placement_to_wire};
use tradewind_proto::v1;

use crate::registry::RunEntry;
use tradewind_core::mark::Lacking;
use tradewind_core::order::{Capture, NotCaptured, Order, Restore, Server, ShardFile, ShardReport};
use tradewind_core::view::{Acknowledge, OrderedView, Rights, View, ViewChange};

/// An order of the coordinator's incarnation `coordinator`.
pub fn encode_order(order: &Order, coordinator: u64) -> v1::ServerOrder {
    let restore = |restore: &Restore| v1::Restore {
        shard: restore.shard.0,
        newest: restore.newest,
        only: restore.only,
    };
    let capture = |capture: &Capture| v1::Capture {
        shard: capture.shard.0,
        number: capture.number,
        at_clock: capture.at_clock.map(|clock| clock.0),
    };
    let holding = holding(order);
    let wire = v1::ServerOrder {
        run: order.run.to_string(),
        coordinator,
        restore: order.restore.iter().map(restore).collect(),
        capture: order.capture.iter().map(capture).collect(),
        ..v1::ServerOrder::default()
    };
    match &order.view {
        OrderedView::Whole(view) => {
            let buckets = order.spec.bucket_bytes;
            v1::ServerOrder {
                spec: Some((&*order.spec).into()),
                placement: Some(placement_to_wire(&order.placement, &holding, buckets)),
                view: Some(encode_view(view)),
                ..wire
            }
        }
        OrderedView::Since(change) => v1::ServerOrder {
            placement: Some(v1::Placement {
                holding: Some((&holding).into()),
                ..v1::Placement::default()
            }),
            change: Some(encode_change(change)),
            ..wire
        },
    }
}

fn holding(order: &Order) -> Holding {
    let endpoint = |(id, server): (&ServerId, &Server)| Endpoint {
        server: *id,
        incarnation: server.incarnation,
        address: server.address.clone(),
    };
    Holding {
        generation: order.view.generation(),
        holders: order.holders.clone(),
        servers: order.servers.iter().map(endpoint).collect(),
    }
}

/// An order from the wire, for `server`, which knows the run as `known`. `None` if it says what has changed in a
/// run that is not known.
pub fn decode_order(
    server: ServerId,
    order: v1::ServerOrder,
    known: Option<&RunEntry>,
) -> Result<Option<Order>, Malformed> {
    let (placement, holding) = placement_from_wire(required("placement", order.placement)?)?;
    let server_of = |endpoint: Endpoint| {
        let server = Server {
            incarnation: endpoint.incarnation,
            address: endpoint.address,
            // Only the coordinator needs to know.
            host: String::new(),
        };
        (endpoint.server, server)
    };
    let restore = |restore: v1::Restore| Restore {
        shard: ShardId(restore.shard),
        newest: restore.newest,
        only: restore.only,
    };
    let capture = |capture: v1::Capture| Capture {
        shard: ShardId(capture.shard),
        number: capture.number,
        at_clock: capture.at_clock.map(Clock),
    };
    let (spec, placement, view) = match (order.change, known) {
        (Some(change), Some(known)) => {
            let view = OrderedView::Since(decode_change(change));
            (known.spec.clone(), known.placement.clone(), view)
        }
        (Some(_), None) => return Ok(None),
        (None, _) => {
            let spec = Arc::new(required("spec", order.spec)?.try_into()?);
            let view = OrderedView::Whole(decode_view(required("view", order.view)?));
            (spec, Arc::new(placement), view)
        }
    };
    let shards = placement.shards().iter();
    if let Some(shard) = shards
        .max()
        .filter(|s| s.0 as usize >= holding.holders.len())
    {
        return Err(Malformed {
            field: "placement.holding",
            problem: format!("shard {shard} has no holders"),
        });
    }
    Ok(Some(Order {
        server,
        run: convert::run_id(&order.run)?,
        spec,
        placement,
        holders: holding.holders,
        servers: holding.servers.into_iter().map(server_of).collect(),
        view,
        restore: order.restore.into_iter().map(restore).collect(),
        capture: order.capture.into_iter().map(capture).collect(),
    }))
}

/// A report of a shard.
pub fn report_to_wire(run: &RunId, report: ShardReport) -> v1::Acknowledge {
    let seen = report.seen;
    let copy = |full: bool| {
        move |(server, since): (ServerId, Generation)| v1::CopyHolder {
            server: server.0,
            since: since.0,
            full,
        }
    };
    v1::Acknowledge {
        run: run.to_string(),
        generation: seen.generation.0,
        clock_seen: seen.clock_seen.map(|clock| clock.0),
        complete: seen.complete,
        shard: report.shard.0,
        full: seen.full.into_iter().map(copy(true)).collect(),
        stalled: seen.stalled.into_iter().map(copy(false)).collect(),
        lost_updates: report.lost.loss.updates,
        lost_samples: report.lost.loss.samples,
        lost_told_of: report.lost.told_of.0,
        restored: report.restored,
        damaged: report.damaged,
        failure: report.failure.unwrap_or_default(),
    }
}

/// A report of a shard from the wire.
pub fn report_from_wire(report: v1::Acknowledge) -> Result<(RunId, ShardReport), Malformed> {
    let clock_seen = report.clock_seen;
    let clock_seen = clock_seen.map(|clock| convert::clock("clock_seen", clock));
    let copy = |copy: &v1::CopyHolder| (ServerId(copy.server), Generation(copy.since));
    let seen = Acknowledge {
        generation: Generation(report.generation),
        clock_seen: clock_seen.transpose()?,
        complete: report.complete,
        full: report.full.iter().map(copy).collect(),
        stalled: report.stalled.iter().map(copy).collect(),
    };
    let shard = ShardReport {
        shard: ShardId(report.shard),
        seen,
        restored: report.restored,
        damaged: report.damaged,
        lost: Lacking {
            loss: Loss {
                updates: convert::count("lost_updates", report.lost_updates)?,
                samples: convert::count("lost_samples", report.lost_samples)?,
            },
            told_of: Generation(report.lost_told_of),
        },
        failure: Some(report.failure).filter(|failure| !failure.is_empty()),
    };
    Ok((convert::run_id(&report.run)?, shard))
}

/// The word for a part that was passed.
const PASSED: &str = "passed";

/// A shard's part of a snapshot.
pub fn captured_to_wire(
    run: &RunId,
    shard: ShardId,
    number: u64,
    result: Result<ShardFile, NotCaptured>,
) -> v1::Captured {
    let mut captured = v1::Captured {
        run: run.to_string(),
        shard: shard.0,
        number,
        ..v1::Captured::default()
    };
    match result {
        Ok(file) => {
            captured.file = Some(v1::ShardFile {
                name: file.name,
                bytes: file.bytes,
                digest: file.digest,
                version_min: file.versions.0,
                version_max: file.versions.1,
                samples_min: file.samples.0,
                samples_max: file.samples.1,
                clock_next: file.clock_next.0,
            });
        }
        Err(NotCaptured::Passed(clock)) => {
            captured.failure = PASSED.into();
            captured.clock = clock.0;
        }
        Err(NotCaptured::Failed(why)) => captured.failure = why,
    }
    captured
}

/// A shard's part of a snapshot from the wire: run, shard, number, what came of it.
pub fn captured_from_wire(
    captured: v1::Captured,
) -> Result<(RunId, ShardId, u64, Result<ShardFile, NotCaptured>), Malformed> {
    let count = convert::count;
    let clock = convert::clock("clock", captured.clock)?;
    let result = match captured.file {
        Some(file) => Ok(ShardFile {
            name: file.name,
            bytes: count("bytes", file.bytes)?,
            digest: file.digest,
            versions: (
                count("version_min", file.version_min)?,
                count("version_max", file.version_max)?,
            ),
            samples: (
                count("samples_min", file.samples_min)?,
                count("samples_max", file.samples_max)?,
            ),
            clock_next: convert::clock("clock_next", file.clock_next)?,
        }),
        None if captured.failure == PASSED => Err(NotCaptured::Passed(clock)),
        None => Err(NotCaptured::Failed(captured.failure)),
    };
    let run = convert::run_id(&captured.run)?;
    Ok((run, ShardId(captured.shard), captured.number, result))
}

fn required<T>(field: &'static str, value: Option<T>) -> Result<T, Malformed> {
    value.ok_or(Malformed {
        field,
        problem: "is missing".into(),
    })
}

/// Which view of a run a server has followed; `None` if it has none from which the last order could go on.
pub fn followed_to_wire(run: &RunId, generation: Option<Generation>) -> v1::Followed {
    v1::Followed {
        run: run.to_string(),
        generation: generation.map(|generation| generation.0),
    }
}

/// The same from the wire.
pub fn followed_from_wire(
    followed: &v1::Followed,
) -> Result<(RunId, Option<Generation>), Malformed> {
    let run = convert::run_id(&followed.run)?;
    Ok((run, followed.generation.map(Generation)))
}

fn group(group: GroupId, incarnation: Incarnation, start: Clock) -> v1::GroupView {
    v1::GroupView {
        group: group.0,
        incarnation: incarnation.0,
        start_clock: start.0,
    }
}

fn encode_change(change: &ViewChange) -> v1::ViewChange {
    let mut wire = v1::ViewChange {
        base: change.base.0,
        generation: change.generation.0,
        creator: change
            .creator
            .map(|(g, incarnation)| group(g, incarnation, Clock(0))),
        groups: change.groups,
        ..v1::ViewChange::default()
    };
    for (id, rights) in &change.changed {
        match rights {
            Rights::Live(life, start) => wire.live.push(group(*id, *life, *start)),
            Rights::Joined(life) => wire.joined.push(group(*id, *life, Clock(0))),
            Rights::Out => wire.gone.push(id.0),
        }
    }
    wire
}

fn decode_change(wire: v1::ViewChange) -> ViewChange {
    let live = |g: &v1::GroupView| {
        let rights = Rights::Live(Incarnation(g.incarnation), Clock(g.start_clock));
        (GroupId(g.group), rights)
    };
    let joined = |g: &v1::GroupView| (GroupId(g.group), Rights::Joined(Incarnation(g.incarnation)));
    let gone = wire.gone.iter().map(|g| (GroupId(*g), Rights::Out));
    let joined = wire.joined.iter().map(joined);
    let creator = wire.creator.as_ref();
    ViewChange {
        base: Generation(wire.base),
        generation: Generation(wire.generation),
        changed: gone
            .chain(joined)
            .chain(wire.live.iter().map(live))
            .collect(),
        creator: creator.map(|g| (GroupId(g.group), Incarnation(g.incarnation))),
        groups: wire.groups,
    }
}

fn encode_view(view: &View) -> v1::View {
    v1::View {
        generation: view.generation.0,
        live: view
            .live
            .iter()
            .map(|(g, (incarnation, start))| group(*g, *incarnation, *start))
            .collect(),
        joined: view
            .joined
            .iter()
            .map(|(g, incarnation)| group(*g, *incarnation, Clock(0)))
            .collect(),
        creator: view
            .creator
            .map(|(g, incarnation)| group(g, incarnation, Clock(0))),
        groups: view.groups,
    }
}

/// A view from the wire.
fn decode_view(view: v1::View) -> View {
    let incarnation = |g: &v1::GroupView| (GroupId(g.group), Incarnation(g.incarnation));
    View {
        generation: Generation(view.generation),
        live: view
            .live
            .iter()
            .map(|g| (incarnation(g).0, (incarnation(g).1, Clock(g.start_clock))))
            .collect(),
        joined: view.joined.iter().map(incarnation).collect(),
        creator: view.creator.as_ref().map(incarnation),
        groups: view.groups,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tradewind_common::Rank;
    use tradewind_core::ReplyTo;
    use tradewind_core::coordinator::Coordinator;
    use tradewind_core::output::Output;
    use tradewind_core::run::Join;

    use super::*;
    use crate::shard_task::tests::spec;

    const SERVER: ServerId = ServerId(0);

    /// Groups of one rank join at once; the order that comes of it.
    fn join(core: &mut Coordinator, run: &RunId, all: usize, who: std::ops::Range<u32>) -> Order {
        for group in who {
            let mut spec = spec();
            spec.group_sizes = vec![1; all];
            let join = Join {
                group: GroupId(group),
                rank: Rank(0),
                life: 1,
                store_address: String::new(),
            };
            let to = ReplyTo(u64::from(group));
            core.join(run.clone(), spec, join, to, 0);
        }
        let mut ordered = None;
        while let Some(output) = core.poll_output() {
            if let Output::Order(order) = output {
                ordered = Some(*order);
            }
        }
        ordered.expect("a join is ordered")
    }

    fn bytes(order: &Order) -> usize {
        encode_order(order, 1).encode_to_vec().len()
    }

    /// Counted, not timed: what a join sends to a server that has followed the others.
    #[test]
    fn the_order_of_a_join_is_as_short_among_ten_thousand_groups() {
        let run = RunId::new("r").unwrap();
        let mut short = Vec::new();
        for groups in [10, 10_000] {
            let mut core = Coordinator::new(1, false, 60_000);
            let server = Server {
                incarnation: Incarnation(1),
                address: "here:2".into(),
                host: "here".into(),
            };
            core.register(SERVER, server, 0).unwrap();
            let all = groups as usize + 1;
            let whole = join(&mut core, &run, all, 0..groups);
            assert_eq!(whole.view.named(), groups as usize);
            assert!(bytes(&whole) > 5 * groups as usize, "it names all of them");
            let generation = whole.view.generation();
            core.followed(SERVER, &run, Some(generation)).unwrap();
            let looked_at = core.groups_looked_at();
            let order = join(&mut core, &run, all, groups..groups + 1);
            assert_eq!(order.view.named(), 1);
            assert!(core.groups_looked_at() - looked_at <= 20);
            short.push(bytes(&order));

            // It comes out as it went in, for a server that knows the run, and for no other.
            let known = RunEntry {
                spec: order.spec.clone(),
                layout: Arc::new(order.spec.check().unwrap()),
                placement: order.placement.clone(),
            };
            let wire = encode_order(&order, 1);
            let decoded = decode_order(SERVER, wire.clone(), Some(&known)).unwrap();
            let decoded = decoded.expect("it knows the run");
            assert_eq!((decoded.view, decoded.holders), (order.view, order.holders));
            assert_eq!(decode_order(SERVER, wire, None), Ok(None));
        }
        let [few, many] = short[..] else {
            panic!("{short:?}");
        };
        assert!(many <= few + 16 && many <= 200, "{few} bytes, then {many}");
    }
}
