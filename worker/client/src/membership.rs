//! A rank's bond with the coordinator: joins, waits, leases data, beats, leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tonic::Status;
use tradewind_common::data::Chunk;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, GroupId, Incarnation, Rank, RunId};
use tradewind_proto::convert::{Endpoint, placement_from_wire};
use tradewind_proto::limits::COORDINATOR_MESSAGE_BYTES_MAX;
use tradewind_proto::refusal;
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::{
    AwaitReadyRequest, HeartbeatRequest, JoinRequest, LeaseChunkRequest, LeaveRequest,
    StatusRequest,
};

use crate::network::{Authorized, PAUSE, Reach};
use crate::stopwatch::Stopwatch;

/// Why the coordinator did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// It could not be reached, or was not ready, for as long as `exchange.retry_ms` allows.
    #[error("the coordinator at {address} does not serve: {}", status.message())]
    Unreachable {
        /// host:port
        address: String,
        /// The last failure.
        status: Status,
    },
    /// It refused.
    #[error("the coordinator refused to {what}: {}", status.message())]
    Refused {
        /// What was asked.
        what: &'static str,
        /// What it said.
        status: Status,
    },
}

/// Which rank speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The run.
    pub run: RunId,
    /// The group.
    pub group: GroupId,
    /// The rank in it.
    pub rank: Rank,
}

/// What a join brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The life of the group.
    pub incarnation: Incarnation,
    /// host:port of the group's store.
    pub store_address: String,
    /// Who owns which block.
    pub placement: Placement,
    /// Where the servers are.
    pub servers: Vec<Endpoint>,
}

/// What waiting for readiness brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Create the blocks of the slice and ask again.
    Create,
    /// Push from this clock on.
    At(Clock),
}

/// Calls to the coordinator; each is tried again while the coordinator cannot be reached.
#[derive(Clone, Debug)]
pub struct Coordinator {
    address: String,
    reach: Reach,
    client: Option<CoordinatorClient<Authorized>>,
}

