//! A rank's calls to the coordinator: it joins, waits, leases data, leaves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::Status;
use tradewind_common::data::Chunk;
use tradewind_common::mix::mixed;
use tradewind_common::placement::Placement;
use tradewind_common::spec::{GROUP_SIZE_MAX, RunSpec};
use tradewind_common::{Clock, GroupId, Incarnation, Rank, RunId};
use tradewind_proto::holding::{Holding, placement_from_wire};
use tradewind_proto::limits::COORDINATOR_MESSAGE_BYTES_MAX;
use tradewind_proto::refusal;
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::{
    self, AwaitReadyRequest, JoinReply, JoinRequest, LeaseChunkRequest, LeaveRequest, StatusRequest,
};

use crate::away::Away;
use crate::directory::News;
use crate::network::{Authorized, Reach};
pub use crate::whereabouts::CoordinatorAt;

/// Pause between two questions of somebody who has no lease.
const FOLLOW: Duration = Duration::from_secs(1);

/// Why the coordinator did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// It could not be reached, or was not ready, for as long as `liveness.retry_ms` allows.
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
pub struct RankId {
    /// The run.
    pub run: RunId,
    /// The group.
    pub group: GroupId,
    /// The rank in it, as configured.
    pub rank: Rank,
}

impl RankId {
    /// A number that is another one for each rank.
    pub(crate) fn seed(&self) -> u64 {
        let run = seed_of(&self.run);
        mixed(run, [u64::from(self.group.0), u64::from(self.rank.0)])
    }
}

/// A number that is another one for each run.
pub(crate) fn seed_of(run: &RunId) -> u64 {
    let bytes = run.as_str().bytes();
    bytes.fold(0, |seed, byte| mixed(seed, [u64::from(byte)]))
}

/// What a join brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The number of the incarnation that was joined.
    pub incarnation: Incarnation,
    /// host:port of the store at which the group meets.
    pub store_address: String,
    /// Ranks of this incarnation, which may be fewer than are configured.
    pub group_size: u32,
    /// The number of this rank among them.
    pub group_rank: Rank,
    /// Where the run's data begin under `sync`: before this clock so many positions of the training
    /// data had been passed.
    pub origin: (Clock, u64),
    /// Which shard each block belongs to.
    pub placement: Placement,
    /// Who holds the shards.
    pub holding: Holding,
    /// As in the run's specification, which the coordinator alone knows.
    pub bucket_bytes: Option<usize>,
}

/// Where a run's blocks are.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Which shard each block belongs to.
    pub placement: Placement,
    /// Who holds the shards.
    pub holding: Holding,
    /// As in the run's specification, which the coordinator alone knows.
    pub bucket_bytes: Option<usize>,
}

/// What waiting for readiness brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Create the blocks of the slice and ask again.
    Create,
    /// Push from this clock on.
    At(Clock),
}

/// Calls to the coordinator; each is tried again while the coordinator cannot be reached, wherever
/// it is then. Clones share one connection: a server has thousands of ranks, and each connection costs it memory and
/// a descriptor.
#[derive(Clone, Debug)]
pub struct Coordinator {
    at: CoordinatorAt,
    reach: Reach,
    /// Where it was looked for last.
    address: String,
    shared: Arc<Mutex<Connection>>,
    /// The number of the connection that was used last.
    used: u64,
}

/// A connection to the coordinator, if there is one.
#[derive(Debug, Default)]
struct Connection {
    client: Option<CoordinatorClient<Authorized>>,
    /// Each later one has a higher number.
    number: u64,
}

