//! The coordinator service: calls to the coordinator's task.

use std::pin::Pin;

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank, RunId, ServerId};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::v1;
use tradewind_proto::v1::server_report::Report;

use super::refuse;
use crate::coordinator_task::{CoordinatorHandle, Message, ORDERS_MAX};
use crate::core::answer::Answer;
use crate::core::coordinator::{Order, Server};
use crate::core::run::{Caller, Join, Phase};
use crate::core::view::{Acknowledge, View};

/// The coordinator service.
pub struct CoordinatorService(pub CoordinatorHandle);

fn run_id(name: &str) -> Result<RunId, Status> {
    convert::run_id(name).map_err(refuse::malformed)
}

fn missing(field: &'static str) -> Status {
    refuse::malformed(Malformed {
        field,
        problem: "is missing".into(),
    })
}

fn caller(group: u32, incarnation: u64, rank: u32) -> Caller {
    Caller {
        group: GroupId(group),
        incarnation: Incarnation(incarnation),
        rank: Rank(rank),
    }
}

#[tonic::async_trait]
impl v1::coordinator_server::Coordinator for CoordinatorService {
    type ServeStream = Pin<Box<dyn Stream<Item = Result<v1::ServerOrder, Status>> + Send>>;

    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinReply>, Status> {
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        let spec = request.spec.ok_or_else(|| missing("spec"))?;
        let spec = Box::new(spec.try_into().map_err(refuse::malformed)?);
        if request.life == 0 {
            return Err(missing("life"));
        }
        if !request.store_address.is_empty() {
            convert::host_port("store_address", &request.store_address)
                .map_err(refuse::malformed)?;
        }
        let join = Join {
            group: GroupId(request.group),
            rank: Rank(request.rank),
            life: request.life,
            store_address: request.store_address,
        };
        let asked = run.clone();
        let answer = self
            .0
            .call(|reply| Message::Join(asked, spec, join, reply))
            .await;
        let Answer::Joined {
            incarnation,
            store_address,
        } = answer.map_err(refuse::call)?
        else {
            return Err(Status::internal("a join was answered with something else"));
        };
        let status = self
            .0
            .call(|reply| Message::Status(run, reply))
            .await
            .map_err(refuse::call)?;
        Ok(Response::new(v1::JoinReply {
            incarnation: incarnation.0,
            store_address,
            placement: Some(convert::placement_to_wire(
                &status.placement,
                status.servers,
            )),
        }))
    }

