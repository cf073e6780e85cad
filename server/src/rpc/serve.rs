//! The stream of a server: reports up, orders down. It is the server's bond with the coordinator;
//! when it breaks, the coordinator hears of it.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use tradewind_common::{Incarnation, ServerId};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::v1;
use tradewind_proto::v1::server_report::Report;

use super::order::{captured_from_wire, encode_order, followed_from_wire, report_from_wire};
use super::revoked::revoked_to_wire;
use crate::admission::Peer;
use crate::coordinator_task::{CallError, CoordinatorHandle, Message, Taken, outbox};
use crate::refuse;
use tradewind_core::answer::Refused;
use tradewind_core::order::{Server, ServerMessage};
use tradewind_core::refusal::Refusal;

/// Orders on their way into a connection.
const ORDERS_OUT_MAX: usize = 1;

/// Reports of a server whose answers wait for the coordinator's disk; beats behind more wait, too.
const UNANSWERED_MAX: usize = 1024;

type Orders = ReceiverStream<Result<v1::ServerOrder, Status>>;

/// Registers the server that speaks first on the stream, and answers with its orders.
pub(super) async fn serve(
    coordinator: CoordinatorHandle,
    request: Request<Streaming<v1::ServerReport>>,
) -> Result<Orders, Status> {
    let peer = Peer::of(request.extensions());
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
    peer.is_server(id)?;
    let server = Server {
        incarnation: Incarnation(register.incarnation),
        address: register.address,
        host: register.host,
    };
    let incarnation = server.incarnation;
    let (orders, inbox) = outbox();
    let ask = |reply| Message::Register(id, server, orders, reply);
    let number = coordinator.call(ask).await.map_err(refuse::call)?;
    let (out, answers) = mpsc::channel(ORDERS_OUT_MAX);
    let orderer = coordinator.incarnation();
    let bond = Bond {
        server: id,
        incarnation,
        number,
        coordinator,
    };
    // Not supervised: what breaks off here breaks this stream, and the server registers anew.
    tokio::spawn(async move {
        let reports = bond.take(reports);
        give_orders(inbox, reports, (out, orderer)).await;
        let lost = Message::ServerLost(bond.server, bond.incarnation, bond.number);
        bond.coordinator.tell(lost).await;
    });
    Ok(ReceiverStream::new(answers))
}

struct Bond {
    server: ServerId,
    incarnation: Incarnation,
    number: u64,
    coordinator: CoordinatorHandle,
}

impl Bond {
    /// Hands reports over until the server ends its side, or says what cannot be. Beats do not wait for
    /// what becomes of reports before them, which may have to wait for the disk.
    async fn take(&self, mut reports: Streaming<v1::ServerReport>) -> Result<(), Status> {
        let mut unanswered = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(answer) = unanswered.next() => match answer {
                    Ok(()) => {}
                    // It was removed while the report was on its way.
                    Err(CallError::Refused(Refused::Refusal(Refusal::UnknownRun(_)))) => {}
                    Err(error) => return Err(refuse::call(error)),
                },
                report = reports.message(), if unanswered.len() < UNANSWERED_MAX => {
                    match report.map_err(refuse::unreadable)? {
                        Some(report) => unanswered.push(self.hand_over(report).await?),
                        None => return Ok(()),
                    }
                }
            }
        }
    }

    /// Hands a report over; what the coordinator says to it.
    async fn hand_over(
        &self,
        report: v1::ServerReport,
    ) -> Result<impl Future<Output = Result<(), CallError>> + use<>, Status> {
        let (reply, answer) = oneshot::channel();
        let message = match report.report {
            Some(Report::Beat(v1::ServerBeat {})) => {
                Message::ServerBeat(self.server, self.incarnation, reply)
            }
            Some(Report::Acknowledge(seen)) => {
                let (run, report) = report_from_wire(seen).map_err(refuse::malformed)?;
                Message::Report(self.server, run, Box::new(report), reply)
            }
            Some(Report::Captured(captured)) => {
                let (run, shard, number, result) =
                    captured_from_wire(captured).map_err(refuse::malformed)?;
                Message::Captured(self.server, (run, shard, number), result, reply)
            }
            Some(Report::Followed(followed)) => {
                let (run, generation) = followed_from_wire(&followed).map_err(refuse::malformed)?;
                Message::Followed(self.server, run, generation, reply)
            }
            Some(Report::KeepsRevoked(keeps)) => {
                let count = keeps.count as usize;
                Message::KeepsRevoked(self.server, count, reply)
            }
            Some(Report::Register(_)) | None => return Err(missing("acknowledge")),
        };
        self.coordinator.tell(message).await;
        Ok(async { Ok(answer.await.map_err(|_| CallError::Gone)??) })
    }
}

/// Sends orders for as long as the server reports; a report that is refused ends the stream.
async fn give_orders(
    mut orders: Taken,
    reports: impl Future<Output = Result<(), Status>>,
    (out, incarnation): (mpsc::Sender<Result<v1::ServerOrder, Status>>, u64),
) {
    tokio::pin!(reports);
    loop {
        // First room, then an order: what is newest by then. Reports are heard all the while.
        let next = async {
            let room = out.reserve().await.ok()?;
            // No order comes any more when it has registered anew.
            Some((room, orders.next().await?))
        };
        let (room, told) = tokio::select! {
            next = next => match next {
                Some(next) => next,
                None => return,
            },
            reported = &mut reports => {
                if let Err(status) = reported {
                    let _ = out.send(Err(status)).await;
                }
                return;
            }
        };
        room.send(Ok(match told {
            ServerMessage::Order(order) => encode_order(&order, incarnation),
            ServerMessage::Revoked(all) => v1::ServerOrder {
                revoked: Some(revoked_to_wire(&all)),
                coordinator: incarnation,
                ..v1::ServerOrder::default()
            },
            ServerMessage::Runs(runs) => v1::ServerOrder {
                runs: runs.iter().map(ToString::to_string).collect(),
                coordinator: incarnation,
                ..v1::ServerOrder::default()
            },
        }));
    }
}

fn missing(field: &'static str) -> Status {
    refuse::malformed(Malformed {
        field,
        problem: "is missing".into(),
    })
}

/// What the service trait calls it.
pub(super) type ServeStream =
    std::pin::Pin<Box<dyn Stream<Item = Result<v1::ServerOrder, Status>> + Send>>;