macro_rules! call {
    ($self:ident, $seed:expr, $what:literal, $method:ident, $request:expr) => {{
        let request = $request;
        let mut away = Away::new($seed);
        loop {
            away.begin();
            let answer = match $self.client().await {
                Ok(mut client) => {
                    away.end();
                    client.$method(request.clone()).await
                }
                Err(status) => Err(status),
            };
            match answer {
                Ok(answer) => break Ok(answer.into_inner()),
                Err(status) => {
                    let passes = refusal::retryable(&status);
                    if let Err(error) = $self.again($what, status, passes, &mut away).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}

impl Coordinator {
    /// The coordinator; nothing is sent yet.
    pub fn new(at: CoordinatorAt, reach: Reach) -> Self {
        Self {
            address: at.to_string(),
            at,
            reach,
            shared: Arc::default(),
            used: 0,
        }
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.reach
    }

    pub(crate) async fn client(&mut self) -> Result<CoordinatorClient<Authorized>, Status> {
        let known = self.shared().known();
        if let Some((client, number)) = known {
            self.used = number;
            return Ok(client);
        }
        self.address = self.at.find().await?;
        let client = CoordinatorClient::new(self.reach.connect(&self.address).await?);
        let client = client.max_decoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX);
        let client = client.max_encoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX);
        // Where a clone has been faster, its connection ends with the calls that are on it.
        let number = self.shared().put(client.clone());
        self.used = number;
        Ok(client)
    }

    /// Looks for the coordinator anew at the next call, unless a clone has done so meanwhile.
    pub(crate) fn disconnect(&mut self) {
        let used = self.used;
        let mut shared = self.shared();
        if shared.number == used {
            shared.client = None;
        }
    }

    fn shared(&self) -> MutexGuard<'_, Connection> {
        // Nothing in here leaves it half-changed.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unreachable(&self, status: Status) -> MembershipError {
        MembershipError::Unreachable {
            address: self.address.clone(),
            status,
        }
    }

    /// After a failure: waits for the next try; an error where there is none.
    async fn again(
        &mut self,
        what: &'static str,
        status: Status,
        passes: bool,
        away: &mut Away,
    ) -> Result<(), MembershipError> {
        if !passes {
            return Err(MembershipError::Refused { what, status });
        }
        away.begin();
        if away.so_far() >= self.reach.retry {
            return Err(self.unreachable(status));
        }
        tracing::debug!("trying again to {what}: {}", status.message());
        // One that answers may be no longer the one that the file names.
        let moves = matches!(self.at, CoordinatorAt::File(_));
        if moves || refusal::reason(&status).is_none() {
            self.disconnect();
        }
        tokio::time::sleep(away.pause()).await;
        Ok(())
    }

    /// Enters the group; returns when it is formed. `store_address` (host:port) is that of a store
    /// which this rank serves, if it can serve one. A rank whose group has broken names that incarnation as
    /// `after`, as long as the coordinator may not have heard of its end; 0 at first.
    pub async fn join(
        &mut self,
        rank: &RankId,
        life: u64,
        spec: &RunSpec,
        store_address: &str,
        after: Incarnation,
    ) -> Result<Joined, MembershipError> {
        let request = JoinRequest {
            run: rank.run.to_string(),
            group: rank.group.0,
            rank: rank.rank.0,
            life,
            spec: Some(spec.into()),
            store_address: store_address.to_owned(),
        };
        let mut away = Away::new(rank.seed());
        loop {
            let reply = call!(self, rank.seed(), "join", join, request.clone())?;
            if reply.incarnation > after.0 {
                return Joined::from_wire(reply).map_err(|status| MembershipError::Refused {
                    what: "join",
                    status,
                });
            }
            let status = Status::unavailable("the group has not been formed again yet");
            self.again("join", status, true, &mut away).await?;
        }
    }

    /// Waits until the group may push, or shall create.
    pub async fn await_ready(
        &mut self,
        rank: &RankId,
        incarnation: Incarnation,
        created: bool,
    ) -> Result<Start, MembershipError> {
        let request = AwaitReadyRequest {
            run: rank.run.to_string(),
            group: rank.group.0,
            rank: rank.rank.0,
            incarnation: incarnation.0,
            created,
        };
        let reply = call!(
            self,
            rank.seed(),
            "let the group begin",
            await_ready,
            request
        )?;
        Ok(if reply.create {
            Start::Create
        } else {
            Start::At(Clock(reply.start_clock))
        })
    }

    /// Leases the next chunk of data to the group.
    pub async fn lease_chunk(
        &mut self,
        rank: &RankId,
        incarnation: Incarnation,
        finished: Vec<u64>,
        held: Vec<u64>,
    ) -> Result<Chunk, MembershipError> {
        let request = LeaseChunkRequest {
            run: rank.run.to_string(),
            group: rank.group.0,
            incarnation: incarnation.0,
            finished,
            held,
        };
        let reply = call!(self, rank.seed(), "lease data", lease_chunk, request)?;
        Ok(Chunk {
            number: reply.chunk,
            epoch: reply.epoch,
            positions: reply.begin..reply.end,
        })
    }

    /// The group is done, and so are these chunks of data.
    pub async fn leave(
        &mut self,
        rank: &RankId,
        incarnation: Incarnation,
        finished: Vec<u64>,
    ) -> Result<(), MembershipError> {
        let request = LeaveRequest {
            run: rank.run.to_string(),
            group: rank.group.0,
            rank: rank.rank.0,
            incarnation: incarnation.0,
            finished,
        };
        call!(self, rank.seed(), "leave", leave, request).map(|_| ())
    }

    /// Where the blocks are, for somebody who takes no part.
    pub async fn placement(&mut self, run: &RunId) -> Result<Placed, MembershipError> {
        let request = StatusRequest {
            run: run.to_string(),
        };
        let what = "tell the status";
        let reply = call!(self, seed_of(run), "tell the status", status, request)?;
        placed(reply.placement).map_err(|status| MembershipError::Refused { what, status })
    }

    /// Brings news of who holds the shards, now and then, to somebody who has no lease that brings
    /// them. Returns when there are none any more, as nobody can be reached who would tell them.
    pub async fn follow(&mut self, run: &RunId, news: &News) -> MembershipError {
        loop {
            tokio::time::sleep(FOLLOW).await;
            match self.placement(run).await {
                Ok(Placed { holding, .. }) => _ = news.tell(holding),
                Err(error @ MembershipError::Unreachable { .. }) => return error,
                Err(error) => tracing::debug!("no news of the shards: {error}"),
            }
        }
    }
}

impl Connection {
    /// The one that there is, and its number.
    fn known(&self) -> Option<(CoordinatorClient<Authorized>, u64)> {
        Some((self.client.clone()?, self.number))
    }

    /// The number of the one that is there from now on.
    fn put(&mut self, client: CoordinatorClient<Authorized>) -> u64 {
        self.client = Some(client);
        self.number += 1;
        self.number
    }
}

impl Joined {
    fn from_wire(reply: JoinReply) -> Result<Self, Status> {
        let Placed {
            placement,
            holding,
            bucket_bytes,
        } = placed(reply.placement)?;
        let (rank, size) = (reply.group_rank, reply.group_size);
        // Tables are as large as the group.
        if rank >= size || size > GROUP_SIZE_MAX {
            let text = format!("rank {rank} of a group of {size} cannot be");
            return Err(Status::internal(text));
        }
        Ok(Self {
            incarnation: Incarnation(reply.incarnation),
            store_address: reply.store_address,
            group_size: size,
            group_rank: Rank(rank),
            origin: (Clock(reply.origin_clock), reply.origin_samples),
            placement,
            holding,
            bucket_bytes,
        })
    }
}

fn placed(wire: Option<v1::Placement>) -> Result<Placed, Status> {
    let wire = wire.unwrap_or_default();
    let bucket_bytes = wire
        .bucket_bytes
        .map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    let (placement, holding) =
        placement_from_wire(wire).map_err(|malformed| Status::internal(malformed.to_string()))?;
    Ok(Placed {
        placement,
        holding,
        bucket_bytes,
    })
}