    async fn await_ready(
        &self,
        request: Request<v1::AwaitReadyRequest>,
    ) -> Result<Response<v1::AwaitReadyReply>, Status> {
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        let who = caller(request.group, request.incarnation, request.rank);
        let ask = |reply| Message::AwaitReady(run, who, request.created, reply);
        let (create, generation, start_clock) =
            match self.0.call(ask).await.map_err(refuse::call)? {
                Answer::Create => (true, 0, 0),
                Answer::Ready { generation, start } => (false, generation.0, start.0),
                Answer::Joined { .. } => {
                    return Err(Status::internal(
                        "a rank that waits was answered with something else",
                    ));
                }
            };
        Ok(Response::new(v1::AwaitReadyReply {
            create,
            generation,
            start_clock,
        }))
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> Result<Response<v1::HeartbeatReply>, Status> {
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        let who = caller(request.group, request.incarnation, request.rank);
        let ask = |reply| Message::Heartbeat(run, who, Clock(request.clock), reply);
        let generation = self.0.call(ask).await.map_err(refuse::call)?.0;
        Ok(Response::new(v1::HeartbeatReply { generation }))
    }

    async fn lease_chunk(
        &self,
        request: Request<v1::LeaseChunkRequest>,
    ) -> Result<Response<v1::LeaseChunkReply>, Status> {
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        let owner = (GroupId(request.group), Incarnation(request.incarnation));
        let ask = |reply| Message::LeaseChunk(run, owner, request.finished, request.held, reply);
        let chunk = self.0.call(ask).await.map_err(refuse::call)?;
        Ok(Response::new(v1::LeaseChunkReply {
            chunk: chunk.number,
            epoch: chunk.epoch,
            begin: chunk.positions.start,
            end: chunk.positions.end,
        }))
    }

    async fn leave(
        &self,
        request: Request<v1::LeaveRequest>,
    ) -> Result<Response<v1::LeaveReply>, Status> {
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        let who = caller(request.group, request.incarnation, request.rank);
        self.0
            .call(|reply| Message::Leave(run, who, reply))
            .await
            .map_err(refuse::call)?;
        Ok(Response::new(v1::LeaveReply {}))
    }

    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusReply>, Status> {
        let run = run_id(&request.into_inner().run)?;
        let status = self
            .0
            .call(|reply| Message::Status(run, reply))
            .await
            .map_err(refuse::call)?;
        let fastest = status
            .groups
            .iter()
            .map(|g| g.clock)
            .max()
            .unwrap_or_default();
        let group = |row: crate::core::run::GroupRow| v1::GroupStatus {
            group: row.group.0,
            size: row.size,
            incarnation: row.incarnation.0,
            state: row.state.word().into(),
            clock: row.clock.0,
            lag: fastest.0 - row.clock.0,
            lease_left_ms: row.lease_left_ms,
        };
        let phase = match &status.phase {
            Phase::Forming => "forming",
            Phase::Creating(..) => "creating",
            Phase::Ready => "ready",
            Phase::Failed(_) => "failed",
        };
        Ok(Response::new(v1::StatusReply {
            generation: status.generation.0,
            phase: phase.into(),
            groups: status.groups.into_iter().map(group).collect(),
            placement: Some(convert::placement_to_wire(
                &status.placement,
                status.servers,
            )),
            samples_unused: status.samples_unused,
        }))
    }

    async fn serve(
        &self,
        request: Request<Streaming<v1::ServerReport>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        let mut reports = request.into_inner();
        let first = reports.message().await.map_err(refuse::unreadable)?;
        let Some(Report::Register(register)) = first.and_then(|first| first.report) else {
            return Err(missing("register"));
        };
        if register.incarnation == 0 {
            return Err(missing("register.incarnation"));
        }
        convert::host_port("register.address", &register.address).map_err(refuse::malformed)?;
        let id = ServerId(register.server);
        let server = Server {
            incarnation: Incarnation(register.incarnation),
            address: register.address,
        };
        let (orders, inbox) = mpsc::channel::<Box<Order>>(ORDERS_MAX);
        let ask = |reply| Message::Register(id, server, orders, reply);
        self.0.call(ask).await.map_err(refuse::call)?;
        let (out, answers) = mpsc::channel(ORDERS_OUT_MAX);
        let reports = take_reports(self.0.clone(), id, reports);
        tokio::spawn(give_orders(inbox, reports, out));
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

/// Orders on their way into a connection.
const ORDERS_OUT_MAX: usize = 4;

/// Hands acknowledgements over until the server ends its side, or says what cannot be.
async fn take_reports(
    coordinator: CoordinatorHandle,
    server: ServerId,
    mut reports: Streaming<v1::ServerReport>,
) -> Result<(), Status> {
    while let Some(report) = reports.message().await.map_err(refuse::unreadable)? {
        let Some(Report::Acknowledge(seen)) = report.report else {
            return Err(missing("acknowledge"));
        };
        let run = run_id(&seen.run)?;
        if seen.clock_seen == Some(u64::MAX) {
            let problem = "no clock comes after it".into();
            let field = "clock_seen";
            return Err(refuse::malformed(Malformed { field, problem }));
        }
        let seen = Acknowledge {
            generation: Generation(seen.generation),
            clock_seen: seen.clock_seen.map(Clock),
            complete: seen.complete,
        };
        let told = coordinator.call(|reply| Message::Acknowledge(server, run, seen, reply));
        told.await.map_err(refuse::call)?;
    }
    Ok(())
}

/// Sends orders for as long as the server reports; a report that is refused ends the stream.
async fn give_orders(
    mut orders: mpsc::Receiver<Box<Order>>,
    reports: impl Future<Output = Result<(), Status>>,
    out: mpsc::Sender<Result<v1::ServerOrder, Status>>,
) {
    tokio::pin!(reports);
    loop {
        let order = tokio::select! {
            reported = &mut reports => match reported {
                Ok(()) => return,
                Err(status) => Err(status),
            },
            order = orders.recv() => match order {
                Some(order) => Ok(encode(*order)),
                // It registered anew, or was too slow and shall.
                None => return,
            },
        };
        let refused = order.is_err();
        if out.send(order).await.is_err() || refused {
            return;
        }
    }
}

fn encode(order: Order) -> v1::ServerOrder {
    v1::ServerOrder {
        run: order.run.to_string(),
        spec: Some((&*order.spec).into()),
        owners: convert::owners_to_wire(&order.placement),
        view: Some(encode_view(&order.view)),
    }
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
            .map(|(g, (life, start))| group(*g, *life, *start))
            .collect(),
        joined: view
            .joined
            .iter()
            .map(|(g, life)| group(*g, *life, Clock(0)))
            .collect(),
        creator: view.creator.map(|(g, life)| group(g, life, Clock(0))),
    }
}

/// A view from the wire.
pub(crate) fn decode_view(view: v1::View) -> View {
    let life = |g: &v1::GroupView| (GroupId(g.group), Incarnation(g.incarnation));
    View {
        generation: Generation(view.generation),
        live: view
            .live
            .iter()
            .map(|g| (life(g).0, (life(g).1, Clock(g.start_clock))))
            .collect(),
        joined: view.joined.iter().map(life).collect(),
        creator: view.creator.as_ref().map(life),
    }
}