macro_rules! call {
    ($self:ident, $what:literal, $method:ident, $request:expr) => {{
        let request = $request;
        let watch = Stopwatch::start();
        loop {
            let answer = match $self.client().await {
                Ok(mut client) => client.$method(request.clone()).await,
                Err(status) => Err(status),
            };
            match answer {
                Ok(answer) => break Ok(answer.into_inner()),
                Err(status)
                    if refusal::retryable(&status) && watch.elapsed() < $self.reach.retry =>
                {
                    tracing::debug!("trying again to {}: {}", $what, status.message());
                    if refusal::reason(&status).is_none() {
                        $self.client = None;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(status) if refusal::retryable(&status) => {
                    break Err(MembershipError::Unreachable {
                        address: $self.address.clone(),
                        status,
                    });
                }
                Err(status) => {
                    break Err(MembershipError::Refused {
                        what: $what,
                        status,
                    });
                }
            }
        }
    }};
}

impl Coordinator {
    /// The coordinator at host:port; nothing is sent yet.
    pub fn new(address: &str, reach: Reach) -> Self {
        Self {
            address: address.to_owned(),
            reach,
            client: None,
        }
    }

    async fn client(&mut self) -> Result<CoordinatorClient<Authorized>, Status> {
        if self.client.is_none() {
            let client = CoordinatorClient::new(self.reach.connect(&self.address).await?);
            let client = client.max_decoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX);
            self.client = Some(client.max_encoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX));
        }
        Ok(self.client.clone().expect("set above"))
    }

    /// Enters the group; returns when all its ranks have.
    pub async fn join(
        &mut self,
        seat: &Seat,
        life: u64,
        spec: &RunSpec,
        store_address: &str,
    ) -> Result<Joined, MembershipError> {
        let request = JoinRequest {
            run: seat.run.to_string(),
            group: seat.group.0,
            rank: seat.rank.0,
            life,
            spec: Some(spec.into()),
            store_address: store_address.to_owned(),
        };
        let reply = call!(self, "join", join, request)?;
        let placement = placement_from_wire(reply.placement.unwrap_or_default());
        let (placement, servers) = placement.map_err(|malformed| MembershipError::Refused {
            what: "join",
            status: Status::internal(malformed.to_string()),
        })?;
        Ok(Joined {
            incarnation: Incarnation(reply.incarnation),
            store_address: reply.store_address,
            placement,
            servers,
        })
    }

    /// Waits until the group may push, or shall create.
    pub async fn await_ready(
        &mut self,
        seat: &Seat,
        incarnation: Incarnation,
        created: bool,
    ) -> Result<Start, MembershipError> {
        let request = AwaitReadyRequest {
            run: seat.run.to_string(),
            group: seat.group.0,
            rank: seat.rank.0,
            incarnation: incarnation.0,
            created,
        };
        let reply = call!(self, "let the group begin", await_ready, request)?;
        Ok(if reply.create {
            Start::Create
        } else {
            Start::At(Clock(reply.start_clock))
        })
    }

    /// Leases the next chunk of data to the group.
    pub async fn lease_chunk(
        &mut self,
        seat: &Seat,
        incarnation: Incarnation,
        finished: Vec<u64>,
        held: Vec<u64>,
    ) -> Result<Chunk, MembershipError> {
        let request = LeaseChunkRequest {
            run: seat.run.to_string(),
            group: seat.group.0,
            incarnation: incarnation.0,
            finished,
            held,
        };
        let reply = call!(self, "lease data", lease_chunk, request)?;
        Ok(Chunk {
            number: reply.chunk,
            epoch: reply.epoch,
            positions: reply.begin..reply.end,
        })
    }

    /// The group is done.
    pub async fn leave(
        &mut self,
        seat: &Seat,
        incarnation: Incarnation,
    ) -> Result<(), MembershipError> {
        let request = LeaveRequest {
            run: seat.run.to_string(),
            group: seat.group.0,
            rank: seat.rank.0,
            incarnation: incarnation.0,
        };
        call!(self, "leave", leave, request).map(|_| ())
    }

    /// Who owns which block, for somebody who takes no part.
    pub async fn placement(
        &mut self,
        run: &RunId,
    ) -> Result<(Placement, Vec<Endpoint>), MembershipError> {
        let request = StatusRequest {
            run: run.to_string(),
        };
        let reply = call!(self, "tell the status", status, request)?;
        placement_from_wire(reply.placement.unwrap_or_default()).map_err(|malformed| {
            let status = Status::internal(malformed.to_string());
            MembershipError::Refused {
                what: "tell the status",
                status,
            }
        })
    }

    async fn beat(
        &mut self,
        seat: &Seat,
        incarnation: Incarnation,
        clock: u64,
    ) -> Result<(), MembershipError> {
        let request = HeartbeatRequest {
            run: seat.run.to_string(),
            group: seat.group.0,
            rank: seat.rank.0,
            incarnation: incarnation.0,
            clock,
        };
        call!(self, "renew the lease", heartbeat, request).map(|_| ())
    }
}

/// Beats every `pause` on a connection of its own until it is dropped; `clock` is what it tells.
/// When the coordinator refuses, this life of the group is over and `lost` is called.
pub fn keep_lease(
    mut coordinator: Coordinator,
    (seat, incarnation): (Seat, Incarnation),
    pause: Duration,
    clock: Arc<AtomicU64>,
    lost: impl FnOnce(MembershipError) + Send + 'static,
) -> Heartbeat {
    coordinator.client = None;
    Heartbeat(tokio::spawn(async move {
        loop {
            if let Err(error) = coordinator
                .beat(&seat, incarnation, clock.load(Ordering::Relaxed))
                .await
            {
                return lost(error);
            }
            tokio::time::sleep(pause).await;
        }
    }))
}

/// Heartbeats; they end when it is dropped.
#[derive(Debug)]
pub struct Heartbeat(tokio::task::JoinHandle<()>);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}
