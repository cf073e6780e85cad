//! Orders and reports: core ↔ wire.

use std::sync::Arc;

use tradewind_common::loss::Loss;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ServerId, ShardId};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::holding::{Endpoint, Holding, placement_from_wire, placement_to_wire};
use tradewind_proto::v1;

use tradewind_core::mark::Lacking;
use tradewind_core::order::{Capture, NotCaptured, Order, Restore, Server, ShardFile, ShardReport};
use tradewind_core::view::{Acknowledge, View};

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
    v1::ServerOrder {
        run: order.run.to_string(),
        spec: Some((&*order.spec).into()),
        placement: Some(placement_to_wire(
            &order.placement,
            &holding(order),
            order.spec.bucket_bytes,
        )),
        view: Some(encode_view(&order.view)),
        coordinator,
        restore: order.restore.iter().map(restore).collect(),
        capture: order.capture.iter().map(capture).collect(),
        runs: Vec::new(),
        revoked: None,
    }
}

fn holding(order: &Order) -> Holding {
    let endpoint = |(id, server): (&ServerId, &Server)| Endpoint {
        server: *id,
        incarnation: server.incarnation,
        address: server.address.clone(),
    };
    Holding {
        generation: order.view.generation,
        holders: order.holders.clone(),
        servers: order.servers.iter().map(endpoint).collect(),
    }
}

/// An order from the wire, for `server`.
pub fn decode_order(server: ServerId, order: v1::ServerOrder) -> Result<Order, Malformed> {
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
    Ok(Order {
        server,
        run: convert::run_id(&order.run)?,
        spec: Arc::new(required("spec", order.spec)?.try_into()?),
        placement: Arc::new(placement),
        holders: holding.holders,
        servers: holding.servers.into_iter().map(server_of).collect(),
        view: decode_view(required("view", order.view)?),
        restore: order.restore.into_iter().map(restore).collect(),
        capture: order.capture.into_iter().map(capture).collect(),
    })
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

fn encode_view(view: &View) -> v1::View {
    let group = |group: GroupId, incarnation: Incarnation, start: Clock| v1::GroupView {
        group: group.0,
        incarnation: incarnation.0,
        start_clock: start.0,
    };
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
